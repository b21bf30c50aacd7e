#pragma once

#include "reel/core/scalar/list.h"
#include "reel/core/scalar/math.h"

/// One struct per entry of REEL_PARAMETRIC_OPS: the formula and its derivative, both functions of x and of `count` parameters
/// p. NaN stays NaN. At kinks the derivative is PyTorch's.
namespace reel::scalar {

/// slope x + offset within [low, high]; p = {slope, offset, low, high}. The derivative at the kinks and at NaN is 0.
struct ClippedLinear {
  static constexpr int count = 4;
  template <class T>
  REEL_SCALAR static T forward(T x, const T* p) {
    const T y = x * p[0] + p[1];
    const T above = y < p[2] ? p[2] : y;
    return above > p[3] ? p[3] : above;
  }
  template <class T>
  REEL_SCALAR static T derivative(T x, const T* p) {
    const T y = x * p[0] + p[1];
    return y > p[2] && y < p[3] ? p[0] : T(0);
  }
};

/// x where x > 0, else slope x; p = {slope}. The derivative at 0 is the slope.
struct LeakyRelu {
  static constexpr int count = 1;
  template <class T>
  REEL_SCALAR static T forward(T x, const T* p) {
    return x > T(0) ? x : x * p[0];
  }
  template <class T>
  REEL_SCALAR static T derivative(T x, const T* p) {
    return x > T(0) ? T(1) : p[0];
  }
};

/// x where x > 0, else alpha (e^x - 1); p = {alpha}. The derivative at 0 is alpha.
struct Elu {
  static constexpr int count = 1;
  template <class T>
  REEL_SCALAR static T forward(T x, const T* p) {
    return elu(x, p[0]);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x, const T* p) {
    return x > T(0) ? T(1) : p[0] * exp(x);
  }
};

/// x within [low, high]; p = {low, high}. The derivative at the bounds is 1, and 0 at NaN.
struct Clamp {
  static constexpr int count = 2;
  template <class T>
  REEL_SCALAR static T forward(T x, const T* p) {
    const T above = x < p[0] ? p[0] : x;
    return above > p[1] ? p[1] : above;
  }
  template <class T>
  REEL_SCALAR static T derivative(T x, const T* p) {
    return x >= p[0] && x <= p[1] ? T(1) : T(0);
  }
};

/// Huber's loss of a residual x: x^2 / 2 for |x| <= delta, else delta (|x| - delta / 2); p = {delta}. With x within the bounds as
/// `near`, both are near (x - near / 2), and the derivative is `near`.
struct Huber {
  static constexpr int count = 1;
  template <class T>
  REEL_SCALAR static T forward(T x, const T* p) {
    const T near = derivative(x, p);
    return near * (x - near * T(0.5));
  }
  template <class T>
  REEL_SCALAR static T derivative(T x, const T* p) {
    const T above = x < -p[0] ? -p[0] : x;
    return above > p[0] ? p[0] : above;
  }
};

}  // namespace reel::scalar
