// What the benchmarks time asks the system for no memory once it has been done before: the rows of small models, and of kernels.

#include <gtest/gtest.h>

#include <algorithm>

#include "../benchmarks/reel_rows.h"
#include "reel/tests/malloc_count.h"

namespace reel {
namespace {

void expect_no_calls(const std::vector<bench::Row>& rows) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  set_num_threads(std::min(num_threads(), 16));  // larger teams are not provided with large rooms
  for (const bench::Row& row : rows) {
    SCOPED_TRACE(row.name);
    release_cached_memory();  // what other rows left
    const std::int64_t first = malloc_calls();
    const bench::Work work = row.make();
    for (int i = 0; i < 3; ++i) work.calls(4);  // the last result stays while the next calls are made
    const std::int64_t before = malloc_calls();
    EXPECT_GT(before, first);  // they are counted
    work.calls(4);
    EXPECT_EQ(malloc_calls() - before, 0);
  }
}

TEST(SteadyRows, OfModelsCallMallocZeroTimes) {
  const std::vector<bench::Row> rows = bench::model_rows();
  for (const std::string name : {"add_1", "add_chain_100", "mlp_64_64_10_sgd", "transformer_64"})
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const bench::Row& row) { return row.name == name; })) << name;
  expect_no_calls(rows);
}

/// Reel's own ways to compute a row, not those that it is compared with, and of sizes that take milliseconds.
std::vector<bench::Row> quick(std::vector<bench::Row> rows, std::size_t expected) {
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [](const bench::Row& row) {
                              return row.warm_calls == 0 || row.name.find('@') != std::string::npos ||
                                     row.name.find("_512") != std::string::npos ||
                                     row.name.find("1e4x1e4") != std::string::npos;
                            }),
             rows.end());
  EXPECT_GE(rows.size(), expected);
  return rows;
}
TEST(SteadyRows, OfKernelsCallMallocZeroTimes) { expect_no_calls(quick(bench::kernel_rows(), 100)); }
TEST(SteadyRows, OfLayersCallMallocZeroTimes) { expect_no_calls(quick(bench::layer_rows(), 50)); }
TEST(SteadyRows, OfRaggedTensorsCallMallocZeroTimes) { expect_no_calls(quick(bench::ragged_rows(), 20)); }

}  // namespace
}  // namespace reel
