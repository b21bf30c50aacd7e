// SGD and Adam over flat buffers: one pass over memory. Elements do not depend on each other, so that where the work is cut
// never shows in the result. Factors are computed in double and rounded once.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/flat_ranges.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

template <class T>
void sgd_step(const SgdRange& range, T* w, const T* g, T* m, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const V rate = factor<T>(-range.rate), decay = factor<T>(range.decay);
  const V momentum = factor<T>(range.momentum), damped = factor<T>(1 - range.dampening);
  const V scale = factor<T>(range.gradient_scale);
  const bool decays = range.decay != 0, remembers = range.momentum != 0, first = range.first;
  const bool nesterov = range.nesterov;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    const V weight = lanes.load(w + i);
    V step = scale * lanes.load(g + i);
    if (decays) step = step + decay * weight;
    if (remembers) {
      const V velocity = first ? step : decayed(momentum * lanes.load(m + i) + damped * step);
      lanes.store(m + i, velocity);
      step = nesterov ? step + momentum * velocity : velocity;
    }
    lanes.store(w + i, weight + rate * step);
  });
}

/// m / (sqrt(v) / c + epsilon) is computed as c m / (sqrt(v) + c epsilon): one division for two, and c, which belongs to
/// the step and not to the element, goes into the factors in double.
template <class T>
void adam_step(const AdamRange& range, T* w, const T* g, T* m, T* v, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const V beta1 = factor<T>(range.beta1), rest1 = factor<T>(1 - range.beta1);
  const V beta2 = factor<T>(range.beta2), rest2 = factor<T>(1 - range.beta2);
  const bool rectified = range.rectified;
  const V rate = factor<T>(-range.step_size * (rectified ? range.root_correction2 : 1));
  const V epsilon = factor<T>(range.epsilon * range.root_correction2);
  const V decay = factor<T>(range.decay), shrink = factor<T>(1 - range.rate * range.decay);
  const V scale = factor<T>(range.gradient_scale);
  const T least = scalar::least_divisor(static_cast<T>(range.epsilon));
  const bool adds_decay = range.decay != 0 && !range.decoupled, shrinks = range.decay != 0 && range.decoupled;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    V weight = lanes.load(w + i), grad = scale * lanes.load(g + i);
    if (adds_decay) grad = grad + decay * weight;
    if (shrinks) weight = shrink * weight;
    const V mean = decayed(beta1 * lanes.load(m + i) + rest1 * grad);
    const V square = decayed(beta2 * lanes.load(v + i) + rest2 * (grad * grad), least);
    lanes.store(m + i, mean);
    lanes.store(v + i, square);
    const V step = rate * mean;
    lanes.store(w + i, weight + (rectified ? step / (sqrt(square) + epsilon) : step));
  });
}

}  // namespace

void CpuOps::sgd(const SgdRange* ranges, int64_t count, const Array& w, const Array& g, const Array* momentum,
                 const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece<T>(ranges, count, w, ema, [&](const SgdRange& range, int64_t begin, int64_t end) {
      sgd_step<T>(range, w.as<T>(), g.as<T>(), momentum ? momentum->as<T>() : nullptr, begin, end);
    });
  });
}

void CpuOps::adam(const AdamRange* ranges, int64_t count, const Array& w, const Array& g, const Array& m,
                  const Array& v, const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece<T>(ranges, count, w, ema, [&](const AdamRange& range, int64_t begin, int64_t end) {
      adam_step<T>(range, w.as<T>(), g.as<T>(), m.as<T>(), v.as<T>(), begin, end);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
