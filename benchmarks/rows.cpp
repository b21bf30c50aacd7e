// Every row of docs/performance.md that Reel computes. With --serve it is one side of scripts/bench; otherwise a program of
// Google Benchmark: benchmark_rows --benchmark_filter=softmax

#include "google.h"
#include "reel_rows.h"
#include "reel/core/parallel.h"

int main(int argc, char** argv) {
  std::vector<bench::Row> rows;
  for (const auto& part :
       {bench::model_rows(), bench::kernel_rows(), bench::layer_rows(), bench::ragged_rows(), bench::gpu_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return bench::serve_or_run(argc, argv, rows, reel::num_threads(),
                             [](int threads) { reel::set_num_threads(threads); });
}
