// The main function of every test program.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "reel/backends/cpu/cpu.h"
#include "reel/tests/little_memory.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* isa = std::getenv("REEL_ISA");
  if (isa != nullptr && !reel::cpu::supports(isa)) {
    std::printf("skipped: this CPU has no instruction set %s\n", isa);
    return 77;  // CTest counts it as skipped
  }
  reel::detail::limit_blocks(reel::kLargestBlock);
  return RUN_ALL_TESTS();
}
