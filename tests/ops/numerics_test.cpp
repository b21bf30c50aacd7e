// The bounds that docs/numerics.md states for ops made of the scalar functions: measured against long double at a million points
// and more for each, and printed. The scalar functions themselves: tests/scalar/accuracy_test.cpp.

#include "reel/tests/ops/numerics.h"

#include <bit>
#include <type_traits>

#include "reel/ops/arithmetic.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/gated.h"
#include "reel/ops/ragged.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

TYPED_TEST_SUITE(Numerics, Types);

TYPED_TEST(Numerics, ArithmeticIsCorrectlyRounded) {
  using T = TypeParam;
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::vector<T> a, b;
  for (std::int64_t i = 0; i < kMany;
       ++i) {  // all signs, exponents, NaN and infinities; half of the pairs of like sizes
    const auto bits = static_cast<Bits>(this->random_());
    a.push_back(std::bit_cast<T>(bits));
    b.push_back(std::bit_cast<T>(static_cast<Bits>(i % 2 == 0 ? this->random_() : bits ^ (this->random_() >> 40))));
  }
  const Tensor x = this->tensor_of(a), y = this->tensor_of(b);
  const auto check = [&](const char* op, const Tensor& result, auto f) {
    const std::vector<T> got = result.template to_vector<T>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const T want = f(a[i], b[i]);
      ASSERT_TRUE(std::bit_cast<Bits>(got[i]) == std::bit_cast<Bits>(want) || (std::isnan(got[i]) && std::isnan(want)))
          << a[i] << " " << op << " " << b[i] << " = " << got[i];
    }
  };
  check("+", x + y, [](T p, T q) { return p + q; });
  check("-", x - y, [](T p, T q) { return p - q; });
  check("*", x * y, [](T p, T q) { return p * q; });
  check("/", x / y, [](T p, T q) { return p / q; });
}

TYPED_TEST(Numerics, SoftmaxAndItsLogarithm) {
  using T = TypeParam;
  Worst<T> share, logarithm, total;
  for (const double spread : {1.0, 10.0, 80.0, 1e4})
    for (const std::int64_t columns : {2, 10, 1000, 50000}) {
      const std::int64_t rows = std::max<std::int64_t>(kMany / 8 / columns, 1);
      const std::vector<T> x = this->numbers(rows * columns, -spread, spread);
      const Tensor logits = this->tensor_of(x, {rows, columns});
      const std::vector<T> p = softmax(logits).template to_vector<T>(),
                           log_p = log_softmax(logits).template to_vector<T>(),
                           sums = logsumexp(logits, -1).template to_vector<T>();
      for (std::int64_t r = 0; r < rows; ++r) {
        const T* const row = x.data() + r * columns;
        Real largest = -INFINITY, sum = 0;
        for (std::int64_t c = 0; c < columns; ++c) largest = std::max<Real>(largest, row[c]);
        for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - largest);
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto at = static_cast<std::size_t>(r * columns + c);
          const Real off = row[c] - largest, want = std::exp(off) / sum;
          constexpr Real kSmallest = std::numeric_limits<T>::min();
          if (want < 2 * kSmallest) EXPECT_LE(p[at], 4 * kSmallest);  // what would be denormal may come out as 0
          else share.see(p[at], want, want * (1 - off));              // the exponent off is rounded
          logarithm.see(log_p[at], off - std::log(sum), 1 - off + std::log(sum));
        }
        const Real count = std::log(static_cast<Real>(columns));
        total.see(sums[static_cast<std::size_t>(r)], largest + std::log(sum), 1 + std::fabs(largest) + count);
      }
    }
  // Equal numbers, whose sum is the least exact.
  for (const std::int64_t n : {1000, 1 << 16, 1 << 20})
    for (int k = 0; k < 8; ++k) {
      const T value = static_cast<T>(0.13 * k - 0.5);
      const Real count = std::log(static_cast<Real>(n));
      const Tensor x = full({n}, value, {.dtype = dtype_of<T>});
      total.see(logsumexp(x).template item<T>(), value + count, 1 + std::fabs(value) + count);
      total.see(select(logsumexp(Ragged::from_lengths(x, {n})), 0, 0).template item<T>(), value + count,
                1 + std::fabs(value) + count);
      logarithm.see(select(log_softmax(x), 0, 0).template item<T>(), -count, 1 + count);
    }
  share.expect_within("softmax", 4);
  logarithm.expect_within("log_softmax", 4);
  total.expect_within("logsumexp", 2);
}

TYPED_TEST(Numerics, LogaddexpIsRelativeToItsLargerTerm) {
  using T = TypeParam;
  Worst<T> worst;
  for (const double spread : {1.0, 30.0, 1e4}) {
    const std::vector<T> a = this->numbers(kMany, -spread, spread), b = this->numbers(kMany, -spread, spread);
    const std::vector<T> y = logaddexp(this->tensor_of(a), this->tensor_of(b)).template to_vector<T>();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Real p = a[i], q = b[i], want = std::max(p, q) + std::log1p(std::exp(-std::fabs(p - q)));
      worst.see(y[i], want, 1 + std::fabs(std::max(p, q)));
    }
  }
  worst.expect_within("logaddexp", 2);
}

TYPED_TEST(Numerics, Elu) {
  using T = TypeParam;
  Worst<T> worst;
  for (const double low : {-20.0, -1.0})
    for (const double alpha : {1.0, 1.5, 1.618, 1.996}) {
      const std::vector<T> x = this->numbers(kMany / 4, low, -low / 10);
      const std::vector<T> y = elu(this->tensor_of(x), alpha).template to_vector<T>();
      for (std::size_t i = 0; i < y.size(); ++i)
        worst.see_ulp(y[i], x[i] > 0 ? Real(x[i]) : Real(static_cast<T>(alpha)) * std::expm1(Real(x[i])));
    }
  worst.expect_within("elu", sizeof(T) == 4 ? 2 : 4);
}

