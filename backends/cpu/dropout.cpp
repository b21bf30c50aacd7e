// Dropout: the uniform numbers are made a piece at a time, compared and forgotten.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kPiece = 2048;  // elements: whole Philox blocks
/// Pieces: a random number costs as much as several additions. Of two chunks two threads take 0.65 of one's time (benchmark_grains).
constexpr int64_t kDropoutGrain = 2;

/// The smallest multiple of the uniform numbers' step, 2^-24 or 2^-53, that is not below p.
template <class T>
T threshold(double p) {
  constexpr double steps = sizeof(T) == 4 ? 0x1p24 : 0x1p53;
  return static_cast<T>(__builtin_ceil(p * steps) / steps);
}

/// Elements [first, first + count) of y.
template <class T>
void drop(CpuOps& ops, const T* x, const PhiloxState& state, T limit, T scale, int64_t first, int64_t count, T* y) {
  constexpr int64_t per_block = sizeof(T) == 4 ? 4 : 2;
  T uniform[kPiece];
  Array numbers;
  numbers.data = uniform;
  numbers.size = count;
  numbers.dtype = sizeof(T) == 4 ? DType::f32 : DType::f64;
  ops.random(RandomOp::uniform, numbers,
             {state.seed, state.stream, state.counter + static_cast<std::uint64_t>(first / per_block)});
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[first + i] = uniform[i] >= limit ? x[first + i] * scale : T(0);
}

}  // namespace

void CpuOps::dropout(const Array& x, double p, const PhiloxState& state, const Array& y) {
  dispatch_floating(x.dtype, [&]<class T>() {
    const T limit = threshold<T>(p), scale = static_cast<T>(1 / (1 - p));
    parallel_for(ceil_div(x.size, kPiece), kDropoutGrain, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kPiece; first < min(end * kPiece, x.size); first += kPiece)
        drop(*this, x.as<T>(), state, limit, scale, first, min(kPiece, x.size - first), y.as<T>());
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
