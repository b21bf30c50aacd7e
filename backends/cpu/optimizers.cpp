// SGD and Adam over flat buffers: one pass over memory. Elements do not depend on each other, so that where the work is cut
// never shows in the result. Factors are computed in double and rounded once.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/vector_loops.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

// A step is bound by memory: small pieces suffice to keep all threads busy.
constexpr int64_t kPiece = 32768;

/// Calls step(range, begin, end) for pieces of the ranges. Pieces are cut from the ranges laid end to end, so that a
/// thousand small ranges are shared among threads as well as one large one.
template <class Range, class F>
REEL_INLINE void for_each_piece(const Range* ranges, int64_t count, F step) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += ranges[i].end - ranges[i].begin;
  parallel_for(total, kPiece, [&](int64_t first, int64_t last) {
    int64_t start = 0;
    for (int64_t i = 0; i < count && start < last; ++i) {
      const int64_t size = ranges[i].end - ranges[i].begin;
      const int64_t begin = first > start ? first - start : 0;
      const int64_t end = last - start < size ? last - start : size;
      if (begin < end) step(ranges[i], ranges[i].begin + begin, ranges[i].begin + end);
      start += size;
    }
  });
}

template <class T>
void sgd_step(const SgdRange& range, T* w, const T* g, T* m, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const V rate = V::broadcast(static_cast<T>(-range.rate)), decay = V::broadcast(static_cast<T>(range.decay));
  const V momentum = V::broadcast(static_cast<T>(range.momentum));
  const V damped = V::broadcast(static_cast<T>(1 - range.dampening));
  const bool decays = range.decay != 0, remembers = range.momentum != 0, first = range.first;
  const bool nesterov = range.nesterov;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    const V weight = lanes.load(w + i);
    V step = lanes.load(g + i);
    if (decays) step = step + decay * weight;
    if (remembers) {
      const V velocity = first ? step : momentum * lanes.load(m + i) + damped * step;
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
  const auto factor = [](double value) { return V::broadcast(static_cast<T>(value)); };
  const V beta1 = factor(range.beta1), rest1 = factor(1 - range.beta1);
  const V beta2 = factor(range.beta2), rest2 = factor(1 - range.beta2);
  const V rate = factor(-range.step_size * range.root_correction2);
  const V epsilon = factor(range.epsilon * range.root_correction2);
  const V decay = factor(range.decay), shrink = factor(1 - range.rate * range.decay);
  const bool adds_decay = range.decay != 0 && !range.decoupled, shrinks = range.decay != 0 && range.decoupled;
  for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) {
    V weight = lanes.load(w + i), grad = lanes.load(g + i);
    if (adds_decay) grad = grad + decay * weight;
    if (shrinks) weight = shrink * weight;
    const V mean = beta1 * lanes.load(m + i) + rest1 * grad;
    const V square = beta2 * lanes.load(v + i) + rest2 * (grad * grad);
    lanes.store(m + i, mean);
    lanes.store(v + i, square);
    const V root = each_lane(square, [](T x) { return scalar::sqrt(x); });
    lanes.store(w + i, weight + rate * mean / (root + epsilon));
  });
}

}  // namespace

void CpuOps::sgd(const SgdRange* ranges, int64_t count, const Array& w, const Array& g, const Array* momentum) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece(ranges, count, [&](const SgdRange& range, int64_t begin, int64_t end) {
      sgd_step<T>(range, w.as<T>(), g.as<T>(), momentum ? momentum->as<T>() : nullptr, begin, end);
    });
  });
}

void CpuOps::adam(const AdamRange* ranges, int64_t count, const Array& w, const Array& g, const Array& m,
                  const Array& v) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_piece(ranges, count, [&](const AdamRange& range, int64_t begin, int64_t end) {
      adam_step<T>(range, w.as<T>(), g.as<T>(), m.as<T>(), v.as<T>(), begin, end);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
