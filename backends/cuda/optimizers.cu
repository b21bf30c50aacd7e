// Optimisers over flat buffers: one pass over memory, an element per thread and step. They do nothing while a bad index
// waits to be thrown: the gradients are not to be trusted. Factors are computed in double and rounded once.

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/arithmetic.h"
#include "reel/core/scalar/binary.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kRanges = 8;  // per launch; blockIdx.y is the range

template <class Range>
struct Ranges {
  Range range[kRanges];
};

REEL_DEVICE bool faulty(const Fault* fault) { return static_cast<const volatile Fault*>(fault)->serial != 0; }

template <class T>
__global__ void sgd(const __grid_constant__ Ranges<SgdRange> ranges, T* w, const T* g, T* m, const Fault* fault) {
  if (faulty(fault)) return;
  const SgdRange& range = ranges.range[blockIdx.y];
  const T rate = static_cast<T>(-range.rate), decay = static_cast<T>(range.decay);
  const T momentum = static_cast<T>(range.momentum), damped = static_cast<T>(1 - range.dampening);
  for (int64_t i = range.begin + first_unit(); i < range.end; i += unit_step()) {
    const T weight = w[i];
    T step = g[i];
    if (range.decay != 0) step = step + decay * weight;
    if (range.momentum != 0) {
      const T velocity = range.first ? step : momentum * m[i] + damped * step;
      m[i] = velocity;
      step = range.nesterov ? step + momentum * velocity : velocity;
    }
    w[i] = weight + rate * step;
  }
}

/// m / (sqrt(v) / c + epsilon) as c m / (sqrt(v) + c epsilon): one division, and c goes into the factors in double.
template <class T>
__global__ void adam(const __grid_constant__ Ranges<AdamRange> ranges, T* w, const T* g, T* m, T* v,
                     const Fault* fault) {
  if (faulty(fault)) return;
  const AdamRange& range = ranges.range[blockIdx.y];
  const T beta1 = static_cast<T>(range.beta1), rest1 = static_cast<T>(1 - range.beta1);
  const T beta2 = static_cast<T>(range.beta2), rest2 = static_cast<T>(1 - range.beta2);
  const T rate = static_cast<T>(-range.step_size * (range.rectified ? range.root_correction2 : 1));
  const T epsilon = static_cast<T>(range.epsilon * range.root_correction2);
  const T decay = static_cast<T>(range.decay), shrink = static_cast<T>(1 - range.rate * range.decay);
  for (int64_t i = range.begin + first_unit(); i < range.end; i += unit_step()) {
    T weight = w[i], grad = g[i];
    if (range.decay != 0 && !range.decoupled) grad = grad + decay * weight;
    if (range.decay != 0 && range.decoupled) weight = shrink * weight;
    const T mean = beta1 * m[i] + rest1 * grad;
    const T square = beta2 * v[i] + rest2 * (grad * grad);
    m[i] = mean;
    v[i] = square;
    w[i] = range.rectified ? weight + rate * mean / (scalar::sqrt(square) + epsilon) : weight + rate * mean;
  }
}

/// A variance that rounding has made negative counts as 0.
template <class T>
__global__ void rmsprop(const __grid_constant__ Ranges<RmspropRange> ranges, T* w, const T* g, T* v, T* a, T* m,
                        const Fault* fault) {
  if (faulty(fault)) return;
  const RmspropRange& range = ranges.range[blockIdx.y];
  const T rate = static_cast<T>(-range.rate), decay = static_cast<T>(range.decay);
  const T epsilon = static_cast<T>(range.epsilon), momentum = static_cast<T>(range.momentum);
  const T alpha = static_cast<T>(range.alpha), rest = static_cast<T>(1 - range.alpha);
  for (int64_t i = range.begin + first_unit(); i < range.end; i += unit_step()) {
    const T weight = w[i];
    T grad = g[i];
    if (range.decay != 0) grad = grad + decay * weight;
    T square = alpha * v[i] + rest * (grad * grad);
    v[i] = square;
    if (range.centered) {
      const T mean = alpha * a[i] + rest * grad;
      a[i] = mean;
      square = scalar::Maximum::forward(T(0), square - mean * mean);
    }
    T step = grad / (scalar::sqrt(square) + epsilon);
    if (range.momentum != 0) {
      step = momentum * m[i] + step;
      m[i] = step;
    }
    w[i] = weight + rate * step;
  }
}

