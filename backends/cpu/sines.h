#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/unary.h"

/// Sine and cosine and their derivatives: one loop for all of them, over blocks of which it is known whether all arguments are near.
namespace reel::cpu::REEL_CPU_ISA {

template <class Op>
concept Turns = requires {
  Op::quarters;
};

/// Elements of a block: one that is far out makes all of a block take the longer formula, which changes no bit of them.
inline constexpr int64_t kSineBlock = 512;

template <class T>
REEL_INLINE bool any_far(int64_t count, const T* x) {
  scalar::Bits<T> far = 0;
  for (int64_t i = 0; i < count; ++i) far |= scalar::abs(x[i]) > scalar::kNearAngle<T> ? 1 : 0;
  return far != 0;
}

/// y[i] = sin(x[i] + quarters pi / 2). y may be x.
template <class T>
__attribute__((noinline)) void sines(int64_t count, const T* x, T* y, int quarters) {
  const auto more = static_cast<scalar::Bits<T>>(quarters);
  for (int64_t begin = 0; begin < count; begin += kSineBlock, x += kSineBlock, y += kSineBlock) {
    const int64_t n = min(kSineBlock, count - begin);
    const auto run = [=]<class Formula>(Formula) {
      long_formula(
          n, x, x, y, [more](T x_i, T) __attribute__((always_inline)) { return Formula::of(x_i, more); });
    };
    if (any_far(n, x)) run(scalar::Sine{});
    else run(scalar::NearSine{});
  }
}

/// dx[i] = dy[i] sin(x[i] + quarters pi / 2). dx may be x or dy.
template <class T>
__attribute__((noinline)) void sines_times(int64_t count, const T* x, const T* dy, T* dx, int quarters) {
  for (int64_t begin = 0; begin < count; begin += kSineBlock, x += kSineBlock, dy += kSineBlock, dx += kSineBlock) {
    const int64_t n = min(kSineBlock, count - begin);
    if (any_far(n, x)) {
      alignas(kVectorBytes) T factors[kSineBlock];
      sines(n, x, factors, quarters);
      for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * factors[i];
      continue;
    }
    long_formula(
        n, x, dy, dx, [more = static_cast<scalar::Bits<T>>(quarters)](T x_i, T dy_i) __attribute__((always_inline)) {
          return dy_i * scalar::NearSine::of(x_i, more);
        });
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
