#include "reel/core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
#include "reel/tests/error_of.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

TEST(Tensor, HandlesShareElementsAndVersions) {
  Tensor a = tensor({1, 2, 3});
  Tensor b = a;
  b.fill_(7);
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{7, 7, 7}));
  EXPECT_TRUE(a.is(b));
  EXPECT_EQ(a.version(), 1u);
}

TEST(Tensor, OptionsMakeAnotherLikeThisOne) {
  const Tensor x = zeros({2, 3}, {.dtype = f64});
  const Tensor y = ones({4}, x.options());
  EXPECT_EQ(y.dtype(), f64);
  EXPECT_EQ(y.device(), x.device());
  EXPECT_EQ(Parameter(x).options().dtype, f64);
  EXPECT_EQ(Ragged(x, Offsets(std::vector<std::int64_t>{1, 1})).options().dtype, f64);
  EXPECT_THROW_WITH(Tensor().options(), Error, "options", "undefined", "tensor_test.cpp");
  EXPECT_THROW_WITH(Ragged().options(), Error, "options", "undefined", "tensor_test.cpp");
}

TEST(Tensor, ShapesTakeAnyIntegerTypes) {
  const std::size_t n = 2;
  const short m = 3;
  const Tensor x = zeros({n, m, 4u, 5LL});
  EXPECT_EQ(x.shape().str(), "[2, 3, 4, 5]");
  EXPECT_EQ(x.size(), 120);
  EXPECT_EQ(x.size(-1), 5);
  EXPECT_THROW_WITH(x.size(4), ShapeError, "axis must be in [-4, 4), got 4", "tensor_test.cpp");
}

TEST(Tensor, NegativeAndOverflowingSizesAreRefused) {
  EXPECT_THROW_WITH(zeros({2, -1}), ShapeError, "must not be negative", "[2, -1]", "tensor_test.cpp");
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THROW_WITH(empty({large, large}), ShapeError, "more bytes than 64 bits count");
  EXPECT_THROW_WITH(empty({large}), OutOfMemory, "requested", "live");
  EXPECT_EQ(empty({large, large, 0}).size(), 0);
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(tensor({2.5}).item(), 2.5);
  EXPECT_EQ(tensor({7}, {.dtype = i64}).item<std::int64_t>(), 7);
  EXPECT_EQ(full({}, 3).item<int>(), 3);
  EXPECT_THROW_WITH(tensor({1, 2}).item(), ShapeError, "item: the tensor must have one element, got shape [2]");
  EXPECT_THROW_WITH(Tensor().item(), Error, "item", "undefined");
}

TEST(Tensor, ToVectorConvertsAndFollowsStrides) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(transpose(x).to_vector<double>(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(zeros({0, 3}).to_vector<float>().empty());
}

TEST(Tensor, IndexingGivesViews) {
  Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(x[1][2].item(), 6);
  EXPECT_EQ(x[-1][-3].item(), 4);
  x[0].fill_(0);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 0, 0, 4, 5, 6}));
  EXPECT_EQ(x.version(), 1u);
  EXPECT_THROW_WITH(x[2], IndexError, "index must be in [-2, 2) of axis 0, got 2");
  EXPECT_THROW_WITH(zeros({0})[0], IndexError, "index must be in [0, 0) of axis 0, got 0");
  EXPECT_THROW_WITH(full({}, 1)[0], ShapeError, "without axes");
}

TEST(Tensor, BadIndicesAndUndefinedTensorsNameTheLine) {
  const auto named = [](const std::string& said) { return said.find("tensor_test.cpp:") != std::string::npos; };
  EXPECT_TRUE(named(error_of([] { ones({3})[3]; })));
  EXPECT_TRUE(named(error_of([] { ones({})[0]; })));
  EXPECT_TRUE(named(error_of([] { Tensor().to_vector<float>(); })));
  EXPECT_TRUE(named(error_of([] { zeros_like(Tensor()); })));
  EXPECT_TRUE(named(error_of([] { from_memory(nullptr, {3}, f32); })));
  const Ragged x = Ragged::from_lengths(ones({3, 2}), {1, 2});
  EXPECT_TRUE(named(error_of([&] { x[2]; })));
  EXPECT_TRUE(named(error_of([&] { x.length(2); })));
  EXPECT_TRUE(named(error_of([&] { x.with(ones({4})); })));
}

