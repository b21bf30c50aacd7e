#pragma once

#include "reel/core/scalar/list.h"
#include "reel/core/scalar/math.h"
#include "reel/core/scalar/saved.h"
#include "reel/core/scalar/unary_activations.h"

/// One struct per entry of REEL_UNARY_OPS: the formula, the derivative, and what the derivative is a function of. At
/// kinks the derivative is the one that PyTorch takes: 0 for relu and abs at 0.
namespace reel::scalar {

struct Neg {
  static constexpr Saved saved = Saved::none;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return -x;
  }
  template <class T>
  REEL_SCALAR static T derivative(T) {
    return T(-1);
  }
};

struct Exp {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return exp(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return y;
  }
};

struct Log {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return log(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return T(1) / x;
  }
};

struct Tanh {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return tanh(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return fma(-y, y, T(1));
  }
};

struct Sigmoid {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return sigmoid(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return y * (T(1) - y);
  }
};

/// NaN stays NaN, and its derivative is 1, so that it is seen in the gradient too.
struct Relu {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return x <= T(0) ? T(0) : x;
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return y <= T(0) ? T(0) : T(1);
  }
};

struct Sqrt {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return sqrt(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return T(0.5) / y;
  }
};

struct Square {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return x * x;
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return T(2) * x;
  }
};

struct Cube {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return x * x * x;
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return T(3) * (x * x);
  }
};

struct Abs {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return abs(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return sign(x);
  }
};

struct Expm1 {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return expm1(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return y + T(1);
  }
};

struct Log1p {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return log1p(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return T(1) / (T(1) + x);
  }
};

struct Rsqrt {
  static constexpr Saved saved = Saved::output;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return T(1) / sqrt(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T y) {
    return T(-0.5) * y * (y * y);
  }
};

struct Sin {
  static constexpr Saved saved = Saved::input;
  static constexpr int quarters = 0;  // turns more than sine
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return Sine::of(x, quarters);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return Sine::of(x, quarters + 1);
  }
};

struct Cos {
  static constexpr Saved saved = Saved::input;
  static constexpr int quarters = 1;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return Sine::of(x, quarters);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return Sine::of(x, quarters + 1);
  }
};

struct Erf {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return erf(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return erf_derivative(x);
  }
};

struct Erfc {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return erfc(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return -erf_derivative(x);
  }
};

struct Lgamma {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return lgamma(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return digamma(x);
  }
};

struct Digamma {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return digamma(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return trigamma(x);
  }
};

struct Sign {
  static constexpr Saved saved = Saved::none;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return sign(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T) {
    return T(0);
  }
};

}  // namespace reel::scalar
