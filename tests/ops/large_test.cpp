// Sizes that most tests leave out: more than 2^31 elements, every number of axes, and views whose elements share memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <functional>

#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/index.h"
#include "reel/ops/matmul.h"
#include "reel/ops/order.h"
#include "reel/ops/padding.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/sequence.h"
#include "reel/ops/softmax.h"
#include "reel/ops/sparse.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/reference.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 5;

/// Zeros of memory that is there only where it is written: all the rest is one page.
Tensor zeros_on_one_page(const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.size()) * size_of(dtype);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return from_memory(
      memory, shape, dtype,
      [](void* context) {
        const auto* area = static_cast<std::pair<void*, std::size_t>*>(context);
        munmap(area->first, area->second);
        delete area;
      },
      new std::pair<void*, std::size_t>(memory, bytes));
}

class ManyElements : public testing::Test {
 protected:
  // One element behind 2^31 is not 0.
  static constexpr std::int64_t kPlace = kMany - 2;
  ManyElements() : x_(zeros_on_one_page({kMany}, u8)) { narrow(x_, 0, kPlace, 1).fill_(7); }
  Tensor x_;
};

TEST_F(ManyElements, AreReachedByViews) {
  EXPECT_EQ(x_[kPlace].item(), 7);
  EXPECT_EQ(x_[-2].item(), 7);
  EXPECT_EQ(select(x_, 0, kPlace).item(), 7);
  EXPECT_THAT(narrow(x_, 0, kMany - 4, 4).to_vector<int>(), ElementsAre(0, 0, 7, 0));
  EXPECT_THAT(slice(x_, 0, -3, kMany + 7).to_vector<int>(), ElementsAre(0, 7, 0));
  EXPECT_THAT(slice(x_, 0, 0, kMany, kPlace).to_vector<int>(), ElementsAre(0, 7));
  EXPECT_EQ(slice(x_, 0, 0, kMany, 2).size(), kMany / 2 + 1);
  const Tensor parts = split(x_, {kPlace, 2})[1];
  EXPECT_THAT(parts.to_vector<int>(), ElementsAre(7, 0));
  EXPECT_EQ(reshape(narrow(x_, 0, 0, kMany - 1), {2, -1}).shape(), (Shape{2, kMany / 2}));
}

TEST_F(ManyElements, AreReachedByIndex) {
  const Tensor index = from_vector(std::vector<std::int64_t>{kPlace, 3, kMany - 1});
  EXPECT_THAT(gather(x_, 0, index).to_vector<int>(), ElementsAre(7, 0, 0));
  EXPECT_THAT(index_select(x_, 0, index).to_vector<int>(), ElementsAre(7, 0, 0));
  EXPECT_THAT(embedding(unsqueeze(x_, 1), index).to_vector<int>(), ElementsAre(7, 0, 0));
  EXPECT_THROW_WITH(gather(x_, 0, full({1}, kMany, {.dtype = i64})), IndexError, "got 2147483653 at position 0");
  // The last index of an axis that is too long for 32 bits, from an axis in the middle.
  const Tensor middle = reshape(narrow(x_, 0, 0, kMany - 1), {1, kMany / 2, 2});
  EXPECT_THAT(index_select(middle, 1, full({1}, kPlace / 2, {.dtype = i64})).to_vector<int>(), ElementsAre(0, 7));
}

TEST_F(ManyElements, AreSearched) {
  EXPECT_EQ(argmax(x_, 0).item<std::int64_t>(), kPlace);
  EXPECT_EQ(max(x_).item(), 7);
}

TEST_F(ManyElements, TakeWritesAtTheirPlace) {
  Tensor end = narrow(x_, 0, kMany - 1, 1);
  end.copy_(full({1}, 9));
  EXPECT_EQ(x_[-1].item(), 9);
  EXPECT_EQ(x_[kMany - 1 - (std::int64_t{1} << 31)].item(), 0);
  EXPECT_EQ(x_[4].item(), 0);
}

