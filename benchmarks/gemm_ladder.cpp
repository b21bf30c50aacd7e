// The matrix product from 8 to 1024 and at the shapes of training steps, beside the machine's peak and, where it is
// installed, Eigen. Compare shares of the peak within one run: clocks differ between runs.
//
//   benchmark_gemm_ladder --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//       --benchmark_report_aggregates_only=true
//
// OMP_NUM_THREADS and REEL_ISA choose the threads (Eigen's too) and the instruction set.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/parallel.h"

#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#define REEL_BENCHMARK_EIGEN
#endif

namespace {

/// Sizes and layouts of one product; "NT" means that b is stored transposed.
struct Shape {
  std::int64_t m, n, k;
  bool trans_a, trans_b;

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + "/" + (trans_a ? "T" : "N") +
           (trans_b ? "T" : "N");
  }
};

void count_work(benchmark::State& state, double flops_per_iteration) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// Independent fma chains in registers, nothing else: one core's limit.
template <int bytes>
__attribute__((always_inline)) inline void run_chains(benchmark::State& state) {
  constexpr int kChains = bytes == 64 ? 24 : 12, kRounds = 1000;
  typedef float Vector __attribute__((vector_size(bytes)));
  Vector chains[kChains] = {};
  float one = 1;
  benchmark::DoNotOptimize(one);
  const Vector x = one - Vector{};
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i) chains[i] += x * chains[i];
    }
    benchmark::DoNotOptimize(chains);
  }
  count_work(state, 2.0 * kRounds * kChains * (bytes / sizeof(float)));
}
__attribute__((target("avx512f"))) void fma_peak_512(benchmark::State& state) { run_chains<64>(state); }
__attribute__((target("avx2,fma"))) void fma_peak_256(benchmark::State& state) { run_chains<32>(state); }

struct Operands {
  std::vector<float> a, b, c;
  explicit Operands(const Shape& s) : a(s.m * s.k), b(s.k * s.n), c(s.m * s.n) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
  }
};

void reel_product(benchmark::State& state, Shape s) {
  Operands x(s);
  reel::Gemm gemm;
  gemm.m = s.m, gemm.n = s.n, gemm.k = s.k;
  gemm.trans_a = s.trans_a, gemm.trans_b = s.trans_b;
  gemm.a = x.a.data(), gemm.b = x.b.data(), gemm.c = x.c.data();
  gemm.lda = s.trans_a ? s.m : s.k, gemm.ldb = s.trans_b ? s.k : s.n, gemm.ldc = s.n;
  reel::Ops& cpu = reel::backend(reel::Device::cpu());
  for (auto _ : state) {
    cpu.gemm(gemm);
    benchmark::ClobberMemory();
  }
  count_work(state, 2.0 * s.m * s.n * s.k);
}

#ifdef REEL_BENCHMARK_EIGEN
void eigen_product(benchmark::State& state, Shape s) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Operands x(s);
  const Eigen::Map<const Matrix> a(x.a.data(), s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k);
  const Eigen::Map<const Matrix> b(x.b.data(), s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n);
  Eigen::Map<Matrix> c(x.c.data(), s.m, s.n);
  Eigen::setNbThreads(reel::num_threads());
  for (auto _ : state) {
    if (s.trans_a) {
      c.noalias() = a.transpose() * b;
    } else if (s.trans_b) {
      c.noalias() = a * b.transpose();
    } else {
      c.noalias() = a * b;
    }
    benchmark::ClobberMemory();
  }
  count_work(state, 2.0 * s.m * s.n * s.k);
}
#endif

void add(const Shape& shape) {
  benchmark::RegisterBenchmark(("reel/" + shape.name()).c_str(), reel_product, shape)->UseRealTime();
#ifdef REEL_BENCHMARK_EIGEN
  benchmark::RegisterBenchmark(("eigen/" + shape.name()).c_str(), eigen_product, shape)->UseRealTime();
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (__builtin_cpu_supports("avx512f")) benchmark::RegisterBenchmark("fma_peak/512", fma_peak_512);
  if (__builtin_cpu_supports("fma")) benchmark::RegisterBenchmark("fma_peak/256", fma_peak_256);
  for (const std::int64_t n : {8, 16, 32, 64, 128, 256, 512, 1024}) {
    add({n, n, n, false, false});
    add({n, n, n, false, true});
    add({n, n, n, true, false});
  }
  // A layer's forward pass (NT), the gradient of its input (NN) and of its weight (TN).
  struct Layer {
    std::int64_t batch, in, out;
  };
  for (const auto& [batch, in, out] :
       {Layer{32, 784, 512}, Layer{128, 512, 512}, Layer{64, 784, 128}, Layer{8, 16, 32}}) {
    add({batch, out, in, false, true});
    add({batch, in, out, false, false});
    add({out, in, batch, true, false});
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
