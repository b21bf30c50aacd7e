#pragma once

#include "reel/core/scalar/math.h"
#include "reel/core/scalar/saved.h"

/// The structs of REEL_UNARY_OPS that are activations and logarithms of probabilities.
namespace reel::scalar {

struct Gelu {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return gelu(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return gelu_derivative(x);
  }
};

struct GeluTanh {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return gelu_tanh(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return gelu_tanh_derivative(x);
  }
};

struct Silu {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return silu(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return silu_derivative(x);
  }
};

struct Mish {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return mish(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return mish_derivative(x);
  }
};

struct Softplus {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return softplus(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return sigmoid(x);
  }
};

struct Logsigmoid {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return logsigmoid(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return sigmoid(-x);
  }
};

/// The derivative is 0 at the kinks -3 and 3.
struct HardSigmoid {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return hard_sigmoid(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return x <= T(-3) || x >= T(3) ? T(0) : x == x ? T(1) / T(6) : x;
  }
};

/// The derivative is 0 at the kinks -1 and 1.
struct HardTanh {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return hard_tanh(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return x <= T(-1) || x >= T(1) ? T(0) : x == x ? T(1) : x;
  }
};

/// The derivative is 0 at the kink -3 and 1 at the kink 3.
struct HardSwish {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return hard_swish(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return hard_swish_derivative(x);
  }
};

struct Dish {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return dish(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return dish_derivative(x);
  }
};

struct Log1mexp {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return log1mexp(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return log1mexp_derivative(x);
  }
};

struct Logit {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return logit(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return T(1) / (x * (T(1) - x));
  }
};

struct LogNdtr {
  static constexpr Saved saved = Saved::input;
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return log_ndtr(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return log_ndtr_derivative(x);
  }
};

}  // namespace reel::scalar
