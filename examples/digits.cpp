// Trains a ConvNet on handwritten digits that come with Reel, and tells how many of 360 others it reads right. Results go to
// standard output and are the same for any number of threads; progress, with its times, goes to standard error.

#include <reel/reel.h>

#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "reel/examples/arguments.h"

using namespace reel;

struct Net : nn::Module {
  nn::Conv2dRelu conv1{this, "conv1", {.in = 1, .out = 32, .kernel = 3, .padding = 1}};
  nn::Conv2dRelu conv2{this, "conv2", {.in = 32, .out = 32, .kernel = 3, .padding = 1}};
  nn::Conv2dRelu conv3{this, "conv3", {.in = 32, .out = 64, .kernel = 3, .stride = 2, .padding = 1}};
  nn::Linear head{this, "head", {.in = 64 * 16, .out = 10}};
  Tensor operator()(const Tensor& x) { return head(flatten(conv3(conv2(conv1(x))), 1)); }
};

struct Settings {
  std::int64_t epochs = 10;
  std::int64_t batch = 64;
  double rate = 3e-3;
  std::uint64_t seed = 0;
  int threads = 0;
  std::string device = "best";
  std::string resume;
  std::string output = ".";
  std::int64_t stop = 0;
  double required = 0;

  // The status to exit with at once, if there is nothing to train.
  std::optional<int> parse(int argc, char** argv) {
    example::Arguments arguments("Trains a ConvNet on 8 x 8 handwritten digits.");
    arguments.whole("--epochs", epochs, 1, 1'000'000, "times that each training image is seen, and its shifted copies");
    arguments.whole("--batch", batch, 1, 1'000'000, "images per step");
    arguments.positive("--rate", rate, "learning rate at the start; it falls to 0 as a cosine");
    arguments.seed("--seed", seed, "of weights and shuffling");
    arguments.whole("--threads", threads, 0, 1024, "CPU threads; 0: as many as cores");
    arguments.text("--device", device, "cpu, cuda, cuda:1, or best: a GPU if there is one");
    arguments.file("--resume", resume, "digits.safetensors of a run with the same options that was stopped");
    arguments.text("--output", output, "folder for digits.safetensors and digits.svg");
    arguments.whole("--stop", stop, 0, 1'000'000'000, "stop after so many steps, to resume later; 0: at the end");
    arguments.positive("--require-accuracy", required, "exit with 1 if the accuracy is below so many per cent");
    return arguments.parse(argc, argv);
  }
};

// Each image five times: as it is, and moved by one pixel in each direction.
nn::Dataset with_shifts(const nn::Dataset& digits) {
  const std::int64_t n = digits.size();
  const Tensor side = zeros({n, 1, 8, 1}), edge = zeros({n, 1, 1, 10});
  const Tensor framed = concatenate({edge, concatenate({side, digits.inputs, side}, 3), edge}, 2);
  Tensors images, labels;
  for (const auto& [down, right] : {std::pair{1, 1}, {0, 1}, {2, 1}, {1, 0}, {1, 2}}) {
    images.push_back(narrow(narrow(framed, 2, down, 8), 3, right, 8));
    labels.push_back(digits.targets);
  }
  return {concatenate(images), concatenate(labels)};
}

double step(Net& net, nn::Optimizer& optimizer, const Tensor& images, const Tensor& labels) {
  Tape tape;
  const Tensor loss = cross_entropy(net(images), labels);
  tape.backward(loss);
  optimizer.step();
  return loss.item();
}

nn::Confusion evaluate(Net& net, const nn::Dataset& digits) {
  const Tensor guesses = argmax(net(to(digits.inputs, net.device())), 1);
  nn::Confusion confusion(10);
  confusion.add(digits.targets.to_vector<std::int64_t>(), guesses.to_vector<std::int64_t>());
  return confusion;
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * share);
  return text;
}

// What must be the same when a run is resumed, or it would not end where it was going: [epochs, rate].
Tensor course(const Settings& settings) {
  return tensor({static_cast<double>(settings.epochs), settings.rate}, {.dtype = f64});
}

// Takes up a run that was stopped. Throws if it was of other options, or has come as far as this one wants to go.
void resume(nn::Training& run, const Settings& settings) {
  nn::load_training(run, settings.resume);
  const std::vector<double> before = run.tensors.back().tensor.to_vector<double>();
  if (before != course(settings).to_vector<double>()) {
    std::ostringstream text;
    text << "'" << settings.resume << "' goes on with --epochs " << before[0] << " --rate " << before[1] << ", got "
         << settings.epochs << " and " << settings.rate;
    throw std::runtime_error(text.str());
  }
  if (settings.stop > 0 && run.optimizer.steps() >= settings.stop)
    throw std::runtime_error("--stop: more than the " + std::to_string(run.optimizer.steps()) + " steps that '" +
                             settings.resume + "' has done are required, got " + std::to_string(settings.stop));
}

