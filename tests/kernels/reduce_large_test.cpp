// Reductions of arrays that count as in memory, is_past_caches of stream.h: other loops run then, which ask for lines ahead.

#include <gtest/gtest.h>

#include <algorithm>

#include "reel/core/parallel.h"
#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

// Where rows have gaps nothing is asked for.
TEST(ReduceLarge, SumsHaveTheBitsOfThoseWithGaps) {
  for (const std::int64_t width : {15, 16, 63, 64, 100, 127, 128, 129, 500, 512, 513}) {
    const Shape shape{bytes_past_caches() / (4 * width) + 11, width};
    const auto x = random_array<float>(shape, 36, Layout::contiguous);
    TestArray<float> gapped(shape, Layout::gapped);
    for (std::int64_t i = 0; i < x.size(); ++i) gapped.set(i, x[i]);
    for (const Shape& to : {Shape{shape[0], 1}, Shape{1, width}}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
        TestArray<float> y(to), expected(to);
        cpu().reduce(op, x, y, nullptr);
        cpu().reduce(op, gapped, expected, nullptr);
        EXPECT_TRUE(same_bits(y, expected)) << shape.str() << " to " << to.str();
        for (const int threads : {1, 3}) {
          const Threads use(threads);
          TestArray<float> again(to);
          cpu().reduce(op, x, again, nullptr);
          EXPECT_TRUE(same_bits(again, expected)) << shape.str() << " to " << to.str() << ", threads: " << threads;
        }
        EXPECT_TRUE(y.margins_intact());
      }
    }
  }
}

}  // namespace
}  // namespace reel::test
