// Which of the compiled instruction sets the CPU backend uses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "reel/backends/cpu/cpu.h"
#include "reel/core/device.h"
#include "reel/core/error.h"

namespace reel {
namespace {

std::string error_of(const char* isa) {
  try {
    cpu::ops(isa);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(InstructionSets, UnknownNamesAreRefusedWithWhatIsThere) {
  for (const char* isa : {"", "v1", "v5", "V3", "avx2", "v3 "}) {
    EXPECT_FALSE(cpu::supports(isa)) << isa;
    EXPECT_THAT(error_of(isa), testing::HasSubstr("instruction set that this CPU has and Reel was built for (")) << isa;
    EXPECT_THAT(error_of(isa), testing::HasSubstr("got '" + std::string(isa) + "'"));
  }
}

TEST(InstructionSets, EachLevelContainsTheOneBelow) {
  EXPECT_TRUE(cpu::supports("v2"));
  EXPECT_LE(cpu::supports("v3"), cpu::supports("v2"));
  EXPECT_LE(cpu::supports("v4"), cpu::supports("v3"));
}

TEST(InstructionSets, EachHasKernelsOfItsOwn) {
  const Ops& v2 = cpu::ops("v2");
  if (!cpu::supports("v3")) GTEST_SKIP() << "this CPU has v2 only";
  EXPECT_NE(&v2, &cpu::ops("v3"));
}

TEST(InstructionSets, TheChosenOneIsTheNamedOneInEveryThread) {
  std::vector<const Ops*> seen(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < seen.size(); ++i) threads.emplace_back([&seen, i] { seen[i] = &cpu::ops(); });
  for (std::thread& thread : threads) thread.join();
  for (const Ops* ops : seen) EXPECT_EQ(ops, &cpu::ops(cpu::isa_name()));
  EXPECT_EQ(&backend(Device::cpu()), &cpu::ops());
}

// The choice is made once per process: these start new ones.
class ForcedInstructionSet : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Prints the outcome of the first use under REEL_ISA=isa and exits.
  [[noreturn]] static void use(const char* isa) {
    setenv("REEL_ISA", isa, 1);
    try {
      std::fprintf(stderr, "chose %s", (cpu::ops(), cpu::isa_name()));
    } catch (const Error& error) {
      std::fprintf(stderr, "%s", error.what());
    }
    std::exit(0);
  }
};

TEST_F(ForcedInstructionSet, IsUsed) { EXPECT_EXIT(use("v2"), testing::ExitedWithCode(0), "^chose v2"); }

TEST_F(ForcedInstructionSet, MustExist) {
  EXPECT_EXIT(use("v7"), testing::ExitedWithCode(0),
              "^REEL_ISA: must be an instruction set that this CPU has and Reel was built for .*v2.*, got 'v7'");
}

// These tests are not linked with the CUDA backend.
TEST(Backend, SaysThatTheCudaLibraryIsMissing) {
  EXPECT_EQ(Device::best(), Device::cpu());
  try {
    backend(Device::cuda(1));
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("device: cuda:1 is not to be had: "), 0u) << text;
    EXPECT_NE(text.find("libreel-cuda.so"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace reel