TEST(ManyRows, AreReachedThroughSequencesAndTables) {
  const Tensor x = zeros_on_one_page({kMany}, f32);
  constexpr std::int64_t kPlace = kMany - 2;
  narrow(x, 0, kPlace, 1).fill_(7);
  const Ragged rows = Ragged::from_lengths(x, {5, 0, kMany - 5});
  EXPECT_THAT(sum(rows).to_vector<double>(), ElementsAre(0, 0, 7));
  EXPECT_THAT(argmax(rows).to_vector<std::int64_t>(), ElementsAre(0, -1, kPlace - 5));
  EXPECT_THAT(slice(rows, -3, kMany).values().to_vector<double>(), ElementsAre(0, 0, 0, 0, 7, 0));
  EXPECT_THAT(reduce_last(rows).to_vector<double>(), ElementsAre(0, 0, 0));
  EXPECT_THAT(take(rows, {0, 1}).offsets().lengths(), ElementsAre(5, 0));
  const Tensor table = unsqueeze(x, 1), index = from_vector(std::vector<std::int64_t>{3, kPlace, kPlace}, {3});
  const Ragged bags = Ragged::from_lengths(index, {1, 2});
  EXPECT_THAT(embedding_bag(table, bags).to_vector<double>(), ElementsAre(0, 14));
  EXPECT_THAT(gather_add(table, reshape(index, {1, 3})).to_vector<double>(), ElementsAre(14));
  EXPECT_THAT(spmm(bags, Ragged::from_lengths(tensor({1, 2, 3}), {1, 2}), table).to_vector<double>(),
              ElementsAre(0, 35));
}

// One element repeated by a stride of 0.
TEST(RepeatedElements, AreSummedBeyond31Bits) {
  const Tensor x = expand(full({1}, 0.5, {.dtype = f64}), {kMany});
  EXPECT_EQ(sum(x).item(), 0.5 * static_cast<double>(kMany));
  const Tensor rows = expand(tensor({1, 2}, {2, 1}), {2, kMany / 2});
  EXPECT_THAT(mean(rows, 1).to_vector<double>(), ElementsAre(1, 2));
}

TEST(RepeatedElements, AreMaximaInRowsAndColumns) {
  const Tensor x = expand(tensor({1, 5, 3}, {3, 1}), {3, kMany / 3 + 1});
  EXPECT_EQ(max(x).item(), 5);
  EXPECT_THAT(min(x, 1).to_vector<double>(), ElementsAre(1, 5, 3));
}

TEST(RepeatedElements, HaveTheSumOfTheirGradients) {
  const Tensor x = full({1}, 2, {.dtype = f64});
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(expand(x, {kMany}));
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), static_cast<double>(kMany));
}

// --- every number of axes ----------------------------------------------------------------------------------------------

/// Shapes of 0 to 8 axes, with sizes of 1 between larger ones.
std::vector<Shape> every_rank() {
  const std::int64_t sizes[kMaxRank] = {2, 3, 1, 2, 3, 1, 2, 2};
  std::vector<Shape> shapes;
  for (int rank = 0; rank <= kMaxRank; ++rank) shapes.push_back(Shape::of(sizes, rank));
  return shapes;
}

Shape backwards(int rank) {
  Shape order;
  for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  return order;
}

Tensor numbers(const Shape& shape) {
  manual_seed(shape.size());
  return randn(shape, {.dtype = f64});
}

Ref ref_of(const Tensor& x) { return {x.shape(), x.to_vector<double>()}; }

// Results that no cache holds are written past all of them.
TEST(ResultsPastTheCaches, AreThoseOfPieces) {
  constexpr std::int64_t kSize = 10'000'019, kPiece = 1 << 20;  // 40 MB
  const Tensor all = arange(kSize + 1) * 3e-6 - 15.0, x = narrow(all, 0, 1, kSize), dy = 3.0 - x * x;
  const auto gradient = [](Tensor (*f)(const Tensor&, SourceLocation)) {
    return [f](const Tensor& x, const Tensor& dy) {
      Tape tape;
      tape.watch(x);
      return tape.gradient(f(x, SourceLocation{}), dy, {x})[0];
    };
  };
  const std::vector<std::function<Tensor(const Tensor&, const Tensor&)>> functions = {
      [](const Tensor& a, const Tensor&) { return gelu(a); },
      [](const Tensor& a, const Tensor&) { return logsigmoid(a); },
      [](const Tensor& a, const Tensor&) { return dish(a); },
      [](const Tensor& a, const Tensor&) { return exp(a); },
      [](const Tensor& a, const Tensor& b) { return a + b; },
      [](const Tensor& a, const Tensor&) { return 1.5 - a; },
      [](const Tensor& a, const Tensor& b) { return a < b; },
      gradient(gelu),
      gradient(silu),
      gradient(tanh),
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const Tensor whole = functions[i](x, dy);
    for (std::int64_t begin = 0; begin < kSize; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, kSize - begin);
      const Tensor piece = functions[i](narrow(x, 0, begin, count), narrow(dy, 0, begin, count));
      ASSERT_TRUE(same_bits(piece, narrow(whole, 0, begin, count))) << i << " from " << begin;
    }
  }
}

