// Gradients of views that are written where they belong in the gradient of what the views show: the same numbers as without.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

// Numbers that differ, of about 1.
Tensor numbers(const Shape& shape, double first = 0, DType dtype = f64) {
  const auto size = static_cast<double>(shape.size());
  const Tensor i = reshape(arange(first, first + size, 1, {.dtype = f64}), shape);
  return cast(sin(2.7 * i), dtype);
}

// Memory that is taken up next holds no numbers.
void spoil_memory() {
  Tensors all;
  for (std::int64_t size = 8; size <= 1 << 14; size *= 2)
    for (int i = 0; i < 8; ++i) all.push_back(full({size}, std::numeric_limits<double>::quiet_NaN(), {.dtype = f64}));
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<double> a = cast(got, f64).to_vector<double>(), b = cast(expected, f64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 1e-10 * (1 + std::abs(b[i]))) << what << ", element " << i;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return sum(scaled_dot_product_attention(q, k, v) * numbers(q.shape(), 3, q.dtype()));
}

// A program of views, attention on views and sums of them: the same one for the same seed.
struct Program {
  std::uint32_t seed;

  // y; `also` becomes a view on the way.
  Tensor operator()(const Tensor& x, Tensor* also) const {
    std::mt19937 generator(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(generator() % static_cast<std::uint32_t>(n));
    };
    Tensors pool = {x * 1.0};
    Tensor y = sum(x) * 0.5;
    const int steps = static_cast<int>(6 + below(10));
    for (int step = 0; step < steps; ++step) {
      const Tensor from = pool[static_cast<std::size_t>(below(static_cast<std::int64_t>(pool.size())))];
      const int rank = from.rank(), axis = rank > 0 ? static_cast<int>(below(rank)) : 0;
      const std::int64_t size = rank > 0 ? from.shape()[axis] : 0;
      switch (below(11)) {
        case 0: {
          Shape order = from.shape();
          for (int i = 0; i < rank; ++i) order[i] = i;
          for (int i = rank - 1; i > 0; --i) std::swap(order[i], order[static_cast<int>(below(i + 1))]);
          pool.push_back(permute(from, order));
          break;
        }
        case 1:
          if (rank > 1 && axis + 1 < rank) pool.push_back(flatten(from, axis, axis + 1));
          break;
        case 2:
          if (size > 1) pool.push_back(narrow(from, axis, below(size), 1));
          if (size > 1) pool.push_back(narrow(from, axis, 0, size - 1));
          break;
        case 3:
          if (size > 0 && rank > 1) pool.push_back(select(from, axis, below(size)));
          break;
        case 4:
          if (size > 2) pool.push_back(slice(from, axis, 0, size, 2));
          break;
        case 5:
          y = y + sum(from * numbers(from.shape(), step));
          break;
        case 6:
          if (rank > 0 && rank < 6) pool.push_back(unsqueeze(from, axis));
          break;
        case 7:  // its kernel wants the gradient row by row
          if (size > 0) {
            Shape shape = from.shape();
            shape[axis] = 2;
            const Tensor places = gather(from, axis, full(shape, size - 1, {.dtype = i64}));
            y = y + sum(places * numbers(shape, step));
          }
          break;
        default: {
          if (rank < 3 || size == 0) break;
          const auto part = [&] { return select(from, axis, below(size)); };
          const Tensor q = part(), k = below(4) == 0 ? q : part(), v = part();
          y = y + attention(q, k, v);
          if (below(3) == 0) y = y + attention(part(), q, v);
        }
      }
    }
    *also = pool[static_cast<std::size_t>(below(static_cast<std::int64_t>(pool.size())))];
    return y;
  }

  Tensors gradients(const Tensor& x, bool places, bool wanted) const {
    Tape tape({.check_finite = !places});
    tape.watch(x);
    Tensor also;
    const Tensor y = (*this)(x, &also);
    spoil_memory();
    return wanted ? tape.gradient(y, {x, also}) : tape.gradient(y, {x});
  }
};

TEST(Places, GiveTheGradientsOfProgramsWithoutThem) {
  const Tensor x = numbers({2, 3, 3, 2, 4});
  for (std::uint32_t seed = 0; seed < 1500; ++seed)
    for (const bool wanted : {false, true}) {
      const Tensors expected = Program{seed}.gradients(x, false, wanted),
                    got = Program{seed}.gradients(x, true, wanted);
      for (std::size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], expected[i], "program " + std::to_string(seed) + (i > 0 ? ", a view" : ""));
    }
}

