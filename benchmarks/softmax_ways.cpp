// Other ways to compute a softmax, beside which Reel's is measured: three loops over each row, as it is written first, and "online",
// where one loop finds the maximum and the sum of the exponentials together (Milakov and Gimelshein 2018, "Online normalizer
// calculation for softmax"), and a second one computes the exponentials again for the result. Reel's kernels pass three times over
// a row, while it is in cache, and compute each exponential once; what their vectors save is seen beside these, so they are compiled
// for the machine they run on and take Reel's own exponential and threads.

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

void online(const float* x, float* y, Int n) {
  constexpr Int lanes = 16;
  alignas(64) float largest[lanes], total[lanes] = {};
  std::fill_n(largest, lanes, -INFINITY);
  const auto take = [&](const float* part) __attribute__((always_inline)) {
    int grows = 0;
#pragma omp simd reduction(| : grows)
    for (Int k = 0; k < lanes; ++k) grows |= part[k] > largest[k] ? 1 : 0;
    if (grows != 0) {  // seldom: of n numbers the largest so far changes log n times
#pragma omp simd
      for (Int k = 0; k < lanes; ++k) {
        const float next = part[k] > largest[k] ? part[k] : largest[k];
        total[k] *= reel::scalar::exp(largest[k] - next);
        largest[k] = next;
      }
    }
#pragma omp simd
    for (Int k = 0; k < lanes; ++k) total[k] += reel::scalar::exp(part[k] - largest[k]);
  };
  Int i = 0;
  for (; i + lanes <= n; i += lanes) take(x + i);
  if (i < n) {
    float rest[lanes];
    std::fill_n(rest, lanes, -INFINITY);
    std::copy(x + i, x + n, rest);
    if (i == 0) std::fill(rest + n, rest + lanes, *std::min_element(x, x + n) - 100);  // so that each lane has a number
    take(rest);
  }

  const float shift = *std::max_element(largest, largest + lanes);
  float sum = 0;
  for (Int k = 0; k < lanes; ++k) sum += total[k] * reel::scalar::exp(largest[k] - shift);
  const float share = 1 / sum;
#pragma omp simd
  for (Int k = 0; k < n; ++k) y[k] = reel::scalar::exp(x[k] - shift) * share;
}

Work softmax_of_rows(Int rows, Int cols, void (*row)(const float* x, float* y, Int n)) {
  const reel::Tensor x = tensor(1, {rows, cols});
  return forward([=] {
    reel::Tensor y = reel::empty(x.shape());
    const float* const from = x.data<float>().data();
    float* const to = y.mutable_data<float>().data();
    reel::parallel_for(rows, std::max<Int>(1, 8192 / cols), [=](Int begin, Int end) {
      for (Int r = begin; r < end; ++r) row(from + r * cols, to + r * cols, cols);
    });
    return y;
  });
}

}  // namespace

Work three_pass_softmax(Int rows, Int cols) { return softmax_of_rows(rows, cols, three_passes); }
Work online_softmax(Int rows, Int cols) { return softmax_of_rows(rows, cols, online); }

}  // namespace bench
