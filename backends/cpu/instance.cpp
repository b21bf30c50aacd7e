#include "reel/backends/cpu/cpu_ops.h"

namespace reel::cpu::REEL_CPU_ISA {

CpuOps::CpuOps() = default;
CpuOps::~CpuOps() = default;

namespace {
// Never destroyed: tensors in static storage may outlive every other object.
union Forever {
  Forever() : ops() {}
  ~Forever() {}
  CpuOps ops;
};
}  // namespace

CpuOps& instance() {
  static Forever forever;
  return forever.ops;
}

/// What cpu.cpp, which sees no set's CpuOps, calls.
Ops& ops();
Ops& ops() { return instance(); }

}  // namespace reel::cpu::REEL_CPU_ISA
