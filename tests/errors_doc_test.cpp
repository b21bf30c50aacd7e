// docs/errors.md, held to the code: each example below stands there under its title, and throws what the page says. Lines are
// counted from the first of each example.

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include "reel/reel.h"
#include "reel/tests/error_of.h"
#include "reel/tests/page.h"

namespace reel {
namespace {

struct Example {
  const char* title;
  void (*run)();
};
const std::vector<Example>& examples();

// Without the indentation that a function's body has.
std::string unindented(const std::string& code) {
  std::istringstream lines(code);
  std::string line, result;
  while (std::getline(lines, line)) result += (line.rfind("  ", 0) == 0 ? line.substr(2) : line) + "\n";
  return result;
}

class ErrorsPage : public testing::TestWithParam<Example> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("reel_errors_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);  // files of examples have short names
  }
  static void TearDownTestSuite() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static inline std::filesystem::path folder_, before_;
};

TEST_P(ErrorsPage, SaysWhatIsThrown) {
  const std::string page = contents(REEL_SOURCE_DIR "/docs/errors.md");
  const std::string title = GetParam().title;
  const std::size_t at = page.find("\n### " + title + "\n");
  ASSERT_NE(at, page.npos) << "docs/errors.md has no example '" << title << "'";

  const std::string source = contents(REEL_SOURCE_DIR "/tests/errors_doc_test.cpp");
  EXPECT_EQ(between(page, "```cpp\n", "```\n", at),
            unindented(between(source, "#line 1 \"train.cpp\"\n", "\n}\n", source.find("\n// " + title + "\n"))))
      << "the page shows other code";

  const std::string text = error_of(GetParam().run);
  const std::string expected = between(page, "```text\n", "\n```\n", at);
  EXPECT_TRUE(reads(text, expected)) << "the page says:\n" << expected << "\nthrown is:\n" << text;
}

INSTANTIATE_TEST_SUITE_P(All, ErrorsPage, testing::ValuesIn(examples()), [](const auto& info) {
  std::string name;
  for (const char c : std::string(info.param.title))
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

constexpr const char* kOfNvrtc[] = {"A kernel that does not compile",
                                    "A kernel with other parameters"};  // nvrtc_test.cpp

TEST(ErrorsPageItself, HasNoOtherExamples) {
  const std::string page = contents(REEL_SOURCE_DIR "/docs/errors.md");
  std::size_t found = 0;
  for (std::size_t at = page.find("\n### "); at != page.npos; at = page.find("\n### ", at + 1)) ++found;
  EXPECT_EQ(found, examples().size() + std::size(kOfNvrtc));
  for (const char* title : kOfNvrtc) EXPECT_NE(page.find("\n### " + std::string(title) + "\n"), page.npos) << title;
}

// --- docs/custom-ops.md -------------------------------------------------------------------------------------------------

TEST(CustomOpsPage, ShowsWhatAWrongGradientIsTold) {
  const auto loop = []<class T>(const CpuContext&, Inputs in, Outputs out) {
    const auto x = in.get<T>(0);
    for (std::size_t i = 0; i < x.size(); ++i) out.get<T>(0)[i] = (1 - x[i] * x[i]) * std::exp(-x[i] * x[i] / 2);
  };
  const CustomOp ricker = CustomOp("ricker", true).cpu(loop).backprop([](const CustomBackward& g) {
    const Tensor& x = g.in[0];
    return Tensors{g.dy[0] * x * (3 - x * x) * exp(-x * x / 2)};  // the wrong sign
  });
  const std::string text = error_of([&] {
#line 42 "my_program.cpp"
    ricker(tensor({0.5, -1, 2}));
  });
#line 100 "errors_doc_test.cpp"
  const std::string page = contents(REEL_SOURCE_DIR "/docs/custom-ops.md");
  std::string expected = between(page, "```text\n", "\n```\n", page.find("A wrong sign is told like this"));
  std::replace(expected.begin(), expected.end(), '\n', ' ');
  EXPECT_TRUE(reads(text, expected)) << "the page says:\n" << expected << "\nthrown is:\n" << text;
}

// --- the examples -----------------------------------------------------------------------------------------------------

// Sizes of a product
void product() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = matmul(x, ones({4, 5}));
}

// Sizes that do not broadcast
void broadcasting() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = x + ones({4});
}

// A layer's input
void layer() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head{this, "head", {.in = 64, .out = 10}};
  } net;
  net.head(ones({8, 32}));
}

