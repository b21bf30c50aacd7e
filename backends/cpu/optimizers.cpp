// SGD and Adam over flat buffers: one pass over memory. Elements do not depend on each other, so that where the work is cut
// never shows in the result. Factors are computed in double and rounded once.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/scalar/arithmetic.h"

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
void sgd_plain(const SgdRange& range, T* __restrict w, const T* __restrict g, int64_t begin, int64_t end) {
  const T rate = static_cast<T>(range.rate), decay = static_cast<T>(range.decay);
  if (range.decay == 0) {
    for (int64_t i = begin; i < end; ++i) w[i] -= rate * g[i];
  } else {
    for (int64_t i = begin; i < end; ++i) w[i] -= rate * (g[i] + decay * w[i]);
  }
}

/// `first` and `nesterov` are known at compile time so that the loop has no choice to make.
template <bool first, bool nesterov, class T>
void sgd_momentum(const SgdRange& range, T* __restrict w, const T* __restrict g, T* __restrict m, int64_t begin,
                  int64_t end) {
  const T rate = static_cast<T>(range.rate), decay = static_cast<T>(range.decay);
  const T momentum = static_cast<T>(range.momentum), damped = static_cast<T>(1 - range.dampening);
  const bool decays = range.decay != 0;
  for (int64_t i = begin; i < end; ++i) {
    const T grad = decays ? g[i] + decay * w[i] : g[i];
    const T velocity = first ? grad : momentum * m[i] + damped * grad;
    m[i] = velocity;
    w[i] -= rate * (nesterov ? grad + momentum * velocity : velocity);
  }
}

template <class T>
void sgd_step(const SgdRange& range, T* w, const T* g, T* m, int64_t begin, int64_t end) {
  if (range.momentum == 0) return sgd_plain(range, w, g, begin, end);
  if (range.first) {
    range.nesterov ? sgd_momentum<true, true>(range, w, g, m, begin, end)
                   : sgd_momentum<true, false>(range, w, g, m, begin, end);
  } else {
    range.nesterov ? sgd_momentum<false, true>(range, w, g, m, begin, end)
                   : sgd_momentum<false, false>(range, w, g, m, begin, end);
  }
}

/// m / (sqrt(v) / c + epsilon) is computed as c m / (sqrt(v) + c epsilon): one division for two, and c, which belongs to
/// the step and not to the element, goes into the factors in double.
template <class T>
void adam_step(const AdamRange& range, T* __restrict w, const T* __restrict g, T* __restrict m, T* __restrict v,
               int64_t begin, int64_t end) {
  const T beta1 = static_cast<T>(range.beta1), rest1 = static_cast<T>(1 - range.beta1);
  const T beta2 = static_cast<T>(range.beta2), rest2 = static_cast<T>(1 - range.beta2);
  const T step = static_cast<T>(range.step_size * range.root_correction2);
  const T epsilon = static_cast<T>(range.epsilon * range.root_correction2);
  const T decay = static_cast<T>(range.decay), shrink = static_cast<T>(1 - range.rate * range.decay);
  const bool adds_decay = range.decay != 0 && !range.decoupled, shrinks = range.decay != 0 && range.decoupled;
  for (int64_t i = begin; i < end; ++i) {
    const T grad = adds_decay ? g[i] + decay * w[i] : g[i];
    const T weight = shrinks ? shrink * w[i] : w[i];
    const T mean = beta1 * m[i] + rest1 * grad;
    const T square = beta2 * v[i] + rest2 * (grad * grad);
    m[i] = mean;
    v[i] = square;
    w[i] = weight - step * mean / (scalar::sqrt(square) + epsilon);
  }
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
