// Every row of docs/performance.md that Reel computes. With --serve it is one side of scripts/bench; otherwise a program of
// Google Benchmark: benchmark_rows --benchmark_filter=softmax

#include <benchmark/benchmark.h>

#include "reel_rows.h"
#include "reel/core/parallel.h"

int main(int argc, char** argv) {
  std::vector<bench::Row> rows;
  for (const auto& part :
       {bench::model_rows(), bench::kernel_rows(), bench::layer_rows(), bench::ragged_rows(), bench::gpu_rows()})
    rows.insert(rows.end(), part.begin(), part.end());

  const int status = bench::serve(argc, argv, rows, [](int threads) { reel::set_num_threads(threads); });
  if (status >= 0) return status;

  const int threads = reel::num_threads();
  for (const bench::Row& row : rows)
    benchmark::RegisterBenchmark(row.name.c_str(), [&row, threads](benchmark::State& state) {
      reel::set_num_threads(row.threads > 0 ? row.threads : threads);
      const bench::Work work = row.make();
      work.calls(3);
      for (auto _ : state) work.calls(1);
    })->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
