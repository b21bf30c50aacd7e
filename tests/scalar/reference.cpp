#include "reel/tests/scalar/reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace reel::scalar_test {
namespace {

using Real = long double;

using Wide = __float128;  // only + - *: a product of two Reals is exact enough

constexpr Real kPi = 3.14159265358979323846264338327950288L;

Real sigmoid(Real x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
Real relu(Real x) { return x <= 0 ? 0 : x; }
Real sign(Real x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

Real exp_wide(Wide v) {
  const Real high = static_cast<Real>(v);
  return std::isfinite(high) ? std::exp(high) * (1 + static_cast<Real>(v - high)) : std::exp(high);
}

/// Phi(-a): erfc(a / sqrt(2)) / 2, corrected for the rounding of its argument.
Real upper_tail(Real a) {
  if (!std::isfinite(a)) return std::erfc(a) / 2;
  constexpr Real root_half = 0.707106781186547524400844362104849039L, rest = 2.95893034589846434e-20L;
  const Wide exact = static_cast<Wide>(a) * root_half + static_cast<Wide>(a) * rest;
  const Real z = static_cast<Real>(exact);
  const Real slope = -2 / std::sqrt(kPi) * std::exp(-z * z);
  return (std::erfc(z) + slope * static_cast<Real>(exact - z)) / 2;
}

Real gelu(Real x) {
  return x == 0 || x == -INFINITY ? 0 * std::fabs(x == 0 ? x : 0)
         : x < 0                  ? x * upper_tail(-x)
                                  : x * (1 - upper_tail(x));
}

Real gelu_tanh(Real x) {
  if (!std::isfinite(x)) return x < 0 ? 0 : x;
  constexpr Wide c1 = Wide(0x1.9884533d43651p+0) - Wide(0x1.cbc0d30ebfd15p-54);  // 2 sqrt(2 / pi)
  constexpr Wide c3 = Wide(0x1.2444f2a4d8b4bp-4) - Wide(0x1.6c843a29d1c70p-61);  // 0.044715 of it
  if (std::fabs(x) > 1e4L) return x < 0 ? 0 : x;
  const Wide v = x * (c1 + c3 * x * x);
  return x < 0 ? x * exp_wide(v) / (1 + exp_wide(v)) : x / (1 + exp_wide(-v));
}

Real silu(Real x) { return x == -INFINITY ? 0 : x * sigmoid(x); }
Real softplus(Real x) { return std::fmax(x, Real(0)) * (x == x) + std::log1p(std::exp(-std::fabs(x))); }

Real mish(Real x) {
  if (x == -INFINITY) return 0;
  const Real w = std::exp(x);
  return x > 40 ? x : x * (w * (w + 2) / (w * (w + 2) + 2));
}

Real dish(Real x) {
  const Real a = std::fabs(x), h = std::sqrt(1 + a * a);
  const Real tail = a > 1e15L ? 1 / (4 * a) : a / (2 * h * (h + a));
  return x <= 0 ? -tail : x - tail;
}

Real log1mexp(Real x) { return x > 0.7L ? std::log1p(-std::exp(-x)) : std::log(-std::expm1(-x)); }

Real logit(Real x) {
  if (x > 0.25L && x < 0.75L) return x < 0.5L ? -std::log1p((1 - 2 * x) / x) : std::log1p((2 * x - 1) / (1 - x));
  return std::log(x / (1 - x));
}

Real log_ndtr(Real x) {
  if (x >= 0) return std::log1p(-upper_tail(x));
  if (x > -30) return std::log(upper_tail(-x));
  const Real z = 1 / (x * x);  // the asymptotic series of Mills' ratio
  const Real series = 1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z * (1 - 9 * z * (1 - 11 * z)))));
  return -x * x / 2 - std::log(-x * std::sqrt(2 * kPi)) + std::log(series);
}

/// Upwards to x >= 30, then the asymptotic series; near the zero by its Taylor series, below 0 by reflection.
Real digamma(Real x) {
  if (std::isnan(x) || x == -INFINITY) return NAN;
  if (x == 0) return std::signbit(x) ? INFINITY : -INFINITY;
  if (x < 0) {
    const Real r = x - std::nearbyint(x);
    return r == 0 ? NAN : digamma(1 - x) - kPi / std::tan(kPi * r);
  }
  constexpr Real zero = 1.46163214496836234126265954232572132846819620400644L;
  constexpr Real rest = -1.8257096315963484215e-20L;
  const Real d = (x - zero) - rest;
  if (std::fabs(d) < 0.03L) {
    return d * (0.9676722454476211704274448L +
                d * (-0.4427631689835921060928653L +
                     d * (0.2584997609556510106244014L +
                          d * (-0.1639427054424065275042513L +
                               d * (0.1078240506912623657571829L +
                                    d * (-0.07219956125645471092612178L +
                                         d * (0.04880428816414310722509253L +
                                              d * (-0.0331611264748473592922584L +
                                                   d * (0.02259764823221810465962483L +
                                                        d * (-0.01542476590494895913880032L +
                                                             d * (0.01053879161661217538812405L +
                                                                  d * (-0.007204534386356868240970474L +
                                                                       d * (0.004926781395729853446354266L)))))))))))));
  }
  Real sum = 0;
  for (; x < 30; x += 1) sum -= 1 / x;
  const Real z = 1 / (x * x);
  const Real series =
      z * (1 / 12.0L -
           z * (1 / 120.0L - z * (1 / 252.0L - z * (1 / 240.0L - z * (1 / 132.0L - z * (691 / 32760.0L - z / 12))))));
  return sum + (std::log(x) - 1 / (2 * x) - series);
}

}  // namespace

