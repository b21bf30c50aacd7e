#include "reel/tests/scalar/reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace reel::scalar_test {
namespace {

using Real = long double;

Real sigmoid(Real x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
Real relu(Real x) { return x <= 0 ? 0 : x; }

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
      {"abs", [](Real x) { return std::fabs(x); }, 0, 0, {}},
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
