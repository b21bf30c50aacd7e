// The bounds that docs/numerics.md states for sums and products: measured against long double, and printed.

#include "reel/ops/arithmetic.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/numerics.h"

namespace reel::test {
namespace {

template <class T>
class NumericsOfSums : public Numerics<T> {};
TYPED_TEST_SUITE(NumericsOfSums, Types);

TYPED_TEST(NumericsOfSums, SumsAreWithinTheirBound) {
  using T = TypeParam;
  Worst<T> sums, means, columns, dots, norms, variances;
  // Terms of one sign and of both, of like and of very different sizes.
  for (const std::int64_t n : {1000, 100'000, 1 << 22})
    for (const double low : {-1.0, 0.0, 0.5}) {
      std::vector<T> x = this->numbers(n, low, 1), z = this->numbers(n, low, 1);
      for (std::size_t i = 0; i < x.size(); i += 7) x[i] *= T(1e3);
      Real sum = 0, sizes = 0, squares = 0, products = 0, product_sizes = 0, deviations = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const Real v = x[i], w = z[i];
        sum += v, sizes += std::fabs(v), squares += v * v, products += v * w, product_sizes += std::fabs(v * w);
      }
      const auto count = static_cast<Real>(n);
      for (const T v : x) deviations += (v - sum / count) * (v - sum / count);
      const Tensor v = this->tensor_of(x), w = this->tensor_of(z);
      sums.see(reel::sum(v), sum, sizes);
      columns.see(reel::sum(unsqueeze(v, 1), 0), sum, sizes);
      means.see(mean(v), sum / count, sizes / count);
      norms.see(norm(v), std::sqrt(squares), std::sqrt(squares));
      variances.see(var(v), deviations / (count - 1), deviations / (count - 1));
      dots.see(dot(v, w), products, product_sizes);
    }
  sums.expect_within("sum", 4);
  columns.expect_within("sum down columns", 4);
  means.expect_within("mean", 4);
  norms.expect_within("norm", 4);
  variances.expect_within("var", 8);
  dots.expect_within("dot", 4);
}

TYPED_TEST(NumericsOfSums, SumsOfEqualTermsAreWithinTheirBound) {
  // Their roundings go the same way for long: no other terms come as near to what the orders of the sums allow.
  using T = TypeParam;
  Worst<T> sums, columns, dots, sequences, wide, rows;
  for (const std::int64_t n : {33, 255, 1000, 4099, 100'000, 1 << 20})
    for (int k = 0; k < (n > 5000 ? 12 : 200); ++k) {
      const T value = static_cast<T>(1 + 0.00497 * k);
      const Real want = static_cast<Real>(n) * value;
      const Tensor x = full({n}, value, {.dtype = dtype_of<T>}), two = expand(unsqueeze(x, 1), {n, 2});
      sums.see(sum(x), want);
      columns.see(sum(two, 0), want);
      dots.see(dot(x, ones_like(x)), want);
      sequences.see(sum(Ragged::from_lengths(x, {n})), want);
      wide.see(sum(Ragged::from_lengths(two, {n})), want);
      rows.see(softmax(zeros({1, n}, {.dtype = dtype_of<T>}), 1), 1 / static_cast<Real>(n));
    }
  sums.expect_within("sum of equal terms", 8);
  columns.expect_within("... down columns", 8);
  dots.expect_within("dot", 8);
  sequences.expect_within("sum of a Ragged [total]", 8);
  wide.expect_within("... [total, 2]", 8);
  rows.expect_within("softmax of equal numbers", 2);
}

TYPED_TEST(NumericsOfSums, VariancesKeepTheirDigitsUnderALargeMean) {
  using T = TypeParam;
  Worst<T> variances, columns, deviations, sequences;
  for (const std::int64_t n : {3, 33, 1000, 1 << 18})
    for (const double center : {1.0, -1e4, sizeof(T) == 4 ? 1e6 : 1e14}) {
      // Around the last numbers are 1/16 and 1/64 apart.
      const std::vector<T> x = this->numbers(n, center - 0.5, center + 0.5);
      Real mean = 0, squares = 0;
      for (const T v : x) mean += (v - Real(center)) / static_cast<Real>(n);
      for (const T v : x) squares += (v - Real(center) - mean) * (v - Real(center) - mean);
      const Real want = squares / static_cast<Real>(n - 1);
      const Tensor v = this->tensor_of(x);
      variances.see(var(v), want);
      columns.see(var(unsqueeze(v, 1), 0), want);
      deviations.see(stddev(v), std::sqrt(want));
      const Tensor both = var(Ragged::from_lengths(v, {0, n}));
      EXPECT_EQ(both[0].item(), 0);
      sequences.see(both[1], want);
    }
  variances.expect_within("var under a mean", 8);
  columns.expect_within("var down columns", 8);
  deviations.expect_within("stddev", 8);
  sequences.expect_within("var of a Ragged", 8);
}

TYPED_TEST(NumericsOfSums, ProductsAreWithinTheBoundOfAChain) {
  using T = TypeParam;
  Worst<T> worst;
  for (const std::int64_t k : {16, 256, 4096}) {
    const std::int64_t m = 33, n = 65;
    const std::vector<T> a = this->numbers(m * k, -1, 1), b = this->numbers(n * k, -1, 1), c = this->numbers(n, -1, 1);
    const Tensor x = this->tensor_of(a, {m, k}), w = this->tensor_of(b, {n, k}), bias = this->tensor_of(c);
    const std::vector<T> product = matmul(x, transpose(w)).template to_vector<T>(),
                         affine = linear(x, w, bias).template to_vector<T>();
    const Real root = std::sqrt(static_cast<Real>(k));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        Real sum = 0, sizes = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const Real term = Real(a[static_cast<std::size_t>(i * k + p)]) * b[static_cast<std::size_t>(j * k + p)];
          sum += term, sizes += std::fabs(term);
        }
        const auto at = static_cast<std::size_t>(i * n + j);
        const Real offset = c[static_cast<std::size_t>(j)];
        worst.see(product[at], sum, sizes * root);
        worst.see(affine[at], sum + offset, (sizes + std::fabs(offset)) * root);
      }
  }
  worst.expect_within("matmul, linear, times root k", 0.5);
}

TYPED_TEST(NumericsOfSums, ProductsOfEqualTermsAreWithinTheBoundOfAChain) {
  // In theory k / 2, if all roundings went one way; of equal terms many do.
  using T = TypeParam;
  Worst<T> worst;
  for (const std::int64_t k : {16, 64, 256, 1024, 4096, 16384})
    for (int i = 0; i < 60; ++i) {
      const T value = static_cast<T>(1 + 0.0164 * i);
      const Tensor a = full({1, k}, value, {.dtype = dtype_of<T>}), b = ones({k, 1}, {.dtype = dtype_of<T>});
      const Real want = static_cast<Real>(k) * value;
      worst.see(matmul(a, b), want, want * static_cast<Real>(k));
    }
  worst.expect_within("matmul of equal terms, times k", 0.25);
}

}  // namespace
}  // namespace reel::test