template <class T>
__global__ void adagrad(const __grid_constant__ Ranges<AdagradRange> ranges, T* w, const T* g, T* sum,
                        const Fault* fault) {
  if (faulty(fault)) return;
  const AdagradRange& range = ranges.range[blockIdx.y];
  const T rate = static_cast<T>(-range.rate), decay = static_cast<T>(range.decay);
  const T epsilon = static_cast<T>(range.epsilon);
  for (int64_t i = range.begin + first_unit(); i < range.end; i += unit_step()) {
    const T weight = w[i];
    T grad = g[i];
    if (range.decay != 0) grad = grad + decay * weight;
    const T total = sum[i] + grad * grad;
    sum[i] = total;
    w[i] = weight + rate * grad / (scalar::sqrt(total) + epsilon);
  }
}

template <class T>
__global__ void ema(const T* w, T keep, T rest, T* average, int64_t count, const Fault* fault) {
  if (faulty(fault)) return;
  for (int64_t i = first_unit(); i < count; i += unit_step()) average[i] = keep * average[i] + rest * w[i];
}

}  // namespace
}  // namespace device

namespace {

/// f(ranges, grid) for a few ranges at a time.
template <class Range, class F>
void for_each_few(const Context& context, const Range* ranges, int64_t count, F f) {
  for (int64_t first = 0; first < count; first += device::kRanges) {
    const int64_t few = count - first < device::kRanges ? count - first : device::kRanges;
    device::Ranges<Range> part{};
    int64_t longest = 0;
    for (int64_t i = 0; i < few; ++i) {
      part.range[i] = ranges[first + i];
      const int64_t size = part.range[i].end - part.range[i].begin;
      longest = longest < size ? size : longest;
    }
    Grid grid = grid_for(context, longest);
    grid.y = few;
    f(part, grid);
  }
}

}  // namespace

void CudaOps::sgd(const SgdRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array* momentum) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_few(context_, ranges, count, [&](const device::Ranges<SgdRange>& part, const Grid& grid) {
      launch(context_, "sgd", grid, &device::sgd<T>, part, w.as<T>(), g.as<T>(),
             momentum != nullptr ? momentum->as<T>() : nullptr, context_.fault());
    });
  });
}

void CudaOps::adam(const AdamRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& m,
                   const Array& v) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_few(context_, ranges, count, [&](const device::Ranges<AdamRange>& part, const Grid& grid) {
      launch(context_, "adam", grid, &device::adam<T>, part, w.as<T>(), g.as<T>(), m.as<T>(), v.as<T>(),
             context_.fault());
    });
  });
}

void CudaOps::rmsprop(const RmspropRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& v,
                      const Array* average, const Array* momentum) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_few(context_, ranges, count, [&](const device::Ranges<RmspropRange>& part, const Grid& grid) {
      launch(context_, "rmsprop", grid, &device::rmsprop<T>, part, w.as<T>(), g.as<T>(), v.as<T>(),
             average != nullptr ? average->as<T>() : nullptr, momentum != nullptr ? momentum->as<T>() : nullptr,
             context_.fault());
    });
  });
}

void CudaOps::adagrad(const AdagradRange* ranges, std::int64_t count, const Array& w, const Array& g,
                      const Array& sum) {
  dispatch_floating(w.dtype, [&]<class T>() {
    for_each_few(context_, ranges, count, [&](const device::Ranges<AdagradRange>& part, const Grid& grid) {
      launch(context_, "adagrad", grid, &device::adagrad<T>, part, w.as<T>(), g.as<T>(), sum.as<T>(), context_.fault());
    });
  });
}

void CudaOps::ema(const Array& w, double decay, const Array& average) {
  dispatch_floating(w.dtype, [&]<class T>() {
    launch(context_, "ema", grid_for(context_, w.size), &device::ema<T>, w.as<T>(), static_cast<T>(decay),
           static_cast<T>(1 - decay), average.as<T>(), w.size, context_.fault());
  });
}

}  // namespace reel::cuda