TEST(Tensor, DataIsTypedAndChecked) {
  Tensor x = tensor({1, 2, 3});
  EXPECT_EQ(std::accumulate(x.data<float>().begin(), x.data<float>().end(), 0.0f), 6);
  EXPECT_EQ(x.version(), 0u);
  x.mutable_data<float>()[1] = 9;
  EXPECT_EQ(x.version(), 1u);
  EXPECT_EQ(x[1].item(), 9);
  EXPECT_THROW_WITH(x.data<double>(), DTypeError, "must be f64, got f32", "tensor_test.cpp");
  EXPECT_THROW_WITH(transpose(ones({2, 3})).data<float>(), ShapeError, "must be contiguous");
}

TEST(Tensor, CopyConvertsAndChecksShapes) {
  Tensor x = zeros({2, 2});
  x.copy_(tensor({1.5, 2.5, 3.5, 4.5}, {2, 2}, {.dtype = f64}));
  EXPECT_EQ(x[1][1].item(), 4.5);
  EXPECT_THROW_WITH(x.copy_(zeros({4})), ShapeError, "copy_: the source must have shape [2, 2], got [4]");
  x.copy_(transpose(x));  // the source overlaps
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1.5, 3.5, 2.5, 4.5}));
}

TEST(Tensor, FromMemoryBorrowsAndReleases) {
  double values[] = {1, 2, 3, 4};
  bool released = false;
  {
    Tensor x = from_memory(
        values, {2, 2}, f64, [](void* flag) { *static_cast<bool*>(flag) = true; }, &released);
    const Tensor row = x[1];
    x = Tensor();
    EXPECT_FALSE(released);
    EXPECT_EQ(row.to_vector<double>(), (std::vector<double>{3, 4}));
  }
  EXPECT_TRUE(released);
}

TEST(Tensor, RankEightIsTheLimit) {
  const Tensor x = ones({1, 2, 1, 2, 1, 2, 1, 2});
  EXPECT_EQ((x + x).size(), 16);
  EXPECT_THROW_WITH(unsqueeze(x, 0), ShapeError, "8 axes");
}

TEST(Print, LooksLikeNumpy) {
  EXPECT_EQ(to_string(tensor({1, 2, 3})), "[1. 2. 3.]");
  EXPECT_EQ(to_string(tensor({1, 2.5, -3}, {3, 1})), "[[ 1. ]\n [ 2.5]\n [-3. ]]");
  EXPECT_EQ(to_string(arange(3)), "[0 1 2]");
  EXPECT_EQ(to_string(tensor({1, 0}) > 0), "[ True False]");
  EXPECT_EQ(to_string(full({}, 2.5)), "2.5");
  EXPECT_EQ(to_string(zeros({0})), "[]");
  EXPECT_EQ(to_string(tensor({NAN, INFINITY, 1})), "[nan inf  1.]");
  EXPECT_EQ(to_string(zeros({2, 1, 2})), "[[[0. 0.]]\n\n [[0. 0.]]]");
  EXPECT_EQ(to_string(Tensor()), "undefined");
}

TEST(Print, LargeTensorsAreSummarised) { EXPECT_EQ(to_string(arange(2000)), "[   0    1    2 ... 1997 1998 1999]"); }

TEST(Print, RaggedShowsEachSequence) {
  EXPECT_EQ(to_string(Ragged::from_lengths(arange(3), {2, 0, 1})), "Ragged[[0 1],\n       [],\n       [2]]");
}

