// The machine's limits, measured beside everything else since clocks and memory change from minute to minute: what a call reads
// and writes is counted once each (a plain write also costs a read, which is not counted; a streaming one does not). Compiled
// for the machine it runs on, and knows nothing of Reel.

#include <immintrin.h>
#include <omp.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "runner.h"

namespace {

using bench::Row;
using bench::Work;

// Floats of one array: far beyond all caches; 40 MB, which many last caches have; the 13 MB of the rows of sequences, two of which
// are more than many last caches give one program; 4 MB, which some second caches have together; within the last cache and beyond
// the second; within the second; 40 KB, more than many first caches have.
constexpr std::int64_t kMemory = std::int64_t{64} << 20, k40MB = 10'000'000, k13MB = 64 * 51'075, k4MB = 1'000'000,
                       kCached = std::int64_t{2} << 20, kSecond = std::int64_t{1} << 17, k40KB = 10'000;

#ifdef __AVX512F__
constexpr int kVectorBytes = 64, kChains = 24, kTileRows = 14, kFedRows = 14, kFedVectors = 2;
#else
constexpr int kVectorBytes = 32, kChains = 12, kTileRows = 6, kFedRows = 4, kFedVectors = 3;
#endif
constexpr int kFedSteps = 128;  // a and b take 23 KB, with narrower registers 14
typedef float Vector __attribute__((vector_size(kVectorBytes)));

Work limit(double bytes, double flops, std::function<void()> call) {
  return {bench::repeated(std::move(call)), [] { return bench::Digest(); }, {}, bytes, flops};
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
  return limit(0, 2.0 * kRounds * kChains * (kVectorBytes / sizeof(float)) * threads, [threads] {
#pragma omp parallel num_threads(threads)
    run_chains(kRounds);
  });
}

/// Adds *a times each of b to `sums`, row i of a tile. With AVX-512 most multiply-adds read *a themselves, which takes fewer
/// instructions: they are what a core is short of while its other thread is busy. (All would be more loads than there is time for.)
template <int n>
__attribute__((always_inline)) inline void add_row(int i, const float* a, const Vector (&b)[n], Vector (&sums)[n]) {
#ifdef __AVX512F__
  if (i % 4 != 0) {
#pragma GCC unroll 4
    for (int v = 0; v < n; ++v) asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sums[v]) : "v"(b[v]), "m"(*a));
    return;
  }
#endif
  const Vector a_i = *a - Vector{};
#pragma GCC unroll 4
  for (int v = 0; v < n; ++v) sums[v] += a_i * b[v];
}

/// The fma chains of a matrix product's tile, their operands read from the first-level cache: per step kFedVectors registers of b
/// and kFedRows single elements of a. What the registers-only limit leaves out is that reading, at which clocks fall too.
__attribute__((noinline)) void run_fed_chains(int rounds, const float* a, const float* b) {
  constexpr int kLanes = kVectorBytes / sizeof(float);
  Vector chains[kFedRows][kFedVectors] = {};
  for (int round = 0; round < rounds; ++round) {
    for (int k = 0; k < kFedSteps; ++k) {
      const float* a_k = a + k * kFedRows;
      asm volatile("" : "+r"(a_k));  // or the elements would be kept or computed with outside the loop
      Vector b_k[kFedVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kFedVectors; ++v) {
        b_k[v] = *reinterpret_cast<const Vector*>(b + (k * kFedVectors + v) * kLanes);
        asm volatile("" : "+v"(b_k[v]));  // or each use would read it again, more than some processors can in the time
      }
#pragma GCC unroll 16
      for (int i = 0; i < kFedRows; ++i) add_row(i, a_k + i, b_k, chains[i]);
    }
  }
  Vector sum = {};  // not the chains' address, which the elements of a might alias
#pragma GCC unroll 16
  for (int i = 0; i < kFedRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kFedVectors; ++v) sum += chains[i][v];
  asm volatile("" : : "m"(sum));
}

Work fed_fma_limit(int threads) {
  constexpr int kRounds = 200;
  constexpr double kFlops = 2.0 * kRounds * kFedSteps * kFedRows * kFedVectors * (kVectorBytes / sizeof(float));
  return limit(0, kFlops * threads, [threads] {
#pragma omp parallel num_threads(threads)
    {
      alignas(64) static thread_local float a[kFedSteps * kFedRows],
          b[kFedSteps * kFedVectors * kVectorBytes / sizeof(float)];
      run_fed_chains(kRounds, a, b);
    }
  });
}

