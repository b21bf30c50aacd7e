// Vectors of a convolution reach beyond the rows of what it has packed: what they find there is nobody's result, but it should be
// zeros or numbers of the input.

#include <gtest/gtest.h>

#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/conv.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/tests/free_memory.h"

namespace reel::test {
namespace {

TEST(ConvMemory, ConvolutionsComputeNothingFromMemoryThatNobodyHasWritten) {
  const int before = num_threads();
  set_num_threads(1);
  // Rows of whole vectors and others, joined and one by one, of one block and of several, whose last may be of the other kind.
  const Shape images[] = {{1, 1, 64, 64}, {2, 3, 9, 7},     {1, 16, 14, 14},
                          {1, 4, 33, 70}, {1, 2, 150, 301}, {1, 2, 6, 1000}};
  const ConvOptions ways[] = {{.padding = {1}},
                              {.padding = {2}, .dilation = {2}},
                              {.stride = {2}},
                              {.stride = {2}, .padding = {1}, .dilation = {2}},
                              {.stride = {3}, .padding = {2}},
                              {.padding = {1}, .mode = PaddingMode::replicate}};
  for (const DType dtype : {f32, f64})
    for (const Shape& shape : images)
      for (const std::int64_t out : {1, 5, 16})
        for (const std::int64_t kernel : {1, 2, 3})
          for (const ConvOptions& way : ways) {
            const Tensor x = randn(shape, {.dtype = dtype}),
                         w = randn({out, shape[1], kernel, kernel}, {.dtype = dtype});
            const auto train = [&] {
              Tape tape;
              tape.watch(x);
              tape.watch(w);
              tape.gradient(sum(conv2d_relu(x, w, {}, way)), {x, w});
            };
            EXPECT_FALSE(computes_from_free_memory(train)) << reel::name_of(dtype) << " " << shape.str() << " " << out
                                                           << " outputs, kernel " << kernel << ", way " << &way - ways;
          }
  set_num_threads(before);
}

}  // namespace
}  // namespace reel::test
