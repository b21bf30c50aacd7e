#pragma once

#include "reel/core/scalar/list.h"
#include "reel/core/scalar/math.h"

/// One struct per entry of REEL_BINARY_OPS. Any number type unless it says otherwise; comparisons give bool.
namespace reel::scalar {

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
};

/// The smaller one; NaN if either is.
struct Minimum {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};

/// a where b > 0 or b is NaN, else 0: the gradient a = dy of relu, whose output was b.
struct ReluMask {
  template <class T>
  REEL_SCALAR static T forward(T a, T b) {
    return b <= T(0) ? T(0) : a;
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

}  // namespace reel::scalar
