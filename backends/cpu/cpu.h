#pragma once

#include "reel/core/ops.h"

/// The CPU backend: the same kernels, compiled for several instruction sets, the best of which is chosen at start-up.
namespace reel::cpu {

/// The kernels of the best instruction set that this CPU has, or of the one that the environment variable REEL_ISA names
/// (v2, v3 or v4, as in x86-64-v3). Chosen at the first call. Throws Error if REEL_ISA names no set that this CPU has, or
/// if the CPU has none of them.
Ops& ops();

/// The name of the set that `ops` chose: "v2", "v3" or "v4" ("native" in a build with REEL_NATIVE). Throws as `ops` does.
const char* isa_name();

/// The kernels of one set, whichever `ops` chose. Throws Error if `isa` is unknown here or this CPU lacks it.
Ops& ops(const char* isa);

/// Whether `ops(isa)` would give kernels.
bool supports(const char* isa);

}  // namespace reel::cpu
