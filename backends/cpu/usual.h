#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/unary.h"

/// Formulas that are much shorter for the numbers that one usually has, and formulas of f32 that are those of f64.
namespace reel::cpu::REEL_CPU_ISA {

/// From `least` to `most` of(x) has the bits of an op's formula.
template <class Op>
struct Usual;

template <>
struct Usual<scalar::Log> {
  template <class T>
  static constexpr T least = scalar::Format<T>::kMinNormal;
  template <class T>
  static constexpr T most = sizeof(T) == 4 ? T(0x1.fffffep127) : T(0x1.fffffffffffffp1023);
  template <class T>
  REEL_INLINE static T of(T x) {
    return scalar::log_of_normal(x);
  }
};

template <>
struct Usual<scalar::Lgamma> {
  template <class T>
  static constexpr T least = scalar::Format<T>::kMinNormal;
  template <class T>
  static constexpr T most = scalar::infinity<T>();
  REEL_INLINE static double of(double x) { return scalar::lgamma_of_positive(x); }
};

template <>
struct Usual<scalar::Digamma> : Usual<scalar::Lgamma> {
  REEL_INLINE static double of(double x) { return scalar::digamma_of_positive(x, 0); }
};

template <class Op>
concept HasUsual = requires {
  Usual<Op>::template least<double>;
};

/// y[i] = f(x[i]) for whole vectors, by Usual.
template <class Op, class T>
void run_usual(const void* from, const void*, void* to, int64_t count) {
  using U = Usual<Op>;
  const T* x = static_cast<const T*>(from);
  formula_in_blocks(
      count, x, x, static_cast<T*>(to), U::template least<T>, U::template most<T>,
      [](T x_i, T) __attribute__((always_inline)) { return U::of(x_i); },
      [](int64_t n, const T* a, const T*, T* y) __attribute__((always_inline)) {
        formula_of_vectors(
            n, a, a, y, [](T x_i, T) __attribute__((always_inline)) { return Op::forward(x_i); });
      });
}
/// y[i] = f(x[i]) b[i].
template <class Op, class T>
void run_usual_times(const void* from, const void* factor, void* to, int64_t count) {
  using U = Usual<Op>;
  formula_in_blocks(
      count, static_cast<const T*>(from), static_cast<const T*>(factor), static_cast<T*>(to), U::template least<T>,
      U::template most<T>, [](T x_i, T b_i) __attribute__((always_inline)) { return b_i * U::of(x_i); },
      [](int64_t n, const T* a, const T* b, T* y) __attribute__((always_inline)) {
        formula_of_vectors(
            n, a, b, y, [](T x_i, T b_i) __attribute__((always_inline)) { return b_i * Op::forward(x_i); });
      });
}

/// Whether an op's f32 goes by the loop for f64, of which it is the rounded result. (log_ndtr and log1mexp would take up to 1.3 times as
/// long: of two vectors of f64, as one of f32 is, one's steps run while the other's wait.)
template <class Op>
inline constexpr bool kIsRounded = is_one_of<Op, scalar::Lgamma, scalar::Digamma>;

/// y[i] of a[i] and b[i], which may be a, by a loop for f64, rounded once: so is a gradient, dy's product with the derivative. y may be
/// a or b.
void run_rounded(Run run, const float* a, const float* b, float* y, int64_t count);

}  // namespace reel::cpu::REEL_CPU_ISA