TEST(Ragged, ChecksItsOffsetsOnce) {
  const Tensor values = ones({5, 2});
  EXPECT_THROW_WITH(Ragged::from_lengths(values, {2, 4}), ShapeError, "6 rows", "2 sequences", "[5, 2]",
                    "tensor_test.cpp");
  EXPECT_THROW_WITH(Ragged::from_lengths(values, {7, -2}), ShapeError, "must not be negative", "-2", "sequence 1");
  const std::int64_t decreasing[] = {0, 3, 2, 5}, late[] = {1, 5};
  EXPECT_THROW_WITH(Offsets::from_offsets(decreasing), ShapeError, "must not decrease, got 2 after 3 at position 2");
  EXPECT_THROW_WITH(Offsets::from_offsets(late), ShapeError, "must start with 0, got 1");
  EXPECT_THROW(Ragged(full({}, 1), Offsets()), ShapeError);
}

TEST(Ragged, MayBeCopiedWhenItWasMovedFrom) {
  Ragged x = Ragged::from_lengths(ones({3, 2}), {1, 2});
  const Ragged y = std::move(x);
  const Ragged z = x;  // NOLINT: what is tested
  EXPECT_EQ(y.count(), 2);
  EXPECT_FALSE(z.values().defined());
}

TEST(Ragged, EmptySequencesAndEmptyBatchesAreLegal) {
  const Ragged none = Ragged::from_lengths(ones({0, 3}), {});
  EXPECT_EQ(none.count(), 0);
  const Ragged x = Ragged::from_lengths(arange(3), {0, 3, 0});
  EXPECT_EQ(x.offsets().max_length(), 3);
  EXPECT_EQ(x[0].size(), 0);
  EXPECT_EQ(x[-2].to_vector<int>(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(x.offsets().lengths(), (std::vector<std::int64_t>{0, 3, 0}));
  EXPECT_THROW_WITH(x[3], IndexError, "[-3, 3), got 3");
}

TEST(Parameter, NeedsAFloatingValue) {
  EXPECT_THROW_WITH(Parameter(arange(3)), DTypeError, "Parameter", "i64", "tensor_test.cpp");
  EXPECT_THROW(Parameter{Tensor{}}, Error);
}

TEST(Parameter, FlatteningKeepsValuesAndGradients) {
  Parameter a(tensor({1, 2, 3})), b(tensor({4, 5}, {.dtype = f64})), c(tensor({6}));
  a.set_gradient(tensor({10, 20, 30}));
  const Tensor handle = a.value();
  flatten_parameters({a, b, c, a});
  EXPECT_EQ(a.state()->home, c.state()->home);
  EXPECT_NE(a.state()->home, b.state()->home);
  EXPECT_EQ(c.state()->offset, 64);  // 256 bytes
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.value().array().data) % 64, 0u);
  EXPECT_EQ(a.value().to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(handle.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(b.value().to_vector<double>(), (std::vector<double>{4, 5}));
  EXPECT_EQ(a.gradient().to_vector<float>(), (std::vector<float>{10, 20, 30}));
  EXPECT_FALSE(c.has_gradient());
  flatten_parameters({a, c});  // as they are
  EXPECT_EQ(c.state()->offset, 64);
}

TEST(Parameter, ViewsKeepTheMemoryThatItLeaves) {
  const auto numbers = [](double first) { return arange(first, first + 4096, 1, {.dtype = f32}); };
  const auto reuse = [&] {  // what is free is taken
    Tensors taken;
    for (int i = 0; i < 8; ++i) taken.push_back(full({4096}, -1));
    for (int i = 0; i < 4; ++i) taken.push_back(full({8192 + 64 * i}, -1));
    return taken;
  };
  const std::vector<float> expected = numbers(0).to_vector<float>();
  std::vector<Tensor> views;
  Tape tape;
  Tensor y;
  {
    Parameter a(numbers(0)), b(numbers(5000)), c(numbers(9000)), x(ones({4096}));
    views = {reshape(a, {64, 64}), narrow(a, 0, 0, 4096)};
    y = sum(x * reshape(a, {4096}));
    flatten_parameters({a, b});
    const Tensors first = reuse();
    views.push_back(reshape(a, {2, 2048}));
    flatten_parameters({a, b, c});
    const Tensors second = reuse();
    views.push_back(reshape(a, {4, 1024}));
    for (const Tensor& view : views) EXPECT_EQ(view.to_vector<float>(), expected);
    EXPECT_EQ(a.value().to_vector<float>(), expected);
    EXPECT_EQ(tape.gradient(y, {x})[0].to_vector<float>(), expected);
  }
  const Tensors third = reuse();
  for (const Tensor& view : views) EXPECT_EQ(view.to_vector<float>(), expected);
}

TEST(Parameter, WhatNobodySeesIsFreedWhenItMoves) {
  Parameter a(full({4096}, 1)), b(full({4096}, 2));
  {
    Tape tape;
    tape.backward(sum(a * b));  // each has a buffer of its own then
  }
  const std::int64_t before = memory_stats().live_bytes;
  flatten_parameters({a, b});
  EXPECT_LE(memory_stats().live_bytes, before + 1024);
  Parameter c(ones({1}));
  {
    const Tensor view = reshape(a, {64, 64});
    flatten_parameters({a, b, c});
    EXPECT_EQ(view.to_vector<float>(), std::vector<float>(4096, 1));
    EXPECT_GT(memory_stats().live_bytes, before + 16384);
  }
  flatten_parameters({a, b});  // nobody sees what it left
  flatten_parameters({c});
  EXPECT_LE(memory_stats().live_bytes, before + 4096);
}

TEST(Tensors, ThatAreMovedAwayAreEmpty) {
  Tensors all;
  for (int i = 0; i < 6; ++i) all.push_back(full({1}, i));
  Tensors moved = std::move(all);
  EXPECT_EQ(moved.size(), 6u);
  EXPECT_EQ(all.size(), 0u);  // NOLINT: that is what is tested
  for (const Tensor& tensor : all) ADD_FAILURE() << tensor;
  for (int i = 0; i < 6; ++i) all.push_back(moved[i]);
  EXPECT_EQ(all[5].item(), 5);
  moved = std::move(all);
  EXPECT_TRUE(all.empty());
  EXPECT_EQ(moved[5].item(), 5);
}

TEST(Parameter, EachHasAVersionOfItsOwn) {
  Parameter a(tensor({1})), b(tensor({2}));
  flatten_parameters({a, b});
  a.set_value(tensor({3}));
  EXPECT_EQ(a.value().version(), 1u);
  EXPECT_EQ(b.value().version(), 0u);
}

TEST(Parameter, GradientsAreCheckedWhenSet) {
  Parameter a(tensor({1, 2}));
  EXPECT_THROW_WITH(a.set_gradient(tensor({1})), ShapeError, "set_gradient", "[2], got [1]");
  EXPECT_THROW_WITH(a.set_gradient(tensor({1, 2}, {.dtype = f64})), DTypeError, "must be f32, got f64");
  EXPECT_FALSE(a.has_gradient());
}

TEST(Device, NamesAreParsed) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("cuda:3"), Device::cuda(3));
  EXPECT_EQ(Device::cuda(2).name(), "cuda:2");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:100", "cuda:12345678901"})
    EXPECT_THROW_WITH(Device::parse(bad), DeviceError, "Device::parse", bad);
}

TEST(Device, AMissingDeviceIsNamedAndNeverReplaced) {
  if (Device::best() != Device::cpu()) return;
  EXPECT_THROW_WITH(zeros({2}, {.device = Device::cuda()}), DeviceError, "cuda:0");
  EXPECT_THROW(to(ones({2}), Device::cuda(1)), DeviceError);
}

}  // namespace
}  // namespace reel