struct Arrays {
  explicit Arrays(std::int64_t count) : a(allocate(count)), b(allocate(count)) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) a.get()[i] = 1, b.get()[i] = 0;
  }
  using Block = std::unique_ptr<float, void (*)(void*)>;
  /// Large ones of huge pages, as far as the system gives them.
  static Block allocate(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    const std::size_t page = bytes >= std::size_t{4} << 20 ? std::size_t{2} << 20 : 4096;
    const std::size_t rounded = (bytes + page - 1) / page * page;
    void* const block = std::aligned_alloc(page, rounded);
#if defined(MADV_HUGEPAGE)
    if (page > 4096) madvise(block, rounded, MADV_HUGEPAGE);
#endif
    return {static_cast<float*>(block), std::free};
  }
  Block a, b;
};
/// The arrays of all limits of one size.
std::shared_ptr<Arrays> arrays(std::int64_t count) {
  static std::map<std::int64_t, std::weak_ptr<Arrays>> all;
  std::shared_ptr<Arrays> x = all[count].lock();
  if (!x) all[count] = x = std::make_shared<Arrays>(count);
  return x;
}

/// One tile of a product of operands that lie packed: c [rows, two registers] = a b, a's columns of `rows` elements and b's rows
/// following each other.
template <int rows>
__attribute__((noinline)) void run_tile(std::int64_t k, const float* a, const float* b, float* c, std::int64_t stride) {
  constexpr int kLanes = kVectorBytes / sizeof(float);
  Vector chains[rows][2] = {};
  for (; k > 0; --k, a += rows, b += 2 * kLanes) {
    const Vector b_k[2] = {*reinterpret_cast<const Vector*>(b), *reinterpret_cast<const Vector*>(b + kLanes)};
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) add_row(i, a + i, b_k, chains[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i, c += stride) {
    *reinterpret_cast<Vector*>(c) = chains[i][0];
    *reinterpret_cast<Vector*>(c + kLanes) = chains[i][1];
  }
}

template <int rows = kTileRows>
void run_tile_of(std::int64_t height, std::int64_t k, const float* a, const float* b, float* c, std::int64_t stride) {
  if constexpr (rows > 0) {
    if (height == rows) run_tile<rows>(k, a, b, c, stride);
    else run_tile_of<rows - 1>(height, k, a, b, c, stride);
  }
}

/// The product [m, k] x [k, n] on all threads if its operands lay packed already, and no order of summation were asked for but the
/// one that is fastest: what a product of that size, whose operands come from the second cache, can reach. n: a multiple of two
/// registers for each thread.
Work product_limit(std::int64_t m, std::int64_t n, std::int64_t k) {
  struct Operands {
    std::shared_ptr<Arrays> ab, c;
  };
  return limit(0, 2.0 * static_cast<double>(m * n * k), [=, x = Operands{arrays(k * (m + n)), arrays(m * n)}] {
    constexpr std::int64_t kPanel = 2 * kVectorBytes / sizeof(float);
    const std::int64_t tiles = (m + kTileRows - 1) / kTileRows;
    float* const c = x.c->b.get();
#pragma omp parallel for schedule(static)
    for (std::int64_t panel = 0; panel < n / kPanel; ++panel)
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t row = m * t / tiles, height = m * (t + 1) / tiles - row;
        run_tile_of(height, k, x.ab->a.get() + row * k, x.ab->b.get() + panel * k * kPanel,
                    c + row * n + panel * kPanel, n);
      }
  });
}

/// The sum of count floats, in eight sums and line after line: a processor that sees lines out of order does not fetch ahead.
__attribute__((noinline)) float read_in_order(const float* a, std::int64_t count) {
  constexpr std::int64_t kLanes = kVectorBytes / sizeof(float), kSums = 8;
  typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(float))));
  Vector sums[kSums] = {};
  const float* const end = a + count;
  for (; end - a >= kSums * kLanes; a += kSums * kLanes)
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kSums; ++k) sums[k] += *reinterpret_cast<const Unaligned*>(a + k * kLanes);
  float total = 0;
  for (const Vector& sum : sums)
    for (std::int64_t k = 0; k < kLanes; ++k) total += sum[k];
  for (; a < end; ++a) total += *a;
  return total;
}

Work read_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 4, 0, [x = arrays(count), count] {
    const float* const a = x->a.get();
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads(), own = omp_get_thread_num();
      const std::int64_t begin = count * own / threads, end = count * (own + 1) / threads;
      const float total = read_in_order(a + begin, end - begin);
      asm volatile("" : : "m"(total));
    }
  });
}
/// On this thread.
Work read_alone_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 4, 0, [x = arrays(count), count] {
    const float total = read_in_order(x->a.get(), count);
    asm volatile("" : : "m"(total));
  });
}
Work write_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 4, 0, [x = arrays(count), count] {
    float* b = x->b.get();
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) b[i] = 3;
    asm volatile("" : : "r"(b) : "memory");
  });
}
Work copy_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 8, 0, [x = arrays(count), count] {
    const float* a = x->a.get();
    float* b = x->b.get();
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) b[i] = a[i] + 1;
    asm volatile("" : : "r"(b) : "memory");
  });
}
/// Each thread writes its part, and reads what the next one has written: what sharing between cores costs here.
Work handed_over_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 8, 0, [x = arrays(count), count] {
    float* b = x->b.get();
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads(), own = omp_get_thread_num(), next = (own + 1) % threads;
      for (std::int64_t i = count * own / threads; i < count * (own + 1) / threads; ++i) b[i] = 3;
#pragma omp barrier
      float total = 0;
#pragma omp simd reduction(+ : total)
      for (std::int64_t i = count * next / threads; i < count * (next + 1) / threads; ++i) total += b[i];
      asm volatile("" : : "m"(total));
    }
  });
}
#ifdef __AVX__
/// With stores that do not read the line that they write.
Work stream_copy_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 8, 0, [x = arrays(count), count] {
    const float* a = x->a.get();
    float* b = x->b.get();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; i += 8) _mm256_stream_ps(b + i, _mm256_load_ps(a + i));
    _mm_sfence();
  });
}
Work stream_write_limit(std::int64_t count) {
  return limit(static_cast<double>(count) * 4, 0, [x = arrays(count), count] {
    float* b = x->b.get();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; i += 8) _mm256_stream_ps(b + i, _mm256_set1_ps(3));
    _mm_sfence();
  });
}
#endif

