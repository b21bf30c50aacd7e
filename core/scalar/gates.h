#pragma once

#include "reel/core/scalar/unary.h"

/// a f(b) of gated units. In f32 the roundings of f and of the product would add up to 3 ULP: there a comes in before the last
/// steps of f, which take all roundings into account. `exact` is that, and no finite number where its steps meet an infinity;
/// `forward` is a times a rougher f(b) there.
namespace reel::scalar {

/// sigmoid(x) = unit / (d + rest) with d + rest = unit (1 + e^-x), for c sigmoid(x).
struct SigmoidQuotient {
  float d, rest, unit, reciprocal;

  REEL_SCALAR explicit SigmoidQuotient(float x) {
    const float above = x < -132.7f ? lowest : x;  // between the two `power` alone is infinite already, and d NaN
    const ReducedExponent<float> e = reduce_exponent(-at_most(above, 87.0f));
    const bool far = x < -44.0f;
    unit = far ? 0x1p-64f : 1.0f;
    const float power = power_of_two<float>(e.bits - (far ? 64u : 0u));
    const float part = power * expm1_polynomial(e.r), whole = power + unit;
    d = whole + part;
    rest = ((whole - d) + part) + ((unit - whole) + power);
    reciprocal = rough_reciprocal(d);
  }

  /// (c + c_low) sigmoid(x): c - q (d + rest) sets the quotient q right.
  REEL_SCALAR float times(float c) const {
    const float q = c * reciprocal;
    return fma(fma(-q, rest, cancelling_fma(-q, d, c)), reciprocal, q) * unit;
  }
  REEL_SCALAR float times(float c, float c_low) const {
    const float q = c * reciprocal;
    return fma(fma(-q, rest, cancelling_fma(-q, d, c) + c_low), reciprocal, q) * unit;
  }
  /// c sigmoid(x) for a large c.
  REEL_SCALAR float roughly(float c) const { return c * unit * reciprocal; }

  static constexpr float lowest = -133.2f;  // where d is infinite, and so it is 0
};

/// p (1 + y) + low for a small low: rounded about once on every machine.
REEL_SCALAR float grown(float p, float y, float low) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return p + fma(p, y, low);
#else
  const float more = p * y, sum = p + more;
  return sum + (((p - sum) + more) + (product_tail(p, y, more) + low));
#endif
}

REEL_SCALAR float finite_or(float y, float other) { return abs(y) < infinity<float>() ? y : other; }

struct SigmoidGate {
  using Function = Sigmoid;
  REEL_SCALAR static float exact(float a, float b) { return SigmoidQuotient(b).times(a); }
  REEL_SCALAR static float forward(float a, float b) { return finite_or(exact(a, b), SigmoidQuotient(b).roughly(a)); }
  REEL_SCALAR static double forward(double a, double b) { return a * sigmoid(b); }
};

struct SiluGate {
  using Function = Silu;
  REEL_SCALAR static float bounded(float b) { return at_least(b, SigmoidQuotient::lowest); }
  REEL_SCALAR static float exact(float a, float b) {
    const float x = bounded(b), c = a * x;
    return SigmoidQuotient(b).times(c, product_tail(a, x, c));
  }
  REEL_SCALAR static float forward(float a, float b) {
    return finite_or(exact(a, b), SigmoidQuotient(b).roughly(a) * bounded(b));
  }
  REEL_SCALAR static double forward(double a, double b) { return a * silu(b); }
};

struct GeluGate {
  using Function = Gelu;
  REEL_SCALAR static float exact(float a, float b) {
    const GeluTail t(normal_magnitude(b));
    const float p = a * t.p, low = fma(a, t.low, product_tail(a, t.p, p));
    const float tail = grown(p, t.e.y, fma(low, t.e.y, low));
    return cancelling_fma(a, b <= 0.0f ? 0.0f : b, -tail * (t.e.power * 0x1p-64f));
  }
  REEL_SCALAR static float forward(float a, float b) { return finite_or(exact(a, b), a * gelu(b)); }
  REEL_SCALAR static double forward(double a, double b) { return a * gelu(b); }
};

}  // namespace reel::scalar