// As a layer projects to queries, keys and values.
struct Projection {
  Tensor x = numbers({2, 5, 8}), weight = numbers({24, 8}, 5);
  Tensor parts() const { return permute(reshape(linear(x, weight), {2, 5, 3, 2, 4}), {2, 0, 3, 1, 4}); }
};

TEST(Places, OfQueriesKeysAndValuesNeedNoMemoryOfTheirOwn) {
  const Projection p{numbers({2, 512, 64}, 0, f32), numbers({192, 64}, 5, f32)};
  const int threads = num_threads();
  set_num_threads(2);  // each has blocks of its own
  const auto peak = [&](bool places) {
    Tape tape({.check_finite = !places});
    tape.watch(p.x);
    const Tensor parts = permute(reshape(linear(p.x, p.weight), {2, 512, 3, 4, 16}), {2, 0, 3, 1, 4});
    const Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const Tensor dy = numbers(y.shape(), 1, f32);
    const std::int64_t before = memory_stats().live_bytes;
    reset_peak_memory();
    const Tensors dx = tape.gradient(y, dy, {p.x});
    return memory_stats().peak_bytes - before;
  };
  const std::int64_t of_three = 2 * 512 * 192 * 4;
  EXPECT_LT(peak(true), of_three * 2);  // the gradient of all three, and that of x
  EXPECT_GT(peak(false), of_three * 3);
  set_num_threads(threads);
}

TEST(Places, AreFilledWithZerosBesideWhatIsUsed) {
  const Projection p;
  for (const std::int64_t unused : {0, 1, 2}) {
    const auto gradient = [&](bool places) {
      Tape tape({.check_finite = !places});
      tape.watch(p.weight);
      const Tensor parts = p.parts(), other = numbers({2, 2, 5, 4}, 9);
      const auto part = [&](std::int64_t i) { return i == unused ? other : parts[i]; };
      const Tensor y = attention(part(0), part(1), part(2));
      spoil_memory();
      return tape.gradient(y, {p.weight})[0];
    };
    expect_close(gradient(true), gradient(false), "without part " + std::to_string(unused));
  }
}

TEST(Places, MayHaveGapsBetweenAllElements) {
  const Tensor x = numbers({3, 7, 4, 2});
  const auto gradient = [&](bool places) {
    Tape tape({.check_finite = !places});
    tape.watch(x);
    const auto sequences = [&](std::int64_t i) { return Ragged::from_lengths(transpose(x[i]), {3, 4}); };
    const Tensor y = scaled_dot_product_attention(sequences(0), sequences(1), sequences(2)).values();
    spoil_memory();
    return tape.gradient(y, numbers(y.shape(), 2), {x})[0];
  };
  expect_close(gradient(true), gradient(false), "sequences");
}

TEST(Places, MayBeThoseOfManyViewsOfViews) {
  const Tensor x = numbers({4, 4});
  const auto gradient = [&](int views, bool narrowed) {
    Tape tape;
    tape.watch(x);
    Tensor a = x * 1.0;
    for (int i = 0; i < views; ++i) a = narrowed ? narrow(a, 0, 0, 4) : transpose(a);
    const Tensor y = scaled_dot_product_attention(a, a, a);
    spoil_memory();
    return tape.gradient(y, numbers({4, 4}, 7), {x})[0];
  };
  for (const bool narrowed : {false, true})
    for (const int views : {6, 8, 10, 40, 100000})
      expect_close(gradient(views, narrowed), gradient(0, narrowed), std::to_string(views) + " views");
}

TEST(Places, AreTakenAgainInASecondSweep) {
  const Projection p;
  Tape tape;
  tape.watch(p.x);
  const Tensor parts = p.parts(), y = attention(parts[0], parts[1], parts[2]);
  const Tensor first = tape.gradient(y, {p.x}, {.keep = true})[0];
  spoil_memory();
  EXPECT_EQ(tape.gradient(y, {p.x})[0].to_vector<double>(), first.to_vector<double>());
}

TEST(Places, AreNotTakenWhereAnOuterTapeRecords) {
  const Projection p;
  Tape outer;
  outer.watch(p.x);
  Tensor dx;
  {
    Tape inner;
    inner.watch(p.x);
    const Tensor parts = p.parts();
    dx = inner.gradient(attention(parts[0], parts[1], parts[2]), {p.x})[0];
  }
  const Tensor second = outer.gradient(sum(dx * dx), {p.x})[0];
  double norm = 0;
  for (const double number : second.to_vector<double>()) norm += number * number;
  EXPECT_TRUE(std::isfinite(norm) && norm > 0);
}

}  // namespace
}  // namespace reel::test
