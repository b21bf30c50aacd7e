// The machine's limits, measured beside everything else since clocks and memory change from minute to minute. `count` in the
// answers is the work of one call: FLOP of limit_fma*, bytes of the others (read and written counted once each; a plain write
// also costs a read, which is not counted). Compiled for the machine it runs on.

#include <omp.h>

#include <cstdio>
#include <memory>

#include "runner.h"

namespace {

using bench::Row;
using bench::Work;

constexpr std::int64_t kMemory = std::int64_t{64} << 20;  // floats: far beyond all caches
constexpr std::int64_t kCached = std::int64_t{1} << 20;   // floats: within the last cache, beyond the second

#ifdef __AVX512F__
constexpr int kVectorBytes = 64, kChains = 24;
#else
constexpr int kVectorBytes = 32, kChains = 12;
#endif
typedef float Vector __attribute__((vector_size(kVectorBytes)));

Work limit(double work, std::function<void()> call) {
  return {bench::repeated(std::move(call)), [work] { return bench::Digest{0, 0, static_cast<std::int64_t>(work)}; }};
}

/// Independent fma chains in registers, nothing else.
__attribute__((noinline)) void run_chains(int rounds) {
  Vector chains[kChains] = {};
  float one = 1;
  asm volatile("" : "+m"(one));
  const Vector x = one - Vector{};
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) chains[i] += x * chains[i];
  }
  asm volatile("" : : "r"(chains) : "memory");
}

Work fma_limit(int threads) {
  constexpr int kRounds = 20'000;
  const double flop = 2.0 * kRounds * kChains * (kVectorBytes / sizeof(float)) * threads;
  return limit(flop, [threads] {
#pragma omp parallel num_threads(threads)
    run_chains(kRounds);
  });
}

struct Arrays {
  std::vector<float> a, b;
  explicit Arrays(std::int64_t count) : a(static_cast<std::size_t>(count), 1), b(static_cast<std::size_t>(count)) {}
};

Work read_limit(std::int64_t count) {
  auto x = std::make_shared<Arrays>(count);
  return limit(static_cast<double>(count) * 4, [x, count] {
    float total = 0;
    const float* a = x->a.data();
#pragma omp parallel for simd reduction(+ : total) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) total += a[i];
    asm volatile("" : : "m"(total));
  });
}
Work write_limit(std::int64_t count) {
  auto x = std::make_shared<Arrays>(count);
  return limit(static_cast<double>(count) * 4, [x, count] {
    float* b = x->b.data();
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) b[i] = 3;
    asm volatile("" : : "r"(b) : "memory");
  });
}
Work copy_limit(std::int64_t count) {
  auto x = std::make_shared<Arrays>(count);
  return limit(static_cast<double>(count) * 8, [x, count] {
    const float* a = x->a.data();
    float* b = x->b.data();
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) b[i] = a[i] + 1;
    asm volatile("" : : "r"(b) : "memory");
  });
}
Work region_limit() {
  return limit(0, [] {
#pragma omp parallel
    asm volatile("" : : : "memory");
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Row> rows = {
      {"limit_fma_1", 1, [] { return fma_limit(1); }},
      {"limit_fma", 0, [] { return fma_limit(omp_get_max_threads()); }},
      {"limit_read", 0, [] { return read_limit(kMemory); }},
      {"limit_write", 0, [] { return write_limit(kMemory); }},
      {"limit_copy", 0, [] { return copy_limit(kMemory); }},
      {"limit_cached_read", 0, [] { return read_limit(kCached); }},
      {"limit_cached_copy", 0, [] { return copy_limit(kCached); }},
      {"limit_parallel_region", 0, region_limit},
  };
  const int status = bench::serve(argc, argv, rows, [](int threads) { omp_set_num_threads(threads); });
  if (status < 0) std::fputs("usage: benchmark_limits --rows | --serve\n", stderr);
  return status < 0 ? 2 : status;
}