// An axis that is not there
void axis() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = sum(x, 2);
}

// A shape's axis
void shape_axis() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  std::int64_t channels = x.shape()[2];
  x.fill_(channels);
}

// As many elements as before
void reshaped() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = reshape(x, {4, -1});
}

// Element types that differ
void element_types() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor weight = ones({4, 3}, {.dtype = f64});
  Tensor y = linear(x, weight);
}

// Class numbers are integers
void class_numbers() {
#line 1 "train.cpp"
  Tensor logits = zeros({3, 10});
  Tensor loss = cross_entropy(logits, tensor({7, 2, 1}));
}

// Reading as another type
void reading() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  for (double value : x.data<double>()) x.fill_(value);
}

// A device that has no such name
void device_name() {
#line 1 "train.cpp"
  Tensor x = zeros({2, 3}, {.device = Device::parse("gpu")});
}

// An index out of range
void index() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor row = x[5];
}

// A row of a table that is not there
void embedding_row() {
#line 1 "train.cpp"
  Tensor table = ones({100, 8});
  Tensor rows = embedding(table, tensor({3, 100}, {.dtype = i64}));
}

// A handle to nothing
void undefined_handle() {
#line 1 "train.cpp"
  Tensor x;
  std::int64_t n = x.size();
  x = zeros({n});
}

// An operand that is undefined
void undefined_operand() {
#line 1 "train.cpp"
  Parameter weight;
  Tensor y = linear(ones({2, 3}), weight);
}

// One element is wanted
void one_element() {
#line 1 "train.cpp"
  Tensor losses = ones({8});
  losses.item();
}

// Backward from a constant
void constant() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tensor loss = sum(w * w);
  Tape tape;  // too late: the loss was computed before
  tape.backward(loss);
}

// Backward from several elements
void several_elements() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  tape.backward(w * w);
}

// Backward twice
void twice() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor loss = sum(w * w);
  tape.backward(loss);
  tape.backward(loss);
}

// A gradient that nobody watched
void unwatched() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tensor x = ones({3});
  Tape tape;
  Tensors gradients = tape.gradient(sum(w * x), {x});
}

// What an inner tape does not see
void inner_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape outer;
  Tensor h = w * 2;
  Tape inner;
  Tensors gradients = inner.gradient(sum(h), {w});
}

// Writing to what is on a tape
void write_on_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = w * 2;
  y.fill_(0);
}

// Writing to what backward needs
void write_before_backward() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor loss = sum(exp(w) * w);
  w.set_value(zeros({3}));
  tape.backward(loss);
}

// A gradient of the wrong shape
void wrong_gradient() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = untaped([&] { return w * w; });
  record("square", {w}, y, [](const Tensor& dy) { return sum(dy); });
  tape.backward(sum(y));
}

// An error inside a backward callback
void inside_a_callback() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = untaped([&] { return w * w; });
  record("square", {w}, y, [](const Tensor& dy) { return dy * ones({2}); });
  tape.backward(sum(y));
}

// A callback that ends its tape
void ended_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  std::optional<Tape> tape(std::in_place);
  Tensor y = untaped([&] { return w * 2; });
  record("twice", {w}, y, [&](const Tensor& dy) {
    tape.reset();
    return dy * 2;
  });
  tape->backward(sum(y));
}

// The first infinity, forward
void infinity_forward() {
#line 1 "train.cpp"
  Parameter w(tensor({1, 0, 2}));
  Tape strict{{.check_finite = true}};
  Tensor y = log(w) * 2;
}

// The first infinity, backward
void infinity_backward() {
#line 1 "train.cpp"
  Parameter w(tensor({4, 0, 1}));
  Tape strict{{.check_finite = true}};
  Tensor loss = sum(sqrt(w));
  strict.backward(loss);
}