TEST(EveryRank, ElementwiseOpsFollowTheIndex) {
  for (const Shape& shape : every_rank()) {
    // Both sides in orders of their own, the second without the sizes of every other axis.
    Shape reversed, thin;
    for (int i = shape.rank() - 1; i >= 0; --i) reversed.push_back(shape[i]);
    for (int i = 0; i < shape.rank(); ++i) thin.push_back(i % 2 == 0 ? 1 : shape[i]);
    const Tensor a = permute(numbers(reversed), backwards(shape.rank())), b = numbers(thin);
    const Ref x = ref_of(a), y = ref_of(b);
    const Ref expected = filled(shape, [&](const auto& i) { return at(x, i) * broadcast_at(y, i); });
    EXPECT_EQ((a * b).to_vector<double>(), expected.v) << shape.str();
    EXPECT_EQ(contiguous(a).to_vector<double>(), x.v) << shape.str();
    EXPECT_EQ((-a).to_vector<double>(), filled(shape, [&](const auto& i) { return -at(x, i); }).v) << shape.str();
  }
}

TEST(EveryRank, ReductionsLeaveOutAnyAxes) {
  for (const Shape& shape : every_rank()) {
    Shape reversed;
    for (int i = shape.rank() - 1; i >= 0; --i) reversed.push_back(shape[i]);
    const Tensor x = permute(numbers(reversed), backwards(shape.rank()));
    const Ref values = ref_of(x);
    for (std::uint32_t axes = 0; axes < 1u << shape.rank(); ++axes) {
      Shape kept = shape;
      for (int i = 0; i < shape.rank(); ++i)
        if ((axes >> i & 1) != 0) kept[i] = 1;
      std::vector<double> expected(static_cast<std::size_t>(kept.size()));
      for (std::int64_t k = 0; k < shape.size(); ++k) {
        std::vector<std::int64_t> i = index_of(k, shape);
        for (int d = 0; d < shape.rank(); ++d)
          if (kept[d] == 1) i[static_cast<std::size_t>(d)] = 0;
        expected[static_cast<std::size_t>(flat_of(i, kept))] += values.v[static_cast<std::size_t>(k)];
      }
      const Tensor y = detail::sum_over(x, axes);
      ASSERT_EQ(y.shape(), kept);
      const std::vector<double> got = y.to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12) << shape.str();
    }
  }
}

TEST(EveryRank, OpsAlongAnAxisWorkAlongEach) {
  for (const Shape& shape : every_rank()) {
    const Tensor x = numbers(shape);
    const Ref values = ref_of(x);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const std::int64_t n = shape[axis];
      const auto moved = [&](const std::function<std::int64_t(std::int64_t)>& from, std::int64_t size) {
        Shape to = shape;
        to[axis] = size;
        return filled(to,
                      [&](auto i) {
                        i[static_cast<std::size_t>(axis)] = from(i[static_cast<std::size_t>(axis)]);
                        return at(values, i);
                      })
            .v;
      };
      EXPECT_EQ(flip(x, axis).to_vector<double>(), moved([&](auto i) { return n - 1 - i; }, n));
      EXPECT_EQ(roll(x, 1, axis).to_vector<double>(), moved([&](auto i) { return (i + n - 1) % n; }, n));
      EXPECT_EQ(concatenate({x, x}, axis).to_vector<double>(), moved([&](auto i) { return i % n; }, 2 * n));
      EXPECT_EQ(pad(x, {{axis, 1, 0}}, PaddingMode::replicate).to_vector<double>(),
                moved([&](auto i) { return std::max<std::int64_t>(i - 1, 0); }, n + 1));
      EXPECT_EQ(index_select(x, axis, full({2}, n - 1, {.dtype = i64})).to_vector<double>(),
                moved([&](auto) { return n - 1; }, 2));
      EXPECT_EQ(gather(x, axis, expand(full({}, n - 1, {.dtype = i64}), shape)).to_vector<double>(),
                moved([&](auto) { return n - 1; }, n));
      EXPECT_EQ(sort(x, axis).values.to_vector<double>(), gather(x, axis, argsort(x, axis)).to_vector<double>());
      const std::vector<double> ones_again = sum(softmax(x, axis), axis).to_vector<double>();
      for (const double one : ones_again) EXPECT_NEAR(one, 1, 1e-14);
    }
  }
}

