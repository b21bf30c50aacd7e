#pragma once

#include "reel/core/scalar/list.h"
#include "reel/core/scalar/math.h"

/// One struct per entry of REEL_BINARY_OPS. Any number type unless it says otherwise; comparisons give bool. Some have their
/// derivatives by a and by b too: left, right, of fractions alone.
namespace reel::scalar {

template <class Op>
concept HasSlopes = requires {
  Op::left(1.0f, 1.0f);
};

/// Of the larger or the smaller of two: 0 where this one loses, 1/2 where both are equal, else 1. Where either is NaN both have
/// the gradient, so that it shows.
template <class T>
REEL_SCALAR T share(bool loses, T a, T b) {
  return T(1) - (loses ? T(1) : T(0)) - (a == b ? T(0.5) : T(0));
}

struct Add {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return a + b;
  }
};

struct Sub {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return a - b;
  }
};

struct Mul {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return a * b;
  }
  template <class T>
  REEL_SCALAR static T left(T, T b) {
    return b;
  }
  template <class T>
  REEL_SCALAR static T right(T a, T) {
    return a;
  }
};

struct Div {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return a / b;
  }
};

/// The larger one; NaN if either is.
struct Maximum {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    const T larger = a > b ? a : b;  // b if either is NaN
    return a != a ? a : larger;
  }
  template <class T>
  REEL_SCALAR static T left(T a, T b) {
    return share(a < b, a, b);
  }
  template <class T>
  REEL_SCALAR static T right(T a, T b) {
    return share(b < a, a, b);
  }
};

/// The smaller one; NaN if either is.
struct Minimum {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
  template <class T>
  REEL_SCALAR static T left(T a, T b) {
    return share(a > b, a, b);
  }
  template <class T>
  REEL_SCALAR static T right(T a, T b) {
    return share(b > a, a, b);
  }
};

/// a^b, see pow.h. Integers: the product of b factors, wrapping around; for b < 0 a truncated 1 / a^-b (0 for a = 0).
struct Pow {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    if constexpr (T(0.5) == T(0)) {
      using Wide = std::uint64_t;
      if constexpr (static_cast<T>(-1) < T(0))
        if (b < 0)
          return a == T(1) || (a == static_cast<T>(-1) && b % 2 == 0) ? T(1) : (a == static_cast<T>(-1) ? a : T(0));
      Wide power = 1, base = static_cast<Wide>(a);
      for (Wide left = static_cast<Wide>(b); left != 0; left >>= 1, base *= base) power *= (left & 1) != 0 ? base : 1;
      return static_cast<T>(power);
    } else {
      return pow(a, b);
    }
  }
};

/// a where b > 0 or b is NaN, else 0: the gradient a = dy of relu, whose output was b.
struct ReluMask {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return b <= T(0) ? T(0) : a;
  }
};

/// log(e^a + e^b) = max(a, b) + log(1 + e^-|a - b|). Of fractions alone.
struct Logaddexp {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return Maximum::forward(a, b) + softplus(a == b ? T(0) : -abs(a - b));  // equal infinities too
  }
};

/// Its derivative by a, sigmoid(a - b): half of it belongs to either of two equal infinities, nothing where the sum itself is
/// nothing. Of fractions alone.
struct LogaddexpSlope {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    const T half = b == -infinity<T>() ? T(0) : T(0.5);
    const T slope = sigmoid(a - b);
    return a == b ? half : slope;
  }
};

/// Binary cross entropy of a logit x with a target t: t log(1 + e^-x) + (1 - t) log(1 + e^x), of which what both logarithms
/// have in common is taken once, and the rest has no cancellation. Of fractions alone.
struct Bce {
  template <class T>
  REEL_SCALAR static T forward(T x, T t) {
    const T factor = x > T(0) ? T(1) - t : -t;
    return fma(factor, x, softplus(-abs(x)));
  }
};

/// Its derivative by x, (1 - t) sigmoid(x) - t sigmoid(-x), both of one e^-|x|. Of fractions alone.
struct BceSlope {
  template <class T>
  REEL_SCALAR static T forward(T x, T t) {
    const T e = bounded_exp(falling_exponent(abs(x)));
    const T large = T(1) / (T(1) + e), small = e * large;
    const T right = x > T(0) ? large : small, left = x > T(0) ? small : large;
    return fma(T(1) - t, right, -t * left);
  }
};

struct Equal {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a == b;
  }
};

struct NotEqual {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a != b;
  }
};

struct Less {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a < b;
  }
};

struct LessEqual {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a <= b;
  }
};

struct Greater {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a > b;
  }
};

struct GreaterEqual {
  template <class T>
  REEL_SCALAR static bool forward(T a, T b) {
    return a >= b;
  }
};

/// Whether Op takes no integers.
template <class Op>
inline constexpr bool kOfFractions = false;
template <>
inline constexpr bool kOfFractions<Logaddexp> = true;
template <>
inline constexpr bool kOfFractions<LogaddexpSlope> = true;
template <>
inline constexpr bool kOfFractions<Bce> = true;
template <>
inline constexpr bool kOfFractions<BceSlope> = true;

}  // namespace reel::scalar