// Out of memory
void memory() {
#line 1 "train.cpp"
  Tensor x = zeros({1'000'000'000, 1'000'000});
}

// Lengths that do not add up
void lengths() {
#line 1 "train.cpp"
  Ragged x = Ragged::from_lengths(ones({20, 64}), {3, 0, 16});
}

// Sequences of other lengths
void other_lengths() {
#line 1 "train.cpp"
  Ragged x = Ragged::from_lengths(ones({5, 2}), {3, 2});
  Ragged y = Ragged::from_lengths(ones({5, 2}), {2, 3});
  Ragged z = x + y;
}

// A checkpoint of another model
void other_model() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head;
    explicit Net(int classes) : head(this, "head", {.in = 4, .out = classes}) {}
  } ten(10), five(5);
  nn::save(ten, "digits.safetensors");
  nn::load(five, "digits.safetensors");
}

// A file that is cut off
void cut_off() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head{this, "head", {.in = 4, .out = 10}};
  } net;
  nn::save(net, "digits.safetensors");
  std::filesystem::resize_file("digits.safetensors", 200);
  nn::load(net, "digits.safetensors");
}

// An op without a loop
void without_a_loop() {
#line 1 "train.cpp"
  CustomOp cube = CustomOp("cube").cuda("cube.cu", "cube<T>");
  cube(ones({3}));
}

// A wrong gradient, at the first call
void wrong_backprop() {
#line 1 "train.cpp"
  CustomOp cube = CustomOp("cube", true)
                      .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                        for (int i = 0; i < 2; ++i)
                          out.get<T>(0)[i] = in.get<T>(0)[i] * in.get<T>(0)[i] * in.get<T>(0)[i];
                      })
                      .backprop([](const CustomBackward& g) { return Tensors{g.dy[0] * g.in[0] * g.in[0]}; });
  cube(tensor({1, 2}));
}

// An output that is not written
void not_written() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", true).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    for (int i = 1; i < 3; ++i) out.get<T>(0)[i] = in.get<T>(0)[i];
  });
  copy(ones({3}));
}

// A loop for another type
void another_type() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", false).cpu([](const CpuContext&, Inputs in, Outputs out) {
    for (int i = 0; i < 3; ++i) out.get<float>(0)[i] = in.get<float>(0)[i];
  });
  copy(ones({3}, {.dtype = f64}));
}

// No gradient
void no_backprop() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", false).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    for (int i = 0; i < 3; ++i) out.get<T>(0)[i] = in.get<T>(0)[i];
  });
  Parameter w(ones({3}));
  Tape tape;
  tape.backward(sum(copy(w)));
}

// Options out of range
void options() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  nn::Adam adam({w}, {.lr = 1e-3, .beta1 = 1});
}

#line 430 "errors_doc_test.cpp"

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"Sizes of a product", product},
      {"Sizes that do not broadcast", broadcasting},
      {"A layer's input", layer},
      {"An axis that is not there", axis},
      {"A shape's axis", shape_axis},
      {"As many elements as before", reshaped},
      {"Element types that differ", element_types},
      {"Class numbers are integers", class_numbers},
      {"Reading as another type", reading},
      {"A device that has no such name", device_name},
      {"An index out of range", index},
      {"A row of a table that is not there", embedding_row},
      {"A handle to nothing", undefined_handle},
      {"An operand that is undefined", undefined_operand},
      {"One element is wanted", one_element},
      {"Backward from a constant", constant},
      {"Backward from several elements", several_elements},
      {"Backward twice", twice},
      {"A gradient that nobody watched", unwatched},
      {"What an inner tape does not see", inner_tape},
      {"Writing to what is on a tape", write_on_tape},
      {"Writing to what backward needs", write_before_backward},
      {"A gradient of the wrong shape", wrong_gradient},
      {"An error inside a backward callback", inside_a_callback},
      {"A callback that ends its tape", ended_tape},
      {"The first infinity, forward", infinity_forward},
      {"The first infinity, backward", infinity_backward},
      {"Out of memory", memory},
      {"Lengths that do not add up", lengths},
      {"Sequences of other lengths", other_lengths},
      {"A checkpoint of another model", other_model},
      {"A file that is cut off", cut_off},
      {"An op without a loop", without_a_loop},
      {"A wrong gradient, at the first call", wrong_backprop},
      {"An output that is not written", not_written},
      {"A loop for another type", another_type},
      {"No gradient", no_backprop},
      {"Options out of range", options},
  };
  return all;
}

}  // namespace
}  // namespace reel
