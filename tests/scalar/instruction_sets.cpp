#include "reel/backends/cpu/cpu.h"
#include "reel/tests/scalar/loops.h"

namespace reel::scalar_test {

#define REEL_DECLARE(isa)               \
  namespace isa {                       \
  extern const UnaryLoops* const loops; \
  extern const std::int64_t count;      \
  extern const RandomLoops random;      \
  extern const PowLoops powers;         \
  }
REEL_DECLARE(v2)
REEL_DECLARE(v3)
REEL_DECLARE(v4)
#undef REEL_DECLARE

const InstructionSet* instruction_sets() {
  static const InstructionSet sets[kInstructionSets] = {
      {"v2", cpu::supports("v2"), v2::loops, v2::count, v2::random, v2::powers},
      {"v3", cpu::supports("v3"), v3::loops, v3::count, v3::random, v3::powers},
      {"v4", cpu::supports("v4"), v4::loops, v4::count, v4::random, v4::powers},
  };
  return sets;
}

}  // namespace reel::scalar_test
