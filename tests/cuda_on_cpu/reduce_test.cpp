// Reductions go other ways for other sizes and other places in memory: against the CPU, and against each other where the bits
// are promised to be the same.

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/schedule.h"

namespace reel {
namespace {

using cuda_on_cpu::Schedule;
using Lengths = std::vector<std::int64_t>;

Tensor normal(const Shape& shape, DType dtype, std::uint64_t seed = 3) {
  Generator generator(seed);
  return randn(shape, generator, {.dtype = dtype});
}

/// The same numbers, one element off the boundaries of packs.
Tensor unaligned(const Tensor& x) {
  const Tensor longer = concatenate({normal({1}, x.dtype()), flatten(x)});
  return reshape(narrow(to(longer, Device::cuda()), 0, 1, x.size()), x.shape());
}

void expect_close(const Tensor& got, const Tensor& expected, double tolerance) {
  ASSERT_EQ(got.shape(), expected.shape());
  const std::vector<double> y = got.to_vector<double>(), want = expected.to_vector<double>();
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (y[i] == want[i]) continue;  // infinities
    ASSERT_NEAR(y[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
  }
}
void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], y[i]) << i;
}

/// Sum, mean, maximum and its place along an axis, in any order of blocks.
void expect_equal_devices(const Tensor& x, int axis) {
  const Tensor moved = to(x, Device::cuda()), off = unaligned(x);
  const double tolerance = x.dtype() == f32 ? 1e-4 : 1e-12;
  const Tensor sums = sum(x, {axis}), means = mean(x, {axis}), best = max(x, {axis}), which = argmax(x, axis);
  Tensor first;
  for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
    cuda_on_cpu::set_schedule(schedule);
    const Tensor got = sum(moved, {axis});
    expect_close(got, sums, tolerance);
    if (first.defined()) expect_same(got, first);
    first = got;
    expect_same(sum(off, {axis}), got);
    const auto squares = [axis](ReduceOp op, const Tensor& x) {
      return detail::reduced_squares("squares", op, x, {axis}, Keep::no, SourceLocation{});
    };
    expect_same(squares(ReduceOp::sum_of_squares, moved), sum(square(moved), {axis}));
    expect_same(squares(ReduceOp::mean_of_squares, off), mean(square(moved), {axis}));
    expect_close(squares(ReduceOp::sum_of_squares, transpose(off, 0, -1)),
                 squares(ReduceOp::sum_of_squares, transpose(x, 0, -1)), tolerance);
    expect_close(mean(moved, {axis}), means, tolerance);
    expect_same(max(moved, {axis}), best);
    expect_same(argmax(moved, axis), which);
    expect_same(argmax(off, axis), which);
  }
  cuda_on_cpu::set_schedule(Schedule::in_order);
}

TEST(CudaReduce, AlongRowsOfAnyLength) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {1, 2, 3, 4, 7, 8, 33, 127, 128, 1023, 1024, 1025, 4100, 8193, 32768, 32769, 50003}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n));
      expect_equal_devices(normal({n < 100 ? 301 : 3, n}, dtype), 1);
      const Tensor x = to(normal({3, n}, dtype), Device::cuda());
      for (int row = 0; row < 3; ++row)  // alone a row has the same bits
        expect_same(sum(narrow(x, 0, row, 1), {1}), narrow(sum(x, {1}), 0, row, 1));
    }
}

TEST(CudaReduce, AcrossRowsOfAnyNumber) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {1, 8, 9, 65, 2048, 2049})
      for (const std::int64_t width : {3, 4, 33, 200}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n) + " " + std::to_string(width));
        expect_equal_devices(normal({n, width}, dtype), 0);
      }
  expect_equal_devices(normal({3, 70, 8}, f32), 1);
  expect_equal_devices(normal({40000, 5}, f32), 0);
  const Tensor large = normal({8200, 4100}, f32);  // longer pieces
  expect_close(sum(to(large, Device::cuda()), {0}), sum(large, {0}), 1e-4);
}

