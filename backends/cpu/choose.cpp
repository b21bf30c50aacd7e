// y = condition ? a : b, as bits and without a branch: conditions are seldom foreseen.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

using Run = void (*)(const std::uint8_t* condition, const void* a, const void* b, void* y, int64_t count);

template <class T>
void run(const std::uint8_t* condition, const void* a, const void* b, void* y, int64_t count) {
  const T *const from_a = static_cast<const T*>(a), *const from_b = static_cast<const T*>(b);
  T* const to = static_cast<T*>(y);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T one = from_a[i], other = from_b[i];
    to[i] = condition[i] != 0 ? one : other;
  }
}

/// A side of the choice: its elements, or copies of its only one, as many as go into a piece.
struct Side {
  static constexpr int64_t kBytes = 1024;

  const char* elements;
  char copies[kBytes];
  bool one;

  Side(const Array& x, int64_t size, int64_t count) : elements(x.as<char>()), one(x.size == 1) {
    if (one) fill_copies(copies, elements, size, min(kBytes, count * size));
  }
  const char* at(int64_t byte) const { return one ? copies : elements + byte; }
};

}  // namespace

void CpuOps::choose(const Array& condition, const Array& a, const Array& b, const Array& y) {
  const auto size = static_cast<int64_t>(size_of(y.dtype));
  const Run run_of_size = dispatch_bytes(size_of(y.dtype), []<class T>() -> Run { return run<T>; });
  const Side side_a(a, size, y.size), side_b(b, size, y.size);
  parallel_for(y.size, even_chunk(y.size), [&](int64_t begin, int64_t end) {
    const int64_t step = side_a.one || side_b.one ? Side::kBytes / size : end - begin;
    for (int64_t i = begin; i < end; i += step)
      run_of_size(condition.as<std::uint8_t>() + i, side_a.at(i * size), side_b.at(i * size), y.as<char>() + i * size,
                  min(step, end - i));
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
