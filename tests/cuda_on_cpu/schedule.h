#pragma once

// The parts of the executor that tests use which also run on a GPU (REEL_ON_GPU): it has its own schedule, another one in each
// run, its memory is out of the host's reach, and nobody counts how often the host waits for it.

#if defined(REEL_ON_GPU)
#include <cstdint>

namespace cuda_on_cpu {
enum class Schedule { in_order, reversed, random };
inline void set_schedule(Schedule) {}
inline void set_guard(bool) {}
inline constexpr bool kCountsWaits = false;
inline std::int64_t waits() { return 0; }
}  // namespace cuda_on_cpu
#else
#include "reel/tests/cuda_on_cpu/executor.h"

namespace cuda_on_cpu {
inline constexpr bool kCountsWaits = true;
}
#endif
