// The ends of what a call takes: positions, handles, sizes and lines where a function is called by another.

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "reel/reel.h"
#include "reel/tests/expect.h"
#include "reel/tests/told.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }
std::string here(int line) { return end_of_error(__FILE__, line); }

template <class T>
std::string printed(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// --- numbers ----------------------------------------------------------------------------------------------------------

TEST(Number, OutOfRangeIsToldWithTheDigitsThatMakeItSo) {
  const Parameter w(ones({3}), "w");
  EXPECT_THROW_WITH(dropout(ones({3}), 1 + 1e-9), Error, "p must be in [0, 1], got 1.000000001 (at ");
  EXPECT_THROW_WITH(clamp(ones({3}), 1e-9, 0), Error, "low must not be above high, got 1e-09 and 0 (at ");
  EXPECT_THROW_WITH(full({2}, 1e300, {.dtype = i32}), Error, "the number must fit i32, got 1e+300 (at ");
  EXPECT_THROW_WITH(layer_norm(ones({3}), {3}, {}, {}, -NAN), Error, "eps must not be below 0, got nan (at ");
  EXPECT_THROW_WITH(nn::Adam({w}, {.lr = 1, .beta1 = 1.0000001}), Error, "beta1 in [0, 1) is required, got 1.0000001");
  EXPECT_THROW_WITH(nn::Ema({w}, {.decay = -1e-12}), Error, "decay in [0, 1] is required, got -1e-12");
}

// --- positions and handles --------------------------------------------------------------------------------------------

TEST(Position, OfASequenceIsChecked) {
  const Ragged x = Ragged::from_lengths(ones({3}), {1, 2});
  EXPECT_EQ(x.offsets().length(1), 2);
  expect_told("Offsets::length", [&] { (void)x.offsets().length(2); });
  expect_told("Offsets::length", [&] { (void)x.offsets().length(-1); });
  expect_told("Offsets::length", [&] { (void)Offsets().length(0); });
  EXPECT_THROW_WITH(x.offsets().length(2), IndexError, "the sequence must be in [0, 2), got 2");
  EXPECT_THROW_WITH(x.length(-1), IndexError, "Ragged::length: the sequence must be in [0, 2), got -1");
  EXPECT_THROW_WITH(x[2], IndexError, "Ragged[]: the sequence must be in [-2, 2), got 2");
}

TEST(Position, InAListIsChecked) {
  Tensors few{ones({1}), ones({2})}, many;
  for (int i = 0; i < 9; ++i) many.push_back(ones({i}));
  const Tensors& same = many;
  EXPECT_EQ(many[8].size() + same[4].size() + few[1u].size(), 14);
  expect_told("Tensors[]", [&] { few[2]; });
  expect_told("Tensors[]", [&] { many[9]; });
  expect_told("Tensors[]", [&] { same[-1]; });
  EXPECT_THROW_WITH(Tensors()[0], IndexError, "the position must be in [0, 0), got 0");
}

TEST(UndefinedHandle, OfMoreKindsThrows) {
  expect_told("my_kernel", [] { Tensor().note_write("my_kernel", SourceLocation::current()); });
  expect_told("segments", [] { (void)Ragged().segments(); });
  expect_told("on_gradient", [] { Parameter().on_gradient({}); });
  EXPECT_EQ(Ragged::from_lengths(ones({3}), {1, 2}).segments().total, 3);
}

TEST(Axis, OfStridesMayCountFromTheEnd) {
  const Tensor x = ones({2, 3, 4});
  EXPECT_EQ(x.stride(-1), 1);
  EXPECT_EQ(x.stride(-3), 12);
  EXPECT_THROW_WITH(x.stride(-4), IndexError, "stride: axis must be in [-3, 3) of shape [2, 3, 4], got -4",
                    "errors_edges_test.cpp");
}

TEST(Axis, OfATensorWithoutAxesIsRefusedInWords) {
  EXPECT_THROW_WITH(transpose(full({}, 1)), ShapeError, "transpose: a tensor with axes is required", "shape []");
}

// --- printing ---------------------------------------------------------------------------------------------------------

TEST(Print, KindsHaveNames) {
  EXPECT_EQ(printed(f32) + " " + printed(DType::bool8), "f32 bool8");
  EXPECT_EQ(printed(Device::cpu()) + " " + printed(Device::cuda(1)), "cpu cuda:1");
  EXPECT_EQ(printed(Shape{2, 3}), "[2, 3]");
}

TEST(Print, OfMoreThanMemoryHoldsShowsTheEnds) {
  const std::int64_t large = std::int64_t{1} << 45;
  EXPECT_EQ(to_string(expand(vector({1, 2}), {large, 2})),
            "[[1. 2.]\n [1. 2.]\n [1. 2.]\n ...\n [1. 2.]\n [1. 2.]\n [1. 2.]]");
  EXPECT_EQ(to_string(expand(full({}, 7, {.dtype = i32}), {large})), "[7 7 7 ... 7 7 7]");
}

TEST(Sizes, OfAVectorThatIsNotToBeHadAreTold) {
  const std::int64_t large = std::int64_t{1} << 45;
  const Tensor x = expand(ones({1}), {large});
  expect_told("to_vector", [&] { x.to_vector<float>(); });
  expect_told("to_vector", [&] { expand(ones({1, 1}), {large, 1 << 17}).to_vector<double>(); });
  EXPECT_THROW_WITH(x.to_vector<float>(), OutOfMemory, "to_vector", "35184372088832 elements of 4 bytes",
                    "[35184372088832]");
}

// --- shapes as the user wrote them ------------------------------------------------------------------------------------

TEST(Shapes, OfARaggedAreToldAsGiven) {
  const Ragged x = Ragged::from_lengths(ones({4, 6}), {1, 3});
  EXPECT_EQ(reshape(x, {-1, 2, -1}).values().shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(reshape(Ragged::from_lengths(ones({0, 6}), {0}), {-1, 3, 2}).values().shape(), (Shape{0, 3, 2}));
  EXPECT_THROW_WITH(reshape(x, {-1, 4}), ShapeError,
                    "reshape: the new shape must have as many elements in a row as [4, 6], got [-1, 4]");
  EXPECT_THROW_WITH(reshape(x, {-1, -1, -1}), ShapeError, "got [-1, -1, -1]");
  EXPECT_THROW_WITH(reshape(x, {4, -2}), ShapeError, "got [4, -2]");
  EXPECT_THROW_WITH(expand(x, {-1, 7}), ShapeError, "expand: [4, 6] must broadcast to the new shape, got [-1, 7]");
  EXPECT_THROW_WITH(conv1d(x, ones({2, 5, 3})), ShapeError,
                    "conv1d: weight must have 6 input channels for x [4, 6], got shape [2, 5, 3]");
  EXPECT_THROW_WITH(conv1d(x, ones({2, 3, 3}), {}, {.groups = 4}), ShapeError, "groups must divide the 6 input");
}

TEST(Shapes, WithMinusOneAreToldAsGiven) {
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THROW_WITH(expand(ones({3}), {large, large, -1}), ShapeError, "got [1099511627776, 1099511627776, -1]");
  EXPECT_THROW_WITH(expand(ones({3}), {-1, 3}), ShapeError, "expand: -1 keeps the size of an axis of [3]",
                    "got [-1, 3]");
  EXPECT_THROW_WITH(reshape(ones({3}), {large, large, -1}), ShapeError, "got [1099511627776, 1099511627776, -1]");
}

TEST(Errors, NameTheOpThatOthersAreMadeOf) {
  const Tensor wide = expand(ones({1}), {std::int64_t{1} << 30});
  expect_told("outer", [&] { outer(wide, wide); });
  expect_told("contiguous", [&] { contiguous(expand(ones({1}), {std::int64_t{1} << 45})); });
  Parameter w(ones({1}));
  nn::SGD sgd({w}, {.lr = [](std::int64_t) { return -1.0; }});
  expect_told("SGD::step", [&] { sgd.step(); });
}

// --- a function that is handed over -----------------------------------------------------------------------------------

TEST(Line, OfALayerThatIsHandedOverIsTheCallers) {
  nn::Linear layer({.in = 3, .out = 2});
  const nn::Sequential both(layer, [](const Tensor& x) { return x; });
  const Tensor x = ones({1, 5}, {.dtype = f64});
  expect_told("linear", [&] { pullback(layer, x); });
  expect_told("linear", [&] { pullback(both, x); });
  expect_told("linear", [&] { pullback(layer, Ragged::from_lengths(x, {1})); });
  expect_told("linear", [&] { gradcheck(layer, {x}); });
  expect_told("linear", [&] { gradcheck(layer, std::tuple(x)); });
  expect_told("linear", [&] { adjoint_check(layer, {x}); });
  expect_told("linear", [&] { jacobian(layer, x); });
  expect_told("linear", [&] { hessian(layer, x); });
  expect_told("linear", [&] { hessian_vector_product(layer, x, x); });
  expect_told("linear", [&] { checkpoint(layer, x); });
  expect_told("linear", [&] { nn::nuts(layer, 5); });
}

TEST(Line, IsToldBehindAnyNumberOfInputs) {
  const auto f = [](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, SourceLocation where) {
    return linear(linear(a, b, {}, Epilogue::none, where), c, d, Epilogue::none, where);
  };
  const Tensor x = ones({1, 5}), w = ones({3, 5}), wrong = ones({2, 4}), bias = ones({2});
  expect_told("linear", [&] { pullback(f, x, w, wrong, bias); });
  expect_told("linear", [&] { checkpoint(f, x, Parameter(w), wrong, bias); });
  expect_told("pullback", [&] { pullback(f, x, w, Tensor(), bias); });
  expect_told("linear", [&] { pullback(f, Parameter(x), w, wrong, bias); });
  const Ragged r = Ragged::from_lengths(x, {1});
  const auto g = [](const Ragged& a, const Tensor& b, const Tensor& c, const Tensor& d, SourceLocation where) {
    return linear(linear(a, b, {}, Epilogue::none, where), c, d, Epilogue::none, where);
  };
  expect_told("linear", [&] { pullback(g, r, w, wrong, bias); });
  expect_told("linear", [&] { checkpoint(g, r, w, wrong, bias); });
  auto [y, backprop] = pullback(g, r, w, ones({2, 3}), bias);
  EXPECT_EQ(backprop(y).size(), 4u);
}

TEST(Line, OfAnOpThatIsHandedOverIsTheCallers) {
  Tensor (*const op)(const Tensor&, SourceLocation) = log;
  const Tensor x = ones({2}, {.dtype = bool8}), y = vector({1, 2});
  expect_told("neg", [&] { checkpoint(static_cast<Tensor (*)(const Tensor&, SourceLocation)>(neg), x); });
  EXPECT_TRUE(gradcheck(op, {y}));
  Tape strict{{.check_finite = true}};
  strict.watch(y);
  expect_told("log", [&] { pullback(op, y * 0); });
  expect_told("log", [&] { checkpoint(op, y * 0); });
  const CustomOp twice = CustomOp("twice", false);
  expect_told("twice", [&] { pullback(twice, y); });  // has no code for the CPU
}

TEST(Line, OfWhatIsAskedOfAFunctionIsTheCallers) {
  const Tensor x = vector({1, 2});
  const auto same = [](const Tensor& t) { return t; };
  expect_told("pullback", [&] { pullback(same, Tensor()); });
  expect_told("checkpoint", [&] { checkpoint(same, Tensor()); });
  expect_told("jacobian", [&] { jacobian(same, Tensor()); });
  expect_told("jacobian", [&] { jacobian([](const Tensor&) { return Tensor(); }, x); });
  expect_told("hessian", [&] { hessian(same, x); });
  expect_told("hessian_vector_product", [&] { hessian_vector_product([](const Tensor& t) { return sum(t); }, x, {}); });
  expect_told("gradcheck", [&] { gradcheck(same, {x, x}); });
  expect_told("gradcheck", [&] { gradcheck([](const Tensor& a, const Tensor& b) { return a + b; }, {x}); });
  expect_told("nuts", [&] { nn::nuts(same, 0); });
  expect_told("item", [&] { nn::nuts(same, 2); });
}

// --- callbacks --------------------------------------------------------------------------------------------------------

struct NoPlace : std::runtime_error {
  using std::runtime_error::runtime_error;
  int sector = 0;
};

TEST(Callbacks, MayThrowWhatTheyLikeAndTheOpIsTold) {
  const Parameter w(ones({2}));
  Tape tape;
  const auto failing = [&](auto thrown) {
    return record("disk", {w}, untaped([&] { return w * 2; }), [thrown](const Tensor&) -> Tensor { throw thrown; });
  };
  NoPlace full("no place");
  full.sector = 7;
  const Tensor doubled = untaped([&] { return w * 2; });
  const auto fails = [full](const Tensor&) -> Tensor { throw full; };
  const int line = __LINE__ + 1;
  const Tensor y = sum(exp(record("disk", {w}, doubled, fails)));
  try {
    tape.backward(y);
    FAIL();
  } catch (const NoPlace& error) {
    EXPECT_EQ(error.sector, 7);
    EXPECT_EQ(missing_words(error.what(), {"backward of disk (recorded at", here(line).c_str(), ": no place"}), "")
        << error.what();
  }
  EXPECT_FALSE(w.has_gradient());
  const auto told = [&](const Tensor& sent) {
    try {
      tape.backward(sum(sent));
    } catch (const std::exception& error) {
      return std::string(error.what()).find("backward of disk (recorded at") == 0;
    }
    return false;
  };
  EXPECT_TRUE(told(failing(std::out_of_range("far"))));
  EXPECT_TRUE(told(failing(std::logic_error("why"))));
  EXPECT_THROW(tape.backward(sum(failing(7))), int);  // has no text
  EXPECT_THROW(tape.backward(sum(failing(std::bad_alloc()))), std::bad_alloc);
  EXPECT_FALSE(w.has_gradient());
}

TEST(Callbacks, NamesMayEndBeforeTheTape) {
  const Tensor x = vector({1});
  Tape tape;
  tape.watch(x);
  std::string name = "a name that is longer than what strings hold inside";
  const Tensor y = record(name, {x}, untaped([&] { return x * 2; }), [](const Tensor&) { return ones({5}); });
  name.assign(name.size(), '#');
  EXPECT_THROW_WITH(tape.gradient(y, {x}), ShapeError, "backward of a name that is longer than what strings hold");
}

TEST(Callbacks, AHookMaySweepButNotToItsOwnParameter) {
  Parameter w(vector({3})), other(vector({5}));
  w.on_gradient([&](Parameter&) {
    Tape inner;
    inner.backward(other * other);
  });
  Tape tape;
  tape.backward(w * w);
  EXPECT_EQ(w.gradient().item(), 6);
  EXPECT_EQ(other.gradient().item(), 10);
  w.set_name("w");
  w.on_gradient([](Parameter& parameter) {
    Tape inner;
    inner.backward(parameter * 2);
  });
  EXPECT_THROW_WITH(tape.backward(w * w), Error, "on_gradient: ", "got 'w' again", "errors_edges_test.cpp:");
  EXPECT_EQ(w.gradient().item(), 6);
}

TEST(Tape, AnInnerOneSaysWhatWasComputedTooEarly) {
  const Tensor x = vector({2}), z = vector({3});
  const Parameter w(vector({5}));
  Tape outer;
  outer.watch(x);
  outer.watch(z);
  const int line = __LINE__ + 1;
  const Tensor early = x * w;
  Tape inner;
  const Tensor y = sum(exp(early) * z);
  expect_told("gradient", [&] { inner.gradient(y, {x}); });
  expect_told("gradient", [&] { inner.gradient(y, {w}); });
  EXPECT_THROW_WITH(inner.gradient(y, {z, x}), Error, "y depends on wanted tensor 1 by way of mul (recorded at",
                    here(line).c_str(), "computed before this tape began");
  EXPECT_EQ(inner.gradient(y, {early, z})[0].item(), std::exp(10.) * 3);
  EXPECT_EQ(inner.gradient(sum(z * z), {x})[0].item(), 0);       // does not depend on it
  EXPECT_EQ(inner.gradient(sum(early * x), {x})[0].item(), 10);  // as the function of x that it sees
  EXPECT_EQ(outer.gradient(y, {x})[0].item(), std::exp(10.) * 3 * 5);
}

}  // namespace
}  // namespace reel
