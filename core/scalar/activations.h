#pragma once

#include "reel/core/scalar/normal.h"
#include "reel/core/scalar/tanh.h"

/// Activation functions and logarithms of probabilities that are built on exp and log.
namespace reel::scalar {

/// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). f32: log(1 + e) = e L(e - 1/2) with L of degree 10, error 2^-25.03, and
/// the factor e = 2^n (1 + y) comes last, for the left tail.
REEL_SCALAR float softplus(float x) {
  const ReducedExponent<float> reduced = reduce_exponent(falling_exponent(abs(x)));
  const float y = expm1_polynomial(reduced.r);
  const float e = scale(1.0f + y, reduced.bits);
  const float l = polynomial(e - 0.5f, 0.8109302f, -0.2885271f, 0.13261378f, -0.067688204f, 0.036493354f, -0.020561093f,
                             0.013095134f, -0.006807473f, -0.0014631058f, -0.0031302746f, 0.01048003f);
  return at_least(x, 0.0f) + scale(fma(y, l, l), reduced.bits);
}
REEL_SCALAR double softplus(double x) { return at_least(x, 0.0) + log1p(bounded_exp(falling_exponent(abs(x)))); }

/// log(sigmoid(x)).
template <class T>
REEL_SCALAR T logsigmoid(T x) {
  return -softplus(-x);
}

/// x sigmoid(x), with relative accuracy in the left tail: b / (1 + e), where b - q (1 + e) sets the quotient q right, times
/// e = 2^n (1 + y) on the left. The power of two comes last, so that a denormal is rounded once.
template <class T>
REEL_SCALAR T silu(T x) {
  constexpr T limit = sizeof(T) == 4 ? T(120) : T(800);  // it is 0 below -limit and x above limit
  constexpr Bits<T> offset = sizeof(T) == 4 ? 64 : 256;  // of exponents, so that powers of two are normal numbers
  constexpr T rest = sizeof(T) == 4 ? T(0x1p-64) : T(0x1p-256);
  const T b = at_least(x, -limit);
  const T a = abs(b);
  const ReducedExponent<T> reduced = reduce_exponent(-at_most(a, limit));
  const T y = expm1_polynomial(reduced.r);
  const T power = power_of_two<T>(reduced.bits + offset);
  const T e = fma(y, power, power) * rest;
  const T reciprocal = rough_reciprocal(T(1) + e);
  const T q = b * reciprocal;
  const T lost = cancelling_fma(-q, e, b - q) * reciprocal;
  const bool left = b < T(0);
  const T factor = left ? y : T(0);
  const T product = q + fma(q, factor, fma(lost, factor, lost));
  return x > limit ? x : product * (left ? power : power_of_two<T>(offset)) * rest;
}

/// s (1 + x (1 - s)) for s = sigmoid(x), both s and 1 - s from one e^-|x|.
template <class T>
REEL_SCALAR T silu_derivative(T x) {
  constexpr T limit = sizeof(T) == 4 ? T(150) : T(1000);  // 0 and 1 from there on, also at the infinities
  const T b = at_least(at_most(x, limit), -limit);
  const T e = bounded_exp(-abs(b));
  const T larger = quotient(T(1), T(1) + e), smaller = e * larger;
  const bool left = b < T(0);
  return (left ? smaller : larger) * fma(b, left ? larger : smaller, T(1));
}

/// x / 2 (1 + tanh(v / 2)) = x sigmoid(v) with v = 2 sqrt(2 / pi) (x + 0.044715 x^3), with relative accuracy in the
/// left tail: v = x (c1 + c3 x^2) is kept as a sum of two numbers.
template <class T>
REEL_SCALAR T gelu_tanh(T x) {
  constexpr double limit = sizeof(T) == 4 ? 11.0 : 22.0;  // the tail is 0 from there on
  constexpr double c1 = 0x1.9884533d43651p+0, c1_low = -0x1.cbc0d30ebfd15p-54;
  constexpr double c3 = 0x1.2444f2a4d8b4bp-4, c3_low = -0x1.6c843a29d1c70p-61;
  const double wide = static_cast<double>(x);
  const double a = at_most(abs(wide), limit);
  const double z = a * a;
  const double p = c3 * z;
  const double s = p + c1;
  const double v = a * s;
  double v_low = 0;
  if constexpr (sizeof(T) == 8) {
    const double p_low = product_tail(c3, z, p) + (c3 * product_tail(a, a, z) + c3_low * z);
    const double s_low = sum_tail(p, c1, s) + (p_low + c1_low);
    v_low = product_tail(a, s, v) + a * s_low;
  }
  const Exponential<T> e(-v, -v_low);
  const double tail = e.times(a / (1.0 + e.times(1.0)));  // a sigmoid(-v)
  return static_cast<T>((wide <= 0.0 ? 0.0 : wide) - tail);
}

/// s + x s (1 - s) v'(x) for s = sigmoid(v).
template <class T>
REEL_SCALAR T gelu_tanh_derivative(T x) {
  constexpr double limit = sizeof(T) == 4 ? 11.0 : 22.0;
  constexpr double c1 = 0x1.9884533d43651p+0, c3 = 0x1.2444f2a4d8b4bp-4;
  const double a = at_most(abs(static_cast<double>(x)), limit);
  const double z = a * a;
  const Exponential<T> e(-a * fma(c3, z, c1));
  const double d = 1.0 + e.times(1.0);
  const double slope = a * fma(3.0 * c3, z, c1);
  const double tail = e.times((1.0 - slope / d) / d);  // sigmoid(-v) (1 - a v' sigmoid(v))
  return static_cast<T>(x > T(0) ? 1.0 - tail : tail);
}

/// x tanh(softplus(x)). With e = e^-|x| the hyperbolic tangent is e (1 - e (1 + e) / (2 + 2 e + e^2)) on the left and
/// 1 - 2 e^2 / (1 + 2 e + 2 e^2) on the right: the errors of the quotients matter less than the quotients.
template <class T>
REEL_SCALAR T mish(T x) {
  constexpr double limit = sizeof(T) == 4 ? 120.0 : 800.0;  // 0 and x from there on
  const double wide = static_cast<double>(x);
  const double b = at_least(wide, -limit);
  const double a = abs(b);
  const Exponential<T> exponential(-at_most(a, limit));
  const double e = exponential.times(1.0);
  const bool left = b < 0.0;
  const double above = e * (left ? 1.0 + e : 2.0 * e);
  const double below = left ? fma(e, 2.0 + e, 2.0) : fma(2.0 * e, 1.0 + e, 1.0);
  const double y = fma(-at_most(b, limit), above / below, b);
  return static_cast<T>(left ? exponential.times(y) : y);
}

/// t + x (1 - t^2) sigmoid(x) for t = tanh(softplus(x)), 1 - t^2 = (1 - t) (1 + t) with 1 - t = 2 / ((1 + e^x)^2 + 1).
template <class T>
REEL_SCALAR T mish_derivative(T x) {
  constexpr double limit = sizeof(T) == 4 ? 150.0 : 340.0;
  const double wide = static_cast<double>(x);
  const double b = at_least(at_most(wide, limit), -limit);
  const double w = Exponential<T>(b).times(1.0);
  const double n = w * (w + 2.0);
  const double t = b > 40.0 ? 1.0 : n / (n + 2.0);
  const double rest = 2.0 / (n + 2.0);
  return static_cast<T>(fma(b * (rest * (1.0 + t)), w / (1.0 + w), t));
}

/// x for x > 0, else alpha (e^x - 1).
template <class T>
REEL_SCALAR T elu(T x, T alpha) {
  return x > T(0) ? x : alpha * expm1(x);
}

/// clamp((x + 3) / 6, 0, 1).
template <class T>
REEL_SCALAR T hard_sigmoid(T x) {
  return at_most(at_least(x + T(3), T(0)), T(6)) / T(6);
}

/// clamp(x, -1, 1).
template <class T>
REEL_SCALAR T hard_tanh(T x) {
  return at_most(at_least(x, T(-1)), T(1));
}

/// x hard_sigmoid(x).
template <class T>
REEL_SCALAR T hard_swish(T x) {
  const T y = x * hard_sigmoid(x);
  return x <= T(-3) ? T(0) : y;  // also at -infinity
}
template <class T>
REEL_SCALAR T hard_swish_derivative(T x) {
  const T inner = x / T(3) + T(0.5);
  return x <= T(-3) ? T(0) : (x >= T(3) ? T(1) : inner);
}

/// x / 2 (1 + x / sqrt(1 + x^2)) = max(x, 0) - |x| / 2 / (h (h + |x|)) with h = sqrt(1 + x^2).
template <class T>
REEL_SCALAR T dish(T x) {
  const double wide = static_cast<double>(x);
  const double a = abs(wide);
  const double root = sqrt(fma(a, a, 1.0));
  const bool far = a > 1e9;  // a^2 may overflow
  const double tail = (far ? 0.25 : 0.5 * a) / (far ? a : fma(a, root + a, 1.0));
  return static_cast<T>((wide <= 0.0 ? 0.0 : wide) - tail);
}

/// With t = 1 - |x| / h = 1 / (h (h + |x|)) it is t (3 t - t^2 - 1) / 2 on the left and 1 minus that on the right.
template <class T>
REEL_SCALAR T dish_derivative(T x) {
  const double a = abs(static_cast<double>(x));
  const double h = sqrt(fma(a, a, 1.0));
  const double t = 1.0 / (h * (h + a));  // 0 where a^2 overflows
  const double left = 0.5 * t * fma(t, 3.0 - t, -1.0);
  return static_cast<T>(x < T(0) ? left : 1.0 - left);
}

/// log(1 - e^-x) for x >= 0 (Maechler, "Accurately computing log(1 - exp(-|a|))", 2012); NaN below 0.
REEL_SCALAR double log1mexp(double x) {
  const Exponential<double> exponential(-x);
  const double e = exponential.times(1.0);
  const double half = power_of_two<double>((x > 100.0 ? Bits<double>(0) : exponential.n) - 1);
  const double difference = -2.0 * fma(half, exponential.y, half - 0.5);  // 1 - e, with relative accuracy near 0
  const bool small = x < 0.69314718055994531;
  const double rounded = 1.0 - e;
  double y = log_of_sum(small ? (x < 1e-20 ? x : difference) : rounded, small ? 0.0 : (1.0 - rounded) - e);
  y = e < 1e-30 ? -e : y;
  y = x == 0.0 ? -infinity<double>() : y;
  return x >= 0.0 ? y : quiet_nan<double>();
}
REEL_SCALAR float log1mexp(float x) { return static_cast<float>(log1mexp(static_cast<double>(x))); }

/// 1 / (e^x - 1).
template <class T>
REEL_SCALAR T log1mexp_derivative(T x) {
  return T(1) / expm1(x);
}

/// log(x / (1 - x)); near x = 1/2 as log(1 + z) with the small z = |2 x - 1| / min(x, 1 - x), whose numerator is exact.
template <class T>
REEL_SCALAR T logit(T x) {
  const T complement = T(1) - x;
  const bool lower = x < T(0.5);
  const bool middle = x >= T(0.25) && x < T(0.75);
  const T twice = T(2) * x;
  const T above = middle ? (lower ? T(1) - twice : twice - T(1)) : x;
  const T z = above / (middle && lower ? x : complement);
  const T sum = T(1) + z;
  const T rest = z < T(1) ? z - (sum - T(1)) : T(1) - (sum - z);
  T y = log_of_sum(middle ? sum : z, middle ? rest : T(0));
  y = middle && lower ? -y : y;
  y = x == T(0) ? -infinity<T>() : y;
  y = x == T(1) ? infinity<T>() : y;
  return x >= T(0) && x <= T(1) ? y : quiet_nan<T>();
}

}  // namespace reel::scalar
