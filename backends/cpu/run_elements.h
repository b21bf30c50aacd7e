#pragma once

#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

/// The inner loop of an elementwise kernel: y[i] = f(a[i], b[i]) without gaps. y may be a or b, but not overlap them
/// otherwise. Formulas of one argument ignore b.
using Run = void (*)(const void* a, const void* b, void* y, int64_t count);

/// A formula's inner loops: for two arrays, for a plain number b[0], and for a plain number a[0].
struct Runs {
  Run arrays = nullptr;
  Run fixed_b = nullptr;
  Run fixed_a = nullptr;
};

/// One input: an array, or a plain number if `strides` is null. Not contiguous means: see `strides`.
struct Input {
  const void* data;
  const int64_t* strides;
  DType dtype;
  bool contiguous;
};

REEL_INLINE Input input_of(const Array& x) { return {x.data, x.strides, x.dtype, x.contiguous}; }

/// Elements that one thread does alone of any formula, so that nobody asks what this one costs.
inline constexpr int64_t kLeastAlone = 1024;

/// y = f(a, b) over all of y's elements, in parallel when there are many. Layouts of any kind.
void run_elements(const Runs& runs, const Input& a, const Input& b, const Array& y);

/// The same for contiguous memory, `step_a`, `step_b` and `step_y` bytes from element to element (0 for a plain number).
/// `streamed`, if it is given, writes to aligned memory past the caches, which others have done for them. `alone`: elements that
/// one thread does alone.
void run_in_parallel(Run run, const void* a, int64_t step_a, const void* b, int64_t step_b, void* y, int64_t step_y,
                     int64_t count, Run streamed, int64_t alone);
REEL_INLINE void run_contiguous(Run run, const void* a, int64_t step_a, const void* b, int64_t step_b, void* y,
                                int64_t step_y, int64_t count, Run streamed = nullptr, int64_t alone = kAlone) {
  if (count <= kLeastAlone || count <= alone) {
    run(a, b, y, count);
  } else {
    run_in_parallel(run, a, step_a, b, step_b, y, step_y, count, streamed, alone);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
