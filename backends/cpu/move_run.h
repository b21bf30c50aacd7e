#pragma once

#include <cstdint>

namespace reel::cpu::REEL_CPU_ISA {

/// y[i y_stride] = x[i x_stride] for `count` elements of 1, 2, 4 or 8 bytes; strides in elements, 0 for x repeats it.
void move_run(const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride, std::int64_t count,
              std::int64_t element_size);

}  // namespace reel::cpu::REEL_CPU_ISA