TEST(EveryRank, NoOpMakesMoreThanEightAxes) {
  const Tensor x = ones({1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THROW_WITH(unsqueeze(x, 0), ShapeError, "unsqueeze", "8");
  EXPECT_THROW_WITH(stack({x, x}), ShapeError, "8");
  EXPECT_THROW_WITH(one_hot(zeros(x.shape(), {.dtype = i64}), 2), ShapeError, "one_hot", "8");
  EXPECT_THROW_WITH(embedding(ones({2, 1}), zeros(x.shape(), {.dtype = i64})), ShapeError, "embedding", "8");
}

// --- views whose elements share memory ------------------------------------------------------------------------------------

/// Windows of 3 of 6 numbers: [4, 3], of which neighbours share two places.
Tensor windows(const Tensor& x) {
  const std::int64_t strides[] = {1, 1};
  return detail::view(x, 0, {4, 3}, strides);
}

TEST(OverlappingViews, AreReadAsIfTheyWereCopies) {
  const Tensor x = windows(numbers({6}));
  const Tensor copy = contiguous(x);
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> ops = {
      {"add", [](const Tensor& x) { return x + x; }},
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"sum", [](const Tensor& x) { return sum(x, 0); }},
      {"max", [](const Tensor& x) { return max(x, 1); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }},
      {"matmul", [](const Tensor& x) { return matmul(x, transpose(x)); }},
      {"sort", [](const Tensor& x) { return sort(x).values; }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {{0, 1, 1}});
       }},
      {"flip", [](const Tensor& x) { return flip(x); }},
      {"embedding",
       [](const Tensor& x) {
         return embedding(x, tensor({3, 0}, {.dtype = i64}));
       }},
      {"index_select",
       [](const Tensor& x) {
         return index_select(x, 1, tensor({2, 0}, {.dtype = i64}));
       }},
      {"transposed", [](const Tensor& x) { return contiguous(transpose(x)); }},
  };
  for (const auto& [name, op] : ops) {
    Tape tape;
    tape.watch(x);
    tape.watch(copy);
    const Tensor y = op(x), expected = op(copy);
    EXPECT_EQ(y.to_vector<double>(), expected.to_vector<double>()) << name;
    EXPECT_EQ(tape.gradient(y, ones_like(y), {x}, {.keep = true})[0].to_vector<double>(),
              tape.gradient(expected, ones_like(expected), {copy})[0].to_vector<double>())
        << name;
  }
}

TEST(OverlappingViews, AreNotWritten) {
  Tensor x = zeros({6});
  Tensor shared = windows(x), repeated = expand(zeros({1}), {3});
  EXPECT_THROW_WITH(shared.fill_(1), ShapeError, "fill_", "[4, 3]", "place of its own", "large_test.cpp");
  EXPECT_THROW_WITH(shared.copy_(ones({4, 3})), ShapeError, "copy_", "place of its own", "large_test.cpp");
  EXPECT_THROW_WITH(repeated.copy_(ones({3})), ShapeError, "copy_", "[3]");
  EXPECT_EQ(sum(x).item(), 0);
  EXPECT_EQ(x.version(), 0u);
  // Views that only lie beside each other are written as ever, backwards and with gaps too.
  Tensor columns = slice(reshape(x, {2, 3}), 1, 0, 3, 2);
  transpose(columns).copy_(tensor({1, 2, 3, 4}, {2, 2}));
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(1, 0, 3, 2, 0, 4));
}

TEST(OverlappingViews, AreCopiedFromAsTheyWereBefore) {
  Tensor x = arange(6, {.dtype = f32});
  narrow(x, 0, 1, 5).copy_(narrow(x, 0, 0, 5));
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(0, 0, 1, 2, 3, 4));
  Tensor square = reshape(x, {2, 3});
  Tensor corner = narrow(square, 1, 0, 2);
  corner.copy_(transpose(contiguous(corner)));
  EXPECT_THAT(square.to_vector<double>(), ElementsAre(0, 2, 1, 0, 3, 4));
}

}  // namespace
}  // namespace reel::test