/// a f(b) in x of rows a | b, half of the a such that the product is just below a power of two, where a relative error is most
/// ULP. b goes down to where f(b) is denormal.
TYPED_TEST(Numerics, GatesAreAsExactAsTheirFunctions) {
  using T = TypeParam;
  constexpr bool single = sizeof(T) == 4;
  constexpr std::int64_t width = 1 << 9;
  const auto gate = [&](const char* name, Tensor (*op)(const Tensor&, SourceLocation), double lowest, auto f) {
    Worst<T> worst;
    for (const double low : {-1.0, -8.0, lowest}) {
      std::vector<T> x = this->numbers(kMany, low, -low);
      std::vector<Real> value(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (i / width % 2 == 0) continue;
        value[i] = f(Real(x[i]));
        int exponent = 0;
        const Real part = std::frexp(std::fabs(value[i]), &exponent);
        if (i % 2 == 0) x[i - width] = static_cast<T>(1 / part) - std::numeric_limits<T>::epsilon() * T(1 + i % 64);
      }
      const std::vector<T> y =
          op(this->tensor_of(x, {kMany / (2 * width), 2 * width}), SourceLocation::current()).template to_vector<T>();
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t at = i / width * 2 * width + i % width;
        worst.see_ulp(y[i], x[at] * value[at + width]);
      }
    }
    worst.expect_within(name, single ? 2 : 4);
  };
  const auto sigmoid_of = [](Real v) { return 1 / (1 + std::exp(-v)); };
  gate("glu", glu, single ? -87 : -700, sigmoid_of);
  gate("geglu", geglu, single ? -12.5 : -37, [](Real v) {
    constexpr Real root_half = 0.707106781186547524400844362104849039L, rest = 2.95893034589846434e-20L;
    const Real z = v * root_half;  // what it lost in rounding matters far out
    const Real lost = std::fma(v, root_half, -z) + v * rest;
    return v * (std::erfc(-z) + 1.12837916709551257389615890312154517L * std::exp(-z * z) * lost) / 2;
  });
  gate("swiglu", swiglu, single ? -87 : -700, [&](Real v) { return v * sigmoid_of(v); });
}

/// x^n by squaring: faster than powl, and exact to its last digits.
Real power(Real x, int n) {
  Real result = 1;
  for (; n > 0; n /= 2, x *= x)
    if (n % 2 == 1) result *= x;
  return result;
}

/// By recurrence to where the Euler-Maclaurin formula is exact to long double. n! and its quotients fit there.
Real polygamma_of(int n, Real x) {
  constexpr Real bernoulli[] = {1.0L / 6,  -1.0L / 30,     1.0L / 42, -1.0L / 30,
                                5.0L / 66, -691.0L / 2730, 7.0L / 6,  -3617.0L / 510};
  const int terms = 30 + n;
  const Real z = x + terms, r = 1 / z;
  Real factor = n + 1, series = 1.0L / n + r / 2, power_of_r = r * r, factorial = 2;
  for (int j = 1; j <= 8; ++j) {
    series += bernoulli[j - 1] * factor / factorial * power_of_r;
    factor *= (n + 2.0L * j) * (n + 2 * j + 1);
    factorial *= (2.0L * j + 1) * (2 * j + 2);
    power_of_r *= r * r;
  }
  Real sum = power(r, n) * series;
  for (int k = terms - 1; k >= 0; --k) sum += power(1 / (x + k), n + 1);
  return (n % 2 == 0 ? -1 : 1) * std::tgamma(n + Real(1)) * sum;
}

TEST(Polygamma, OfAnyOrderIsWithinItsBoundAsFarAsItIsInRange) {
  struct Orders {
    int n;
    double low, high;
    std::int64_t count;
  };
  std::mt19937_64 random(4);
  for (const Orders& o : {Orders{1, 0, 50, kMany / 2},
                          {2, 0, 50, kMany / 2},
                          {3, 0, 1000, 1 << 16},
                          {20, 0.1, 100, 1 << 12},
                          {100, 0.5, 3000, 1 << 11},
                          {169, 1, 5000, 1 << 10},
                          {170, 1, 5000, 1 << 10},
                          {171, 2, 5000, 1 << 10},
                          {200, 3, 5000, 1 << 10},
                          {300, 10, 5000, 1 << 10}}) {
    std::uniform_real_distribution<double> number(o.low, o.high);
    std::vector<double> x;
    for (std::int64_t i = 0; i < o.count; ++i) x.push_back(number(random));
    const std::vector<double> y = polygamma(o.n, from_vector(x)).to_vector<double>();
    double worst = 0, where = 0;
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Real want = polygamma_of(o.n, x[i]);
      if (std::fabs(want) > std::numeric_limits<double>::max() ||
          std::fabs(want) < std::numeric_limits<double>::min()) {
        EXPECT_TRUE(std::fabs(want) > 1 ? std::isinf(y[i]) : std::fabs(y[i]) < 3e-308) << o.n << ": " << x[i];
        continue;
      }
      ++seen;
      const double error = static_cast<double>(std::fabs(y[i] / want - 1) / std::numeric_limits<double>::epsilon());
      if (!(error <= worst)) worst = error, where = x[i];
    }
    std::printf("polygamma %3d f64  %.2f epsilon at %g (%lld of %lld in range)\n", o.n, worst, where,
                static_cast<long long>(seen), static_cast<long long>(o.count));
    EXPECT_LE(worst, 10) << o.n;
    EXPECT_GT(seen, o.count / 8) << o.n;
  }
}

}  // namespace
}  // namespace reel::test