// So many results that blocks do not share their pieces, read from few elements.
TEST(CudaReduce, ManyResultsOfManyElements) {
  const Tensor rows = to(normal({1, 32770}, f32), Device::cuda()),
               columns = to(normal({1, 2049, 3}, f32), Device::cuda());
  const Tensor along = sum(expand(rows, {2049, 32770}), {1}), across = sum(expand(columns, {2732, 2049, 3}), {1});
  for (const std::int64_t i : {0, 1, 2048}) expect_same(narrow(along, 0, i, 1), sum(rows, {1}));
  for (const std::int64_t i : {0, 1, 2731}) expect_same(narrow(across, 0, i, 1), sum(columns, {1}));
}

TEST(CudaReduce, OverAxesThatAreApart) {
  for (const Shape& shape : {Shape{5, 3, 700}, Shape{9, 4, 8}, Shape{70, 2, 1030}}) {
    const Tensor x = normal(shape, f64), moved = to(x, Device::cuda());
    expect_close(sum(moved, {0, 2}), sum(x, {0, 2}), 1e-12);
    expect_close(sum(moved, {1}), sum(x, {1}), 1e-12);
    expect_close(sum(transpose(moved, 0, 2), {0, 1}), sum(transpose(x, 0, 2), {0, 1}), 1e-12);
  }
}

/// Results and gradients of sum, mean and max of sequences.
Tensors of_sequences(const Tensor& values, const Lengths& lengths, const Tensor& dy) {
  Tape tape;
  tape.watch(values);
  const Ragged x = Ragged::from_lengths(values, lengths);
  const Tensors y = {sum(x), mean(x), max(x)};
  Tensors results = y;
  for (const Tensor& each : y) results.push_back(tape.gradient(each, dy, {values}, {.keep = true})[0]);
  return results;
}

TEST(CudaReduce, SequencesOfAnyLengthAndWidth) {
  const Lengths lengths = {0, 1, 0, 0, 3, 100, 17, 16, 700, 0, 64, 65, 0};
  const auto n = static_cast<std::int64_t>(lengths.size());
  for (const std::int64_t width : {1, 3, 4, 64, 132, 300}) {
    SCOPED_TRACE(width);
    const Tensor values = normal({966, width}, f32), dy = normal({n, width}, f32, 4);
    const Tensors expected = of_sequences(values, lengths, dy);
    for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
      cuda_on_cpu::set_schedule(schedule);
      const Tensors got = of_sequences(to(values, Device::cuda()), lengths, to(dy, Device::cuda()));
      const Tensors off = of_sequences(unaligned(values), lengths, unaligned(dy));
      for (std::size_t k = 0; k < got.size(); ++k) {
        SCOPED_TRACE(k);
        expect_close(got[k], expected[k], 1e-5);
        expect_close(off[k], expected[k], 1e-5);
      }
      // The sequence of 100 rows alone has the same bits.
      const Ragged alone = Ragged::from_lengths(narrow(to(values, Device::cuda()), 0, 4, 100), {100});
      expect_same(sum(alone), narrow(got[0], 0, 5, 1));
    }
    cuda_on_cpu::set_schedule(Schedule::in_order);
  }
}

TEST(CudaReduce, ProductsOfSequencesAreInOrder) {
  for (const std::int64_t rows : {8, 200, 3000})
    for (const std::int64_t width : {1, 4, 70}) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < rows * width; ++i) values.push_back(i / width % 2 == 0 ? 1e13f : 1e-13f);
      const Ragged x = Ragged::from_lengths(from_vector(values, {rows, width}), {rows});
      const Tensor y = to(prod(x.with(to(x.values(), Device::cuda()))), Device::cpu());
      expect_close(y, ones({1, width}), 1e-3);
    }
}

// More sequences than a warp looks through at a time, and many without rows.
TEST(CudaReduce, ManySequences) {
  Lengths lengths;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < 3000; ++i) {
    lengths.push_back(i % 700 < 350 ? 0 : i * i % 7);
    total += lengths.back();
  }
  const Tensor values = normal({total, 4}, f32), dy = normal({3000, 4}, f32, 4);
  const Tensors expected = of_sequences(values, lengths, dy);
  const Tensors got = of_sequences(to(values, Device::cuda()), lengths, to(dy, Device::cuda()));
  for (std::size_t k = 0; k < got.size(); ++k) expect_close(got[k], expected[k], 1e-5);
}

}  // namespace
}  // namespace reel