const std::vector<Reference>& references() {
  static const std::vector<Reference> all = {
      {"neg", [](Real x) { return -x; }, 0, 0, {}},
      {"exp", [](Real x) { return std::exp(x); }, 2, 4, {{-1, 1}, {-110, 90}, {-750, 710}}},
      {"log", [](Real x) { return std::log(x); }, 2, 4, {{0.5, 2}, {0.99, 1.01}, {0, 100}}},
      {"tanh", [](Real x) { return std::tanh(x); }, 2, 4, {{-1, 1}, {-10, 10}, {-25, 25}}},
      {"sigmoid", sigmoid, 2, 4, {{-5, 5}, {-110, 20}, {-750, 40}}},
      {"relu", relu, 0, 0, {}},
      {"sqrt", [](Real x) { return std::sqrt(x); }, 0.5, 0.5, {{0, 4}}},
      {"square", [](Real x) { return x * x; }, 0.5, 0.5, {{-2, 2}}},
      {"cube", [](Real x) { return x * x * x; }, 2, 2, {{-2, 2}}},
      {"abs", [](Real x) { return std::fabs(x); }, 0, 0, {}},
      {"expm1", [](Real x) { return std::expm1(x); }, 2, 4, {{-1, 1}, {-50, 90}, {-50, 710}}},
      {"log1p", [](Real x) { return std::log1p(x); }, 2, 4, {{-1, 1}, {-0.01, 0.01}, {1, 100}}},
      {"rsqrt", [](Real x) { return 1 / std::sqrt(x); }, 2, 2, {{0, 4}}},
      {"sin", [](Real x) { return std::sin(x); }, 2, 4, {{-4, 4}, {-1e3, 1e3}, {-1e8, 1e8}, {-1e17, 1e17}}},
      {"cos", [](Real x) { return std::cos(x); }, 2, 4, {{-4, 4}, {-1e3, 1e3}, {-1e8, 1e8}, {-1e17, 1e17}}},
      {"erf", [](Real x) { return std::erf(x); }, 2, 4, {{-1, 1}, {-6, 6}}},
      {"erfc", [](Real x) { return std::erfc(x); }, 2, 4, {{-1, 2}, {-6, 11}, {0, 28}}},
      {"lgamma", [](Real x) { return std::lgamma(x); }, 2, 4, {{0, 3}, {-10, 10}, {0, 100}}, INFINITY, 0},
      {"digamma", digamma, 2, 4, {{0, 3}, {-10, 10}, {0, 100}}, INFINITY, 0},
      {"sign", sign, 0, 0, {}},
      {"gelu", gelu, 2, 4, {{-1, 1}, {-15, 6}, {-39, 0}}},
      {"gelu_tanh", gelu_tanh, 2, 4, {{-1, 1}, {-11, 6}, {-22, 0}}},
      {"silu", silu, 2, 4, {{-2, 2}, {-110, 20}, {-760, 0}}},
      {"mish", mish, 2, 4, {{-2, 2}, {-110, 20}, {-760, 0}}},
      {"softplus", softplus, 2, 4, {{-2, 2}, {-110, 20}, {-760, 0}}},
      {"logsigmoid", [](Real x) { return -softplus(-x); }, 2, 4, {{-2, 2}, {-20, 110}, {0, 760}}},
      {"hard_sigmoid",
       [](Real x) { return std::fmin(std::fmax((x + 3) / 6, Real(0)), Real(1)) + 0 * (x != x ? x : 0); },
       2,
       2,
       {{-4, 4}}},
      {"hard_tanh", [](Real x) { return x < -1  ? -1
                                        : x > 1 ? 1
                                                : x; }, 0, 0, {{-2, 2}}},
      {"hard_swish", [](Real x) { return x <= -3 ? 0 : x * (x < 3 ? (x + 3) / 6 : 1); }, 2, 4, {{-4, 4}}},
      {"dish", dish, 2, 4, {{-2, 2}, {-100, 100}}},
      {"log1mexp", log1mexp, 2, 4, {{0, 2}, {0, 110}, {0, 750}}},
      {"logit", logit, 2, 4, {{0, 1}, {0.49, 0.51}}},
      {"log_ndtr", log_ndtr, 2, 4, {{-3, 3}, {-40, 10}, {0, 39}}},
  };
  return all;
}

const Reference& reference_of(const char* name) {
  for (const Reference& reference : references()) {
    if (std::strcmp(reference.name, name) == 0) return reference;
  }
  throw std::runtime_error(std::string(name) + " has no row in tests/scalar/reference.cpp");
}

template <class T>
double ulp_error(T got, long double want) {
  using Limits = std::numeric_limits<T>;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : infinity;
  if (std::isinf(want)) return got == static_cast<T>(want) ? 0 : infinity;
  if (std::isinf(got))
    return std::fabs(want) >= Limits::max() && std::signbit(want) == std::signbit(got) ? 0.5 : infinity;
  int exponent = 0;
  std::frexp(want, &exponent);
  if (exponent < Limits::min_exponent) exponent = Limits::min_exponent;  // denormals share one unit
  return static_cast<double>(std::ldexp(std::fabs(got - want), Limits::digits - exponent));
}
template double ulp_error(float, long double);
template double ulp_error(double, long double);

}  // namespace reel::scalar_test
