#pragma once

#include "reel/backends/cpu/kernel.h"

/// Sums that several tasks share out, each into a part of its own, are added in the parts' order: so the result does not depend
/// on the number of threads.
namespace reel::cpu::REEL_CPU_ISA {

/// y[i] = x[0][i] + x[1][i] + ...; x [parts, n] with parts `stride` elements apart.
template <class T>
void add_parts(const T* x, int64_t parts, int64_t stride, int64_t n, T* y) {
  const auto add = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    for (int64_t i = begin; i < end; ++i) y[i] = x[i];
    for (int64_t part = 1; part < parts; ++part) {
      const T* from = x + part * stride;
      for (int64_t i = begin; i < end; ++i) y[i] += from[i];
    }
  };
  parallel_for(n, even_chunk(n, max<int64_t>(1024, kGrain / parts)), add);
}

}  // namespace reel::cpu::REEL_CPU_ISA
