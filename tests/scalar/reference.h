#pragma once

#include <cmath>
#include <vector>

namespace reel::scalar_test {

struct Range {
  double low, high;
};

/// What an op of REEL_UNARY_OPS should give, by the C library's long double functions (64 bits of significand).
struct Reference {
  const char* name;
  long double (*function)(long double);
  /// Bounds in ULP, of f32 and f64; 0: exact or rounded once (0.5).
  double bound_f32, bound_f64;
  /// Where to sample densely, in addition to all magnitudes.
  std::vector<Range> ranges;
  /// f64 outside of these has no such bound, see docs/numerics.md.
  double high_f64 = INFINITY;
  double low_f64 = -high_f64;
};

const std::vector<Reference>& references();
const Reference& reference_of(const char* name);

/// |got - want| in units of the last place of want as a T. Infinity if one is NaN or infinite and the other is not, but
/// for a rounding to infinity at the largest number.
template <class T>
double ulp_error(T got, long double want);

}  // namespace reel::scalar_test