/// 996 instructions that wait for nothing, one in three a load from the first cache, and the loop's own: as many as the processor
/// takes in at once.
Work instruction_limit() {
  return limit(0, 0, [] {
    long a = 0, b = 0, c = 0, d = 0, e, f, memory = 0;
    asm volatile(
        ".rept 166\n"
        "add $1, %0\n add $1, %1\n add $1, %2\n add $1, %3\n mov %6, %4\n mov %6, %5\n"
        ".endr"
        : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "=&r"(e), "=&r"(f)
        : "m"(memory)
        : "cc");
  });
}
Work region_limit() {
  return limit(0, 0, [] {
#pragma omp parallel
    asm volatile("" : : : "memory");
  });
}
Work atomic_limit() {
  return limit(0, 0,
               [count = std::make_shared<std::atomic<int>>(0)] { count->fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Row> rows = {
      {"limit_fma_1", 1, [] { return fma_limit(1); }},
      {"limit_fma", 0, [] { return fma_limit(omp_get_max_threads()); }},
      {"limit_fed_fma_1", 1, [] { return fed_fma_limit(1); }},
      {"limit_fed_fma", 0, [] { return fed_fma_limit(omp_get_max_threads()); }},
      {"limit_product_128x128x128", 0, [] { return product_limit(128, 128, 128); }},
      {"limit_product_32x784x512", 0, [] { return product_limit(32, 512, 784); }},
      {"limit_product_128x784x512", 0, [] { return product_limit(128, 512, 784); }},
      {"limit_product_128x512x512", 0, [] { return product_limit(128, 512, 512); }},
      {"limit_product_784x128x512", 0, [] { return product_limit(784, 512, 128); }},
      {"limit_product_512x128x512", 0, [] { return product_limit(512, 512, 128); }},
      {"limit_read", 0, [] { return read_limit(kMemory); }},
      {"limit_write", 0, [] { return write_limit(kMemory); }},
      {"limit_copy", 0, [] { return copy_limit(kMemory); }},
#ifdef __AVX__
      {"limit_stream_write", 0, [] { return stream_write_limit(kMemory); }},
      {"limit_stream_copy", 0, [] { return stream_copy_limit(kMemory); }},
#endif
      {"limit_40mb_read", 0, [] { return read_limit(k40MB); }},
      {"limit_40mb_copy", 0, [] { return copy_limit(k40MB); }},
#ifdef __AVX__
      {"limit_40mb_stream_copy", 0, [] { return stream_copy_limit(k40MB); }},
#endif
      {"limit_13mb_read", 0, [] { return read_limit(k13MB); }},
      {"limit_13mb_copy", 0, [] { return copy_limit(k13MB); }},
#ifdef __AVX__
      {"limit_13mb_stream_copy", 0, [] { return stream_copy_limit(k13MB); }},
#endif
      {"limit_4mb_read", 0, [] { return read_limit(k4MB); }},
      {"limit_cached_read", 0, [] { return read_limit(kCached); }},
      {"limit_cached_write", 0, [] { return write_limit(kCached); }},
      {"limit_cached_copy", 0, [] { return copy_limit(kCached); }},
      {"limit_l2_read", 0, [] { return read_limit(kSecond); }},
      {"limit_l2_copy", 0, [] { return copy_limit(kSecond); }},
      {"limit_40kb_read_1", 1, [] { return read_alone_limit(k40KB); }},
      {"limit_handed_over", 0, [] { return handed_over_limit(kSecond); }},
      {"limit_1000_instructions", 1, instruction_limit},
      {"limit_parallel_region", 0, region_limit},
      {"limit_atomic_add", 1, atomic_limit},
  };
  const int status = bench::serve(argc, argv, rows, [](int threads) { omp_set_num_threads(threads); });
  if (status < 0) std::fputs("usage: benchmark_limits --rows | --serve\n", stderr);
  return status < 0 ? 2 : status;
}
