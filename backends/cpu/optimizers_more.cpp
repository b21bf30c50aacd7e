// RMSprop, Adagrad and averages of weights over flat buffers, as in optimizers.cpp.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/flat_ranges.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// A variance that rounding has made negative counts as 0.
template <class T>
void rmsprop_step(const RmspropRange& range, T* w, const T* g, T* v, T* a, T* m, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const V rate = factor<T>(-range.rate), decay = factor<T>(range.decay), epsilon = factor<T>(range.epsilon);
  const V alpha = factor<T>(range.alpha), rest = factor<T>(1 - range.alpha), momentum = factor<T>(range.momentum);
  const V scale = factor<T>(range.gradient_scale);
  const T least = scalar::least_divisor(static_cast<T>(range.epsilon));
  const bool decays = range.decay != 0, centered = range.centered, remembers = range.momentum != 0;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    const V weight = lanes.load(w + i);
    V grad = scale * lanes.load(g + i);
    if (decays) grad = grad + decay * weight;
    V square = decayed(alpha * lanes.load(v + i) + rest * (grad * grad), least);
    lanes.store(v + i, square);
    if (centered) {
      const V mean = decayed(alpha * lanes.load(a + i) + rest * grad);
      lanes.store(a + i, mean);
      square = max(V::zero(), square - mean * mean);
    }
    V step = grad / (sqrt(square) + epsilon);
    if (remembers) {
      step = decayed(momentum * lanes.load(m + i) + step);
      lanes.store(m + i, step);
    }
    lanes.store(w + i, weight + rate * step);
  });
}

template <class T>
void adagrad_step(const AdagradRange& range, T* w, const T* g, T* sum, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const V rate = factor<T>(-range.rate), decay = factor<T>(range.decay), epsilon = factor<T>(range.epsilon);
  const V scale = factor<T>(range.gradient_scale);
  const bool decays = range.decay != 0;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    const V weight = lanes.load(w + i);
    V grad = scale * lanes.load(g + i);
    if (decays) grad = grad + decay * weight;
    const V total = lanes.load(sum + i) + grad * grad;
    lanes.store(sum + i, total);
    lanes.store(w + i, weight + rate * grad / (sqrt(total) + epsilon));
  });
}

}  // namespace

template <class T>
void average_weights(const T* w, double decay, T* average, int64_t begin, int64_t end) {
  const Vec<T> keep = factor<T>(decay), rest = factor<T>(1 - decay);
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    lanes.store(average + i, decayed(keep * lanes.load(average + i) + rest * lanes.load(w + i)));
  });
}
template void average_weights(const float*, double, float*, int64_t, int64_t);
template void average_weights(const double*, double, double*, int64_t, int64_t);

void CpuOps::rmsprop(const RmspropRange* ranges, int64_t count, const Array& w, const Array& g, const Array& v,
                     const Array* average, const Array* momentum, const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece<T>(ranges, count, w, ema, [&](const RmspropRange& range, int64_t begin, int64_t end) {
      rmsprop_step<T>(range, w.as<T>(), g.as<T>(), v.as<T>(), average ? average->as<T>() : nullptr,
                      momentum ? momentum->as<T>() : nullptr, begin, end);
    });
  });
}

void CpuOps::adagrad(const AdagradRange* ranges, int64_t count, const Array& w, const Array& g, const Array& sum,
                     const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece<T>(ranges, count, w, ema, [&](const AdagradRange& range, int64_t begin, int64_t end) {
      adagrad_step<T>(range, w.as<T>(), g.as<T>(), sum.as<T>(), begin, end);
    });
  });
}

void CpuOps::ema(const Array& w, double decay, const Array& average) {
  dispatch_floating(w.dtype, [&]<class T>() {
    parallel_for(w.size, kPiece, [=, from = w.as<T>(), to = average.as<T>()](int64_t begin, int64_t end) {
      average_weights(from, decay, to, begin, end);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
