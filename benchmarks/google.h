#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <vector>

#include "runner.h"

namespace bench {

/// Main program of what is one side of scripts/bench (`serve`), or without its options a program of Google Benchmark. `threads` are
/// those of rows that are bound to none. Where a row tells its work, so do the counters.
inline int serve_or_run(int argc, char** argv, const std::vector<Row>& rows, int threads,
                        const std::function<void(int)>& set_threads) {
  if (const int status = serve(argc, argv, rows, set_threads); status >= 0) return status;

  for (const Row& row : rows)
    benchmark::RegisterBenchmark(row.name.c_str(), [&](benchmark::State& state) {
      set_threads(row.threads > 0 ? row.threads : threads);
      const Work work = row.make();
      work.calls(row.warm_calls);
      for (auto _ : state) work.calls(1);
      const auto rate = [&](const char* name, double amount) {
        if (amount > 0)
          state.counters[name] = benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
      };
      rate("B/s", work.bytes);
      rate("FLOP/s", work.flops);
    })->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
