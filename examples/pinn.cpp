// Solves Poisson's equation -u_xx - u_yy = f on the unit square, u = 0 on its border, with a neural network and no grid: the
// network is trained until the equation holds at random points. That takes its second derivatives in x and y, and the
// gradient of these in the weights. f is chosen so that u = sin(pi x) sin(2 pi y) is the solution to compare with.
// Raissi et al., "Physics-informed neural networks", 2019; with sines instead of tanh, as in Sitzmann et al., "Implicit neural
// representations with periodic activation functions", 2020, the second derivatives are learnt many times faster.

#include <reel/reel.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <numbers>

#include "reel/examples/arguments.h"

using namespace reel;

namespace {

constexpr double kPi = std::numbers::pi;

Tensor exact(const Tensor& x, const Tensor& y) { return sin(kPi * x) * sin(2 * kPi * y); }
Tensor source(const Tensor& x, const Tensor& y) { return 5 * kPi * kPi * exact(x, y); }

struct Net : nn::Module {
  nn::Linear first{this, "first", {.in = 2, .out = 32}};
  nn::Linear second{this, "second", {.in = 32, .out = 32}};
  nn::Linear last{this, "last", {.in = 32, .out = 1}};
  // x, y and the result: [n, 1]. The factor is 0 on the border, whatever the network says.
  Tensor operator()(const Tensor& x, const Tensor& y) {
    const Tensor inside = x * (1 - x) * y * (1 - y);
    const Tensor centred = 8 * (concatenate({x, y}, 1) - 0.5);
    return inside * last(sin(second(sin(first(centred)))));
  }
};

// u_xx + u_yy at each point. A point's u depends on that point alone, so the gradient of a sum has all derivatives.
Tensor laplacian(Net& u, const Tensor& x, const Tensor& y) {
  Tape tape;
  tape.watch(x);
  tape.watch(y);
  const Tensors slope = [&] {
    Tape inner;
    return inner.gradient(sum(u(x, y)), {x, y});
  }();
  const Tensor u_xx = tape.gradient(sum(slope[0]), {x}, {.keep = true})[0];
  const Tensor u_yy = tape.gradient(sum(slope[1]), {y})[0];
  return u_xx + u_yy;
}

double step(Net& u, nn::Optimizer& optimizer, std::int64_t points) {
  const Tensor x = rand({points, 1}), y = rand({points, 1});
  Tape tape;
  const Tensor residual = laplacian(u, x, y) + source(x, y);
  const Tensor loss = mean(residual * residual);
  tape.backward(loss);
  optimizer.step();
  return loss.item();
}

// |u - exact| / |exact| over a grid.
double relative_error(Net& u) {
  constexpr std::int64_t kSide = 101;
  const Tensor line = linspace(0, 1, kSide);
  const Tensor all = zeros({kSide, kSide});
  const Tensor x = reshape(all + line, {-1, 1}), y = reshape(all + unsqueeze(line, 1), {-1, 1});
  const Tensor right = exact(x, y), off = u(x, y) - right;
  return std::sqrt(sum(off * off).item() / sum(right * right).item());
}

// The network's solution along two lines, and points of the exact one.
void draw(Net& u, const std::string& path) {
  const auto along = [](std::int64_t points) { return reshape(linspace(0, 1, points), {-1, 1}); };
  const Tensor line = along(101), marks = along(21);
  std::vector<nn::PlotSeries> series;
  for (const double at : {0.5, 0.2}) {
    const std::string where = at == 0.5 ? ", x = 0.5" : ", x = 0.2";
    const Tensor learnt = u(full_like(line, at), line), right = exact(full_like(marks, at), marks);
    series.push_back({.name = "network" + where, .x = line.to_vector<double>(), .y = learnt.to_vector<double>()});
    series.push_back({.name = "exact" + where, .x = marks.to_vector<double>(), .y = right.to_vector<double>()});
  }
  nn::save_plot(path, series, {.title = "Poisson's equation", .x_label = "y", .y_label = "u"});
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t steps = 2000, points = 128;
  double rate = 1e-2, required = 0, most_seconds = 0;
  std::uint64_t seed = 0;
  std::string output = ".";
  example::Arguments arguments("Solves Poisson's equation with a neural network.");
  arguments.whole("--steps", steps, 1, 1'000'000'000, "steps of the optimiser");
  arguments.whole("--points", points, 1, 1'000'000, "random points per step");
  arguments.positive("--rate", rate, "learning rate at the start; it falls to 0 as a cosine");
  arguments.seed("--seed", seed, "of weights and points");
  arguments.text("--output", output, "folder for pinn.svg");
  arguments.positive("--require-error", required, "exit with 1 if the relative L2 error is above this");
  arguments.positive("--require-seconds", most_seconds, "exit with 1 if it takes longer than this");
  if (const auto status = arguments.parse(argc, argv)) return *status;
  try {
    const auto begin = std::chrono::steady_clock::now();
    example::make_folder(output);
    manual_seed(seed);
    Net u;
    nn::Adam adam(u.parameters(), {.lr = nn::schedule::cosine(rate, steps)});
    for (std::int64_t i = 1; i <= steps; ++i) {
      const double loss = step(u, adam, points);
      if (i % 200 == 0 || i == steps)
        std::printf("step %5lld  mean squared residual %10.3e  relative L2 error %.2e\n", static_cast<long long>(i),
                    loss, relative_error(u));
    }
    draw(u, output + "/pinn.svg");
    std::cout << "wrote " << output << "/pinn.svg\n";
    const double error = relative_error(u);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("%.1f s\n", seconds);
    if (required > 0 && !(error <= required))
      std::cerr << "pinn: a relative L2 error of at most " << required << " is required, got " << error << "\n";
    else if (most_seconds > 0 && seconds > most_seconds)
      std::cerr << "pinn: at most " << most_seconds << " s are required, got " << seconds << " s\n";
    else return 0;
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "pinn: " << error.what() << "\n";
    return 2;
  }
}
