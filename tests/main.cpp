// The main function of every test program. With --unless-best it runs nothing where REEL_ISA is the best instruction set that this
// CPU has, which the test without REEL_ISA takes.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "reel/backends/cpu/cpu.h"
#include "reel/tests/little_memory.h"

namespace {

bool is_best(std::string_view isa) {
  for (const char* better : {"v4", "v3", "v2"})
    if (reel::cpu::supports(better)) return isa == better;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* isa = std::getenv("REEL_ISA");
  if (isa != nullptr && !reel::cpu::supports(isa)) {
    std::printf("skipped: this CPU has no instruction set %s\n", isa);
    return 77;  // CTest counts it as skipped
  }
  if (isa != nullptr && argc > 1 && std::string_view(argv[1]) == "--unless-best" && is_best(isa)) {
    std::printf("skipped: %s is this CPU's best instruction set, and the test without REEL_ISA runs it\n", isa);
    return 77;
  }
  reel::detail::limit_blocks(reel::kLargestBlock);
  return RUN_ALL_TESTS();
}
