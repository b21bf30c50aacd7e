#pragma once

#include <cstdint>

namespace reel::cpu::REEL_CPU_ISA {

/// y[i y_stride] = x[i x_stride] for `count` elements of 1, 2, 4 or 8 bytes; strides in elements, 0 for x repeats it.
void move_run(const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride, std::int64_t count,
              std::int64_t element_size);

/// memcpy, but at the speed of vectors wherever the two places lie: from 4 KiB on glibc takes "rep movsb", which a Zen 3 does at
/// 1.8 GB/s, a twentieth, if `to` is a few bytes behind `from` modulo 4096.
void copy_bytes(const void* from, void* to, std::int64_t bytes);

}  // namespace reel::cpu::REEL_CPU_ISA
