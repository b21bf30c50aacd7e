#include "reel/backends/cpu/cpu.h"

#include <cpuid.h>

#include <cstdlib>
#include <string>

#include "reel/core/error.h"

namespace reel::cpu {

// Defined in instance.cpp, compiled once per set.
namespace v2 {
Ops& ops();
}
namespace v3 {
Ops& ops();
}
namespace v4 {
Ops& ops();
}
namespace native {
Ops& ops();
}

namespace {

// The levels of the x86-64 psABI. __builtin_cpu_supports also asks whether the system saves the wide registers; the few
// features that clang 14 does not know by name are read from cpuid.
[[maybe_unused]] bool has_v2() {
  return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
         __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

[[maybe_unused]] bool has_v3() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_v2() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_MOVBE) || !(c & bit_F16C)) return false;
  if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & bit_LZCNT)) return false;
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}

[[maybe_unused]] bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

struct InstructionSet {
  const char* name;
  bool (*supported)();
  Ops& (*ops)();
};

// What CMake's REEL_ISAS names, best first.
const InstructionSet kSets[] = {
#ifdef REEL_ISA_NATIVE
    {"native", [] { return true; }, &native::ops},
#endif
#ifdef REEL_ISA_V4
    {"v4", &has_v4, &v4::ops},
#endif
#ifdef REEL_ISA_V3
    {"v3", &has_v3, &v3::ops},
#endif
#ifdef REEL_ISA_V2
    {"v2", &has_v2, &v2::ops},
#endif
};

std::string names(bool supported) {
  std::string listed;
  for (const InstructionSet& set : kSets) {
    if (!supported || set.supported()) listed += (listed.empty() ? "" : ", ") + std::string(set.name);
  }
  return listed.empty() ? "none" : listed;
}

const InstructionSet* find(const std::string& isa) {
  for (const InstructionSet& set : kSets) {
    if (isa == set.name && set.supported()) return &set;
  }
  return nullptr;
}

const InstructionSet& require(const char* what, const std::string& isa) {
  if (const InstructionSet* set = find(isa)) return *set;
  throw Error(std::string(what) + ": must be an instruction set that this CPU has and Reel was built for (" +
              names(true) + "), got '" + isa + "'");
}

const InstructionSet& choose() {
  if (const char* forced = std::getenv("REEL_ISA")) return require("REEL_ISA", forced);
  for (const InstructionSet& set : kSets) {
    if (set.supported()) return set;
  }
  throw Error("cpu: must have an instruction set that Reel was built for (x86-64-" + names(false) +
              "), got a CPU without");
}

const InstructionSet& chosen() {
  static const InstructionSet& set = choose();
  return set;
}

}  // namespace

Ops& ops() {
  static Ops& instance = chosen().ops();
  return instance;
}

const char* isa_name() { return chosen().name; }

Ops& ops(const char* isa) { return require("cpu::ops", isa).ops(); }

bool supports(const char* isa) { return find(isa) != nullptr; }

}  // namespace reel::cpu
