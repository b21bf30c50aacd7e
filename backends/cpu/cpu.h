#pragma once

#include "reel/core/ops.h"

/// The CPU backend: the same kernels, compiled for several instruction sets, the best of which is chosen at start-up.
namespace reel::cpu {

/// The kernels of the best instruction set that this CPU has, of those that CMake's REEL_ISAS named (v2, v3 and v4, as in
/// x86-64-v3, unless told otherwise), or of the one that the environment variable REEL_ISA names. Chosen at the first call.
/// Throws Error if REEL_ISA names none of them that this CPU has, or if the CPU has none of them.
Ops& ops();

/// The name of the set that `ops` chose: "v2", "v3", "v4" or "native". Throws as `ops` does.
const char* isa_name();

/// The kernels of one set, whichever `ops` chose. Throws Error if `isa` is unknown here or this CPU lacks it.
Ops& ops(const char* isa);

/// Whether `ops(isa)` would give kernels.
bool supports(const char* isa);

}  // namespace reel::cpu
