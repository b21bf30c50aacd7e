#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/unary.h"

/// Sine and cosine and their derivatives: one loop for all of them, over blocks, most of which have near arguments alone.
namespace reel::cpu::REEL_CPU_ISA {

template <class Op>
concept Turns = requires {
  Op::quarters;
};

/// y[i] = sin(x[i] + quarters pi / 2). y may be x.
template <class T>
__attribute__((noinline)) void sines(int64_t count, const T* x, T* y, int quarters) {
  const auto more = static_cast<scalar::Bits<T>>(quarters);
  in_whole_steps<Vec<T>::width>(count, x, x, y, [=](int64_t n, const T* from, const T*, T* to) {
    formula_in_blocks(
        n, from, from, to, -scalar::kNearAngle<T>, scalar::kNearAngle<T>,
        [more](T x_i, T) __attribute__((always_inline)) { return scalar::NearSine::of(x_i, more); },
        [more](int64_t some, const T* a, const T*, T* b) __attribute__((always_inline)) {
          formula_of_vectors(
              some, a, a, b, [more](T x_i, T) __attribute__((always_inline)) { return scalar::Sine::of(x_i, more); });
        });
  });
}

/// dx[i] = dy[i] sin(x[i] + quarters pi / 2). dx may be x or dy.
template <class T>
__attribute__((noinline)) void sines_times(int64_t count, const T* x, const T* dy, T* dx, int quarters) {
  const auto more = static_cast<scalar::Bits<T>>(quarters);
  in_whole_steps<Vec<T>::width>(count, x, dy, dx, [=](int64_t n, const T* from, const T* factor, T* to) {
    formula_in_blocks(
        n, from, factor, to, -scalar::kNearAngle<T>, scalar::kNearAngle<T>,
        [more](T x_i, T dy_i) __attribute__((always_inline)) { return dy_i * scalar::NearSine::of(x_i, more); },
        [quarters](int64_t some, const T* a, const T* b, T* c) __attribute__((noinline)) {
          alignas(kVectorBytes) T factors[kFormulaBlock];
          sines(some, a, factors, quarters);
          for (int64_t i = 0; i < some; ++i) c[i] = b[i] * factors[i];
        });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
