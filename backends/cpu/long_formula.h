#pragma once

#include "reel/backends/cpu/simd.h"

/// The loop of elementwise kernels whose formula takes tens or hundreds of instructions.
namespace reel::cpu::REEL_CPU_ISA {

/// y[i] = f(a[i], b[i]) for i in [0, count). y may be a or b, but not overlap them otherwise. A last, partial vector goes
/// through memory on the stack: so the formula's code is there once, where a plain loop would get it two or three times more,
/// in smaller vectors and for single elements, for what is left over.
template <class T, class F>
REEL_INLINE void long_formula(int64_t count, const T* a, const T* b, T* y, F f) {
  using V = Vec<T>;
  constexpr int64_t width = V::width;
  alignas(kVectorBytes) T last_a[width], last_b[width], last_y[width];
  const int64_t whole = count & -width;  // so that the compiler sees a multiple
  T* to = y;
  for (int64_t n = whole;; n = width) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]);
    if (to == last_y) break;
    if (whole == count) return;
    V::load(a + whole, V::first(count - whole)).store(last_a);
    V::load(b + whole, V::first(count - whole)).store(last_b);
    a = last_a;
    b = last_b;
    to = last_y;
  }
  V::load(last_y).store(y + whole, V::first(count - whole));
}

}  // namespace reel::cpu::REEL_CPU_ISA
