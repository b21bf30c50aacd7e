#pragma once

#include "reel/core/scalar/list.h"
#include "reel/core/scalar/math.h"

/// One struct per entry of REEL_UNARY_OPS: the formula, the derivative, and what the derivative is a function of. At kinks
/// the derivative is the one that PyTorch takes: 0 for relu and abs at 0.
namespace reel::scalar {

/// What `derivative` takes: the op's input, its output, or a value that it ignores.
enum class Saved : std::uint8_t { input, output, none };

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

}  // namespace reel::scalar
