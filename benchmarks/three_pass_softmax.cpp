// Softmax as it is written first: three loops over each row. Reel's kernels pass three times over a row too, while it is in the first
// cache; what their vectors save is seen beside this, so it is compiled for the machine it runs on and takes Reel's own
// exponential and threads.

#include <algorithm>
#include <cmath>

#include "reel_rows.h"
#include "reel/core/parallel.h"
#include "reel/core/scalar/exp.h"

namespace bench {

namespace {

void three_passes(const float* x, float* y, Int n) {
  float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
  for (Int i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (Int i = 0; i < n; ++i) total += y[i] = reel::scalar::exp(x[i] - largest);
  const float share = 1 / total;
  for (Int i = 0; i < n; ++i) y[i] *= share;
}

}  // namespace

Work three_pass_softmax(Int rows, Int cols) {
  const reel::Tensor x = tensor(1, {rows, cols});
  return forward([=] {
    reel::Tensor y = reel::empty(x.shape());
    const float* const from = x.data<float>().data();
    float* const to = y.mutable_data<float>().data();
    reel::parallel_for(rows, std::max<Int>(1, 8192 / cols), [=](Int begin, Int end) {
      for (Int r = begin; r < end; ++r) three_passes(from + r * cols, to + r * cols, cols);
    });
    return y;
  });
}

}  // namespace bench
