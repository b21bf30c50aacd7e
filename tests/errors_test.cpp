// What users are told: the op that they called, on which line, and that no handle, axis or size crashes. What errors read like
// is in docs/errors.md, which errors_doc_test.cpp holds to the code.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/scratch.h"
#include "reel/reel.h"
#include "reel/tests/expect.h"
#include "reel/tests/little_memory.h"
#include "reel/tests/told.h"

namespace reel {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string here(int line) { return end_of_error(__FILE__, line); }

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

// --- the user's line --------------------------------------------------------------------------------------------------

TEST(Errors, ComparisonsOfRaggedNameTheLine) {
  const Ragged a = Ragged::from_lengths(ones({3}), {1, 2}), b = Ragged::from_lengths(ones({3}), {2, 1});
  expect_told("equal", [&] { a == b; });
  expect_told("not_equal", [&] { a != b; });
  expect_told("less", [&] { a < b; });
  expect_told("less_equal", [&] { a <= b; });
  expect_told("greater", [&] { a > b; });
  expect_told("greater_equal", [&] { a >= b; });
  EXPECT_NE(error_of([&] { a + Ragged(); }).find("each operand must be defined"), std::string::npos);
}

TEST(Errors, OperatorsOnRaggedNameTheLine) {
  const Ragged a = Ragged::from_lengths(ones({3, 2}), {1, 2}), b = Ragged::from_lengths(ones({3, 2}), {2, 1});
  const Tensor wrong = ones({5});
  expect_told("add", [&] { a + b; });
  expect_told("sub", [&] { a - b; });
  expect_told("mul", [&] { a* b; });
  expect_told("div", [&] { a / b; });
  expect_told("add", [&] { a + wrong; });
  expect_told("mul", [&] { wrong* a; });
  const Tensor none;
  expect_told("neg", [&] { -none; });
  expect_told("neg", [] { -Ragged(); });
}

TEST(Errors, OutOfMemoryNamesOpBytesAndLine) {
  const Tensor x = ones({100, 100});
  {
    const LittleMemory little(10'000);
    const int line = __LINE__ + 1;
    EXPECT_THROW_WITH(exp(x), OutOfMemory, "exp: 40000 bytes requested", "bytes live in", "cached", here(line).c_str());
    expect_told("add", [&] { x + x; });
    expect_told("zeros", [&] { zeros({100, 100}); });
    expect_told("empty", [&] { empty({100, 100}); });
    expect_told("to_vector", [&] { x.to_vector<double>(); });
    expect_told("tile", [&] { tile(x, {2, 2}); });
    expect_told("matmul", [&] { matmul(x, x); });
  }
  EXPECT_EQ(exp(x).size(), 10'000);
}

TEST(Errors, OutOfMemoryInAThreadOfAKernelNamesTheOp) {
  const int threads = num_threads();
  set_num_threads(2);
  ones({1}).item(SourceLocation{"train.cpp", 7});
  EXPECT_THROW_WITH(parallel_for(2, 1, [](std::int64_t, std::int64_t) { detail::host_allocate(std::size_t{1} << 50); }),
                    OutOfMemory, "item: 1125899906842624 bytes requested", "(at train.cpp:7)");
  set_num_threads(threads);
}

TEST(Errors, InBackwardNameTheForwardLine) {
  const Parameter w(ones({100, 100}));
  Tape tape;
  const int line = __LINE__ + 1;
  const Tensor y = exp(w);
  const LittleMemory little(10'000);
  EXPECT_THROW_WITH(tape.backward(y, y), OutOfMemory, "backward of exp (recorded at", here(line).c_str(),
                    "40000 bytes requested");
  EXPECT_FALSE(w.has_gradient());
}

TEST(Errors, GradientsOfGradientsBelongToTheForwardLine) {
  const Tensor x = ones({100, 100});
  Tape outer;
  outer.watch(x);
  const auto [line, first] = [&] {
    Tape inner;
    const int at = __LINE__ + 1;
    const Tensor y = exp(x);
    return std::pair(at, inner.gradient(sum(y), {x})[0]);
  }();
  const Tensor z = sum(first);
  const LittleMemory little(10'000);
  const std::string text = error_of([&] { outer.gradient(z, {x}); });
  EXPECT_EQ(missing_words(text, {"backward of", here(line).c_str()}), "") << text;
}

TEST(Errors, LayersPassTheUsersLineOn) {
  struct Net : nn::Module {
    nn::Linear head{this, "head", {.in = 2, .out = 3}};
  } net;
  expect_told("linear", [&] { net.head(ones({1, 5})); });
  const Tensor x = ones({1, 2});
  Tape tape;
  tape.watch(x);
  const int line = __LINE__ + 1;
  const Tensor y = net.head(x);
  net.parameters()[0].set_value(zeros({3, 2}));
  EXPECT_THROW_WITH(tape.backward(sum(y)), VersionError, "backward of linear (recorded at", here(line).c_str(),
                    "written since, by set_value");
}

// --- the op that was called -------------------------------------------------------------------------------------------

TEST(Errors, NameTheOpThatWasCalled) {
  const Tensor x = ones({2, 3}), counts = arange(3);
  expect_told("operator[]", [&] { x[5]; });
  expect_told("tensor", [] { tensor({1, 2}, {3}); });
  expect_told("from_vector", [] { from_vector(std::vector<float>{1, 2}, {3}); });
  expect_told("zeros", [] { zeros({-1}); });
  expect_told("ones", [] { ones({-1}); });
  expect_told("full", [] { full({-1}, 2); });
  expect_told("rand", [] { rand({-1}); });
  expect_told("randn", [] { randn({-1}); });
  expect_told("randint", [] { randint(0, 2, {-1}); });
  expect_told("bernoulli", [] { bernoulli(0.5, {-1}); });
  expect_told("linspace", [] { linspace(0, 1, -1); });
  expect_told("eye", [] { eye(-1); });
  expect_told("arange", [] { arange(-1); });
  Generator generator;
  expect_told("permutation", [&] { permutation(-1, generator); });
  Parameter w(x);
  expect_told("set_value", [&] { w.set_value(ones({2})); });
  expect_told("stack", [&] { stack({x, arange(3)}); });
  expect_told("stack", [&] { stack({arange(3), cast(arange(3), f32)}); });
  expect_told("Ragged::from_list", [&] { Ragged::from_list({x, ones({2, 4})}); });
  const Ragged r = Ragged::from_lengths(x, {2}), s = Ragged::from_lengths(ones({2, 4}), {2});
  expect_told("concatenate_batches", [&] { concatenate_batches({r, s}); });
  expect_told("split", [&] { split(counts, {kMost, kMost, 5}); });
  expect_told("tile", [&] { tile(x, {kMost, kMost}); });
  expect_told("tile", [&] { tile(x, {std::int64_t{1} << 40, std::int64_t{1} << 40}); });
  expect_told("repeat_interleave", [&] { repeat_interleave(x, kMost, 0); });
  expect_told("pad", [&] { pad(x, {{0, kMost, kMost}}); });
  expect_told("pad", [&] { pad(x, {{0, kMost, 1}}, PaddingMode::replicate); });
  expect_told("pad", [&] { pad(x, {{0, kMost - 5, 1}}); });
  expect_told("pad", [&] { pad(r, {{0, kMost, 1}}); });
  expect_told("pad", [&] { pad(Ragged::from_lengths(x, {1, 1}), {{0, kMost / 2, 1}}); });
}

TEST(Errors, ClassNumbersAreIntegers) {
  const Tensor logits = ones({2, 3});
  EXPECT_THROW_WITH(cross_entropy(logits, ones({2})), DTypeError, "class numbers", "i32 or i64", "got f32 [2]");
  EXPECT_THROW_WITH(cross_entropy(logits, ones({2, 2})), ShapeError, "cross_entropy: target must have shape [2, 3]");
}

TEST(Errors, SchedulesSayWhatCame) {
  EXPECT_THROW_WITH(nn::schedule::warmup_linear(1, 7, 5), Error,
                    "warmup_linear: 0 <= warmup < total is required, got 7, 5", "errors_test.cpp");
  EXPECT_THROW_WITH(nn::schedule::cosine(1, 0), Error, "steps >= 1 is required, got 0");
  nn::Schedule schedule = 0.5;
  const nn::Schedule moved = std::move(schedule);
  EXPECT_EQ(moved(0), 0.5);
  EXPECT_THROW_WITH(schedule(0), Error, "undefined", "errors_test.cpp");  // NOLINT: what is tested
}

// --- handles, axes and devices ----------------------------------------------------------------------------------------

TEST(UndefinedHandle, OfATensorThrows) {
  const Tensor x;
  expect_told("shape", [&] { (void)x.shape(); });
  expect_told("rank", [&] { (void)x.rank(); });
  expect_told("size", [&] { (void)x.size(); });
  expect_told("size", [&] { (void)x.size(0); });
  expect_told("dtype", [&] { (void)x.dtype(); });
  expect_told("device", [&] { (void)x.device(); });
  expect_told("stride", [&] { (void)x.stride(0); });
  expect_told("is_contiguous", [&] { (void)x.is_contiguous(); });
  expect_told("version", [&] { (void)x.version(); });
  expect_told("array", [&] { (void)x.array(); });
  expect_told("item", [&] { (void)x.item(); });
  expect_told("data", [&] { (void)x.data<float>(); });
  expect_told("fill_", [&] { Tensor().fill_(1); });
  Tensor from = ones({2});
  const Tensor to = std::move(from);
  EXPECT_EQ(to.size(), 2);
  expect_told("size", [&] { (void)from.size(); });  // NOLINT: what is tested
}

TEST(UndefinedHandle, OfAParameterThrows) {
  Parameter w;
  expect_told("value", [&] { (void)w.value(); });
  expect_told("shape", [&] { (void)w.shape(); });
  expect_told("size", [&] { (void)w.size(); });
  expect_told("dtype", [&] { (void)w.dtype(); });
  expect_told("device", [&] { (void)w.device(); });
  expect_told("has_gradient", [&] { (void)w.has_gradient(); });
  expect_told("gradient", [&] { (void)w.gradient(); });
  expect_told("set_gradient", [&] { w.set_gradient(ones({1})); });
  expect_told("clear_gradient", [&] { w.clear_gradient(); });
  expect_told("on_gradient", [&] { w.on_gradient({}); });
  expect_told("set_value", [&] { w.set_value(ones({1})); });
  expect_told("trainable", [&] { (void)w.trainable(); });
  expect_told("set_trainable", [&] { w.set_trainable(false); });
  expect_told("name", [&] { (void)w.name(); });
  expect_told("set_name", [&] { w.set_name("w"); });
  expect_told("group", [&] { (void)w.group(); });
  expect_told("set_group", [&] { w.set_group("slow"); });
  expect_told("exp", [&] { exp(w); });
  expect_told("mul", [&] { 2 * w; });
  expect_told("SGD", [&] { nn::SGD({w}); });
  expect_told("flatten_parameters", [&] { flatten_parameters({w}); });
}

TEST(UndefinedHandle, OfOtherKindsThrows) {
  const Ragged x;
  EXPECT_FALSE(x.defined());
  expect_told("dtype", [&] { (void)x.dtype(); });
  expect_told("device", [&] { (void)x.device(); });
  expect_told("Ragged[]", [&] { (void)x[0]; });
  expect_told("add", [&] { x + x; });
  expect_told("softmax", [&] { softmax(x, -1); });
  expect_told("Dataset", [] { (void)nn::Dataset{}.size(); });
  expect_told("value", [] { (void)nn::Buffer().value(); });
  expect_told("set_value", [] { nn::Buffer().set_value(ones({1})); });
  WriteOnce buffer({4, 2});
  const WriteOnce other = std::move(buffer);
  EXPECT_EQ(other.end(), 0);
  expect_told("append", [&] { buffer.append(ones({1, 2})); });  // NOLINT: what is tested
  expect_told("part", [&] { buffer.part(0, 1); });              // NOLINT: what is tested
  expect_told("part", [&] { buffer.view(0, 1); });              // NOLINT: what is tested
  expect_told("write", [] { WriteOnce::Part().write(ones({1})); });
  auto [y, backprop] = pullback([](const Tensor& v) { return exp(v); }, ones({1}));
  const auto moved = std::move(backprop);
  const auto& left = backprop;
  expect_told("pullback", [&left] { left(ones({1})); });
}

TEST(Axis, OutOfRangeThrows) {
  const Tensor x = ones({2, 3});
  EXPECT_THROW_WITH(x.shape()[7], IndexError, "axis must be in [0, 2) of shape [2, 3], got 7", "errors_test.cpp");
  EXPECT_THROW_WITH(x.shape()[-1], IndexError, "got -1");
  EXPECT_THROW_WITH(x.stride(4), IndexError, "stride: axis must be in [-2, 2) of shape [2, 3], got 4",
                    "errors_test.cpp");
  Shape shape = x.shape();
  EXPECT_THROW_WITH(shape[2] = 1, IndexError, "got 2");
  EXPECT_THROW_WITH(Shape().back(), IndexError, "back: axis");
  EXPECT_THROW_WITH(Shape().pop_back(), IndexError, "pop_back: axis");
  for (int i = 0; i < 6; ++i) shape.push_back(1);
  EXPECT_THROW_WITH(shape.push_back(1), ShapeError, "at most 8 axes", "errors_test.cpp");
}

TEST(Device, NumbersAreInRange) {
  EXPECT_EQ(Device::cuda(99).index, 99);
  EXPECT_THROW_WITH(Device::cuda(256), DeviceError, "Device::cuda: the index must be in [0, 100), got 256",
                    "errors_test.cpp");
  EXPECT_THROW_WITH(Device::cuda(-1), DeviceError, "got -1");
}

// x[1] = y would change no element of x.
static_assert(std::is_assignable_v<Tensor&, Tensor>);
static_assert(!std::is_assignable_v<Tensor, Tensor>);

// --- callbacks that end what is swept ---------------------------------------------------------------------------------

TEST(Tape, MayNotBeEndedByACallbackThatItSweeps) {
  const Tensor x = vector({1, 2});
  std::optional<Tape> tape(std::in_place);
  tape->watch(x);
  const Tensor middle = exp(x);
  const int line = __LINE__ + 1;
  const Tensor y = record("ends", {middle}, untaped([&] { return middle * 2; }), [&tape](const Tensor& dy) {
    tape.reset();
    return dy * 2;
  });
  const std::string text = error_of([&] { tape->gradient(sum(y), {x}); });
  EXPECT_EQ(missing_words(text, {"backward of ends (recorded at", "must leave the tape that is being swept alive"}), "")
      << text;
  EXPECT_NE(text.find("errors_test.cpp:" + std::to_string(line)), std::string::npos) << text;
  EXPECT_FALSE(is_recording());
  EXPECT_EQ(memory_stats().live_nodes, 0);
  Tape next;  // and the next one is as good as new
  next.watch(x);
  EXPECT_EQ(next.gradient(sum(x * x), {x})[0].to_vector<double>(), (std::vector<double>{2, 4}));
}

TEST(Tape, MayBeReplacedByACallbackThatItSweeps) {
  const Tensor x = vector({1, 2});
  std::optional<Tape> tape(std::in_place);
  tape->watch(x);
  const Tensor y = record("replaces", {x}, untaped([&] { return x * 2; }), [&tape](const Tensor& dy) {
    tape.reset();
    tape.emplace();
    return dy * 2;
  });
  EXPECT_THROW(tape->gradient(sum(y), {x}), Error);
  const Tensor z = vector({3});
  tape->watch(z);
  EXPECT_EQ(tape->gradient(z * z, {z})[0].item(), 6);
}

TEST(Tape, SaysThatTapesDidNotEndInOrder) {
  const Tensor x = vector({1, 2});
  std::optional<Tape> outer(std::in_place), inner(std::in_place);
  inner->watch(x);
  const Tensor before = sum(x * x);
  outer.reset();
  const Tensor after = sum(x * x);
  constexpr const char* kOrder =
      "tapes must end in the reverse order of their beginning, got one that ended before another";
  EXPECT_THROW_WITH(inner->gradient(after, {x}), Error, "gradient: ", kOrder, "errors_test.cpp:");
  EXPECT_THROW_WITH(inner->backward(after), Error, "backward: ", kOrder, "errors_test.cpp:");
  EXPECT_THROW_WITH(inner->gradient(before, {x}), Error, "gradient: ", kOrder);
  EXPECT_THROW_WITH(inner->watch(x), Error, "watch: ", kOrder, "errors_test.cpp:");
  inner.reset();
  EXPECT_FALSE(is_recording());
  EXPECT_EQ(memory_stats().live_nodes, 0);
  Tape next;  // and the next one is as good as new
  next.watch(x);
  EXPECT_EQ(next.gradient(sum(x * x), {x})[0].to_vector<double>(), (std::vector<double>{2, 4}));
}

TEST(Pullback, MayBeEndedByItsOwnCallback) {
  using Backprop = Pullback<Tensor, Tensor>;
  std::optional<Backprop> backprop;
  const auto f = [&](const Tensor& v) {
    return record("ends", {v}, untaped([&] { return v * 2; }), [&](const Tensor& dy) {
      backprop.reset();
      return dy * 2;
    });
  };
  auto [y, callback] = pullback(f, vector({1, 2}));
  backprop.emplace(std::move(callback));
  EXPECT_EQ((*backprop)(y).to_vector<double>(), (std::vector<double>{4, 8}));
}

// --- sizes at the end of the range ------------------------------------------------------------------------------------

TEST(Print, OfNoElementsEnds) {
  EXPECT_EQ(to_string(zeros({kMost, 0})), "[]");
  EXPECT_EQ(to_string(zeros({0, kMost, kMost})), "[]");
  EXPECT_EQ(to_string(zeros({2, 0})), "[]");
}

TEST(Sizes, ThatWrapAreRefused) {
  const std::int64_t large = std::int64_t{1} << 32;
  const Tensor x = ones({2, 3}), none = zeros({large, large, 0});
  expect_told("reshape", [&] { reshape(x, {large, large, 6}); });
  expect_told("reshape", [&] { reshape(zeros({0}), {large, large}); });
  expect_told("reshape", [&] { reshape(x, {large, large, -1}); });
  expect_told("expand", [&] { expand(ones({1, 1}), {large, large}); });
  expect_told("expand", [&] { expand(x, {-2, 3}); });
  expect_told("flatten", [&] { flatten(none, 0, 1); });
  expect_told("concatenate", [&] { concatenate({zeros({kMost, 0}), zeros({kMost, 0})}); });
  EXPECT_EQ(reshape(none, {0, large, large}).shape(), (Shape{0, large, large}));
  EXPECT_EQ(flatten(none, 1, 2).shape(), (Shape{large, 0}));
  EXPECT_EQ((none + 1).size(), 0);
}

TEST(Sizes, OfWindowsAreChecked) {
  const Ragged x = Ragged::from_lengths(ones({3, 2}), {1, 2});
  expect_told("seq2col", [&] { seq2col(x, kMost); });
  expect_told("seq2col", [&] { seq2col(x, kMost / 2); });
  expect_told("seq2col", [&] { seq2col(x, kMost / 8); });
  expect_told("seq2col", [&] { seq2col(x, std::int64_t{1} << 40); });  // out of memory
  // No window fits: no rows, and no memory for the windows' width.
  const Tensor weight = ones({4, 2, 2});
  const Ragged y = conv1d(x, weight, {}, {.dilation = std::int64_t{1} << 31});
  EXPECT_EQ(y.values().shape(), (Shape{0, 4}));
  EXPECT_EQ(y.offsets().lengths(), (std::vector<std::int64_t>{0, 0}));
  Tape tape;
  tape.watch(weight);
  const Tensor loss = sum(conv1d(x, weight, {}, {.padding = 1, .dilation = std::int64_t{1} << 31}).values());
  EXPECT_EQ(sum(abs(tape.gradient(loss, {weight})[0])).item(), 0);
}

TEST(Rotary, PositionsAreBounded) {
  const Tensor x = ones({4, 2});
  expect_told("rotary", [&] { rotary(x, {.offset = kMost}); });
  expect_told("rotary", [&] { rotary(x, {.offset = std::numeric_limits<std::int64_t>::min()}); });
  expect_told("rotary", [&] { rotary(x, {.offset = 99'999'997}); });
  expect_told("rotary", [&] { rotary(Ragged::from_lengths(x, {1, 3}), {.offset = 99'999'998}); });
  EXPECT_EQ(rotary(x, {.offset = 99'999'996}).size(), 8);
}

}  // namespace
}  // namespace reel
