#pragma once

#include <cstdint>

#include "reel/core/scalar/unary.h"

/// The structs of REEL_UNARY_OPS as loops over arrays, compiled once per instruction set with the flags of the CPU
/// kernels: what the tests measure is what users run.
namespace reel::scalar_test {

template <class T>
struct Loops {
  void (*forward)(std::int64_t n, const T* x, T* y);
  /// dx = dy derivative(saved)
  void (*backward)(std::int64_t n, const T* saved, const T* dy, T* dx);
  /// The struct's own, which CUDA's kernels call and `backward` need not.
  T (*derivative)(T saved);
};

struct UnaryLoops {
  const char* name;
  scalar::Saved saved;
  Loops<float> f32;
  Loops<double> f64;
};

/// Normal numbers: element i of pair i of (lane, lane) or (block, counter + i).
struct RandomLoops {
  void (*normal_f32)(std::int64_t n, const std::uint32_t* lanes, float* y);
  void (*normal_f64)(std::int64_t n, std::uint64_t seed, std::uint64_t stream, double* y);
};

/// y = x^exponent
struct PowLoops {
  void (*f32)(std::int64_t n, const float* x, const float* exponent, float* y);
  void (*f64)(std::int64_t n, const double* x, const double* exponent, double* y);
};

struct InstructionSet {
  const char* name;
  bool supported;
  const UnaryLoops* loops;
  std::int64_t count;
  RandomLoops random;
  PowLoops powers;
};

/// All sets that were compiled, v2 first; v2 has no fma.
inline constexpr int kInstructionSets = 3;
const InstructionSet* instruction_sets();

template <class T>
const Loops<T>& loops_of(const UnaryLoops& op) {
  if constexpr (sizeof(T) == 4) {
    return op.f32;
  } else {
    return op.f64;
  }
}

}  // namespace reel::scalar_test