// history [epochs, 2]: mean loss and test accuracy.
void print_history(const Tensor& history) {
  const std::vector<double> values = history.to_vector<double>();
  for (std::size_t i = 0; i + 1 < values.size(); i += 2)
    std::printf("epoch %2zu  loss %.4f  test accuracy %s\n", i / 2 + 1, values[i], percent(values[i + 1]).c_str());
  std::fflush(stdout);
}

void draw(const Tensor& history, const std::string& path) {
  nn::PlotSeries loss{.name = "training loss", .x = {}, .y = {}}, error{.name = "test error", .x = {}, .y = {}};
  const std::vector<double> values = history.to_vector<double>();
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    loss.x.push_back(static_cast<double>(i / 2 + 1));
    loss.y.push_back(values[i]);
    error.x.push_back(static_cast<double>(i / 2 + 1));
    error.y.push_back(1 - values[i + 1]);
  }
  nn::save_plot(path, {loss, error}, {.title = "Digits", .x_label = "epoch", .log_y = true});
}

int train(const Settings& settings) {
  const std::string file = settings.output + "/digits.safetensors";
  example::make_folder(settings.output);
  if (settings.threads > 0) set_num_threads(settings.threads);

  manual_seed(settings.seed);
  Net net;
  net.to(settings.device == "best" ? Device::best() : Device::parse(settings.device));
  const nn::Dataset test = nn::digits::test();
  nn::Batches data =
      nn::batches(with_shifts(nn::digits::train()),
                  {.size = settings.batch, .shuffle = true, .device = net.device(), .epochs = settings.epochs});
  const std::int64_t steps = settings.epochs * data.batches_per_epoch();
  nn::AdamW adam(net.parameters(), {.lr = nn::schedule::cosine(settings.rate, steps), .weight_decay = 0.05});

  nn::Training run{.module = net, .optimizer = adam, .batches = &data};
  run.tensors = {{"history", zeros({0, 2}, {.dtype = f64})},
                 {"epoch_loss", zeros({1}, {.dtype = f64})},
                 {"course", course(settings)}};
  if (!settings.resume.empty()) resume(run, settings);
  Tensor& history = run.tensors[0].tensor;
  Tensor& epoch_loss = run.tensors[1].tensor;  // sum over the images of the epoch under way

  std::cout << nn::summary(net) << "\n" << std::flush;
  nn::Progress progress({.epochs = settings.epochs,
                         .steps_per_epoch = data.batches_per_epoch(),
                         .epochs_done = data.epoch(),
                         .steps_done = data.step()});
  for (auto [images, labels] : data) {
    const double loss = step(net, adam, images, labels);
    epoch_loss.fill_(epoch_loss.item() + loss * static_cast<double>(labels.size()));
    progress.step(labels.size(), loss);
    const bool epoch_ended = data.step() == 0;
    if (epoch_ended) {
      const double mean_loss = epoch_loss.item() / static_cast<double>(data.dataset().size());
      const double accuracy = evaluate(net, test).accuracy();
      history = concatenate({history, tensor({mean_loss, accuracy}, {1, 2}, {.dtype = f64})});
      epoch_loss.fill_(0);
      progress.end_epoch("test " + percent(accuracy));
    }
    const bool stops = adam.steps() == settings.stop;
    if (epoch_ended || stops) nn::save_training(run, file);
    if (stops) break;
  }
  progress.finish();
  if (adam.steps() < steps) {
    std::cout << "stopped after " << adam.steps() << " of " << steps << " steps; go on with --resume " << file << "\n";
    return 0;
  }

  const nn::Confusion confusion = evaluate(net, test);
  print_history(history);
  std::cout << "\n" << confusion.str();
  draw(history, settings.output + "/digits.svg");
  std::cout << "wrote " << file << " and " << settings.output << "/digits.svg\n";
  if (100 * confusion.accuracy() >= settings.required) return 0;
  std::cerr << "digits: an accuracy of " << settings.required << " % is required, got " << percent(confusion.accuracy())
            << "\n";
  return 1;
}

int main(int argc, char** argv) {
  Settings settings;
  if (const auto status = settings.parse(argc, argv)) return *status;
  try {
    return train(settings);
  } catch (const std::exception& error) {
    std::cerr << "digits: " << error.what() << "\n";
    return 2;
  }
}
