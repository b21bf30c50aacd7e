// Optimisers over flat buffers: one pass over memory, a few packs of every buffer per thread. They do nothing while a bad
// index waits to be thrown: the gradients are not to be trusted. Factors are computed on the host, in double, and rounded
// once.

#include "reel/backends/cuda/map.h"
#include "reel/core/scalar/arithmetic.h"
#include "reel/core/scalar/binary.h"
#include "reel/core/scalar/decayed.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kRules = 8;  // per launch; blockIdx.y is the rule
inline constexpr int kOptimizerSteps = 2;

/// averages = keep averages + rest w, of weights after their step; null: there are none.
template <class T>
struct Averages {
  T* values;
  T keep, rest;
};

template <class Rule>
struct Rules {
  Rule rule[kRules];
  Averages<decltype(Rule::scale)> averages;
};

/// The gradient, N numbers and the average of a weight, n weights long.
template <class T, int n, int N>
struct Weights {
  Pack<T, n> grad, numbers[N], average;
};

/// rule(numbers, grad) for each weight, which changes its N numbers: those of `from`, null for 0, and written to `to` but
/// where that is null. The first is the weight, which goes into the averages. Whether a fault waits is read along with the weights
/// and asked after that: one way to memory, not two.
template <class T, int N, class F>
REEL_DEVICE void update(const Units<T>& units, const T* g, const T* const (&from)[N], T* const (&to)[N],
                        const Averages<T>& averages, const Fault* fault, F rule) {
  const bool faulty = fault->serial != 0;
  const auto load = [&]<int n>(int64_t i) {
    Weights<T, n, N> weights;
    weights.grad = load_pack<T, n>(g + i);
    REEL_UNROLL
    for (int b = 0; b < N; ++b) weights.numbers[b] = from[b] != nullptr ? load_pack<T, n>(from[b] + i) : splat<n>(T(0));
    weights.average = averages.values != nullptr ? load_pack<T, n>(averages.values + i) : splat<n>(T(0));
    return weights;
  };
  for_each_unit<kOptimizerSteps>(units, load, [&]<int n>(int64_t i, Weights<T, n, N>& weights) {
    if (faulty) return;
    REEL_UNROLL
    for (int k = 0; k < n; ++k) {
      T numbers[N];
      REEL_UNROLL
      for (int b = 0; b < N; ++b) numbers[b] = weights.numbers[b].v[k];
      rule(numbers, weights.grad.v[k]);
      REEL_UNROLL
      for (int b = 0; b < N; ++b) weights.numbers[b].v[k] = numbers[b];
      weights.average.v[k] = scalar::decayed(averages.keep * weights.average.v[k] + averages.rest * numbers[0]);
    }
    REEL_UNROLL
    for (int b = 0; b < N; ++b)
      if (to[b] != nullptr) write_pack(to[b] + i, weights.numbers[b]);
    if (averages.values != nullptr) write_pack(averages.values + i, weights.average);
  });
}

template <class T>
struct SgdRule {
  Units<T> units;
  T scale, rate, decay, momentum, damped;
  bool nesterov, first;

  REEL_DEVICE void operator()(T (&numbers)[2], T step) const {
    auto& [weight, velocity] = numbers;
    step = scale * step;
    if (decay != 0) step = step + decay * weight;
    if (momentum != 0) {
      velocity = first ? step : scalar::decayed(momentum * velocity + damped * step);
      step = nesterov ? step + momentum * velocity : velocity;
    }
    weight = weight + rate * step;
  }
};

template <class T>
__global__ void sgd(const __grid_constant__ Rules<SgdRule<T>> rules, const Fault* fault, T* w, const T* g, T* m) {
  const SgdRule<T>& rule = rules.rule[blockIdx.y];
  T* const velocity = rule.momentum != 0 ? m : nullptr;
  update<T, 2>(rule.units, g, {w, rule.first ? nullptr : velocity}, {w, velocity}, rules.averages, fault, rule);
}

/// m / (sqrt(v) / c + epsilon) as c m / (sqrt(v) + c epsilon): one division, and c goes into the factors in double.
template <class T>
struct AdamRule {
  Units<T> units;
  T scale, beta1, rest1, beta2, rest2, rate, epsilon;
  T decay, shrink;  // 0 and 1 where there is none of the kind
  bool rectified;

  REEL_DEVICE void operator()(T (&numbers)[3], T grad) const {
    auto& [weight, mean, square] = numbers;
    grad = scale * grad;
    if (decay != 0) grad = grad + decay * weight;
    weight = shrink * weight;
    mean = scalar::decayed(beta1 * mean + rest1 * grad);
    square = scalar::decayed(beta2 * square + rest2 * (grad * grad), scalar::least_divisor(epsilon));
    weight = rectified ? weight + rate * mean / (scalar::sqrt(square) + epsilon) : weight + rate * mean;
  }
};

template <class T>
__global__ void adam(const __grid_constant__ Rules<AdamRule<T>> rules, const Fault* fault, T* w, const T* g, T* m,
                     T* v) {
  const AdamRule<T>& rule = rules.rule[blockIdx.y];
  update<T, 3>(rule.units, g, {w, m, v}, {w, m, v}, rules.averages, fault, rule);
}

/// A variance that rounding has made negative counts as 0.
template <class T>
struct RmspropRule {
  Units<T> units;
  T scale, rate, decay, epsilon, momentum, alpha, rest;
  bool centered;

  REEL_DEVICE void operator()(T (&numbers)[4], T grad) const {
    auto& [weight, moment, mean, velocity] = numbers;
    grad = scale * grad;
    if (decay != 0) grad = grad + decay * weight;
    moment = scalar::decayed(alpha * moment + rest * (grad * grad), scalar::least_divisor(epsilon));
    T square = moment;
    if (centered) {
      mean = scalar::decayed(alpha * mean + rest * grad);
      square = scalar::Maximum::forward(T(0), square - mean * mean);
    }
    T step = grad / (scalar::sqrt(square) + epsilon);
    if (momentum != 0) velocity = step = scalar::decayed(momentum * velocity + step);
    weight = weight + rate * step;
  }
};

template <class T>
__global__ void rmsprop(const __grid_constant__ Rules<RmspropRule<T>> rules, const Fault* fault, T* w, const T* g, T* v,
                        T* a, T* m) {
  const RmspropRule<T>& rule = rules.rule[blockIdx.y];
  T* const mean = rule.centered ? a : nullptr;
  T* const velocity = rule.momentum != 0 ? m : nullptr;
  update<T, 4>(rule.units, g, {w, v, mean, velocity}, {w, v, mean, velocity}, rules.averages, fault, rule);
}

template <class T>
struct AdagradRule {
  Units<T> units;
  T scale, rate, decay, epsilon;

  REEL_DEVICE void operator()(T (&numbers)[2], T grad) const {
    auto& [weight, sum] = numbers;
    grad = scale * grad;
    if (decay != 0) grad = grad + decay * weight;
    sum = sum + grad * grad;
    weight = weight + rate * grad / (scalar::sqrt(sum) + epsilon);
  }
};

template <class T>
__global__ void adagrad(const __grid_constant__ Rules<AdagradRule<T>> rules, const Fault* fault, T* w, const T* g,
                        T* sum) {
  const AdagradRule<T>& rule = rules.rule[blockIdx.y];
  update<T, 2>(rule.units, g, {w, sum}, {w, sum}, rules.averages, fault, rule);
}

template <class T>
__global__ void ema(const T* w, T keep, T rest, T* average, Units<T> units, const Fault* fault) {
  update<T, 1>(units, w, {average}, {average}, Averages<T>{}, fault,
               [=](T(&numbers)[1], T weight) { numbers[0] = scalar::decayed(keep * numbers[0] + rest * weight); });
}

}  // namespace
}  // namespace device

namespace {

/// kernel(rules, fault, buffers...) for a few ranges at a time; rule_of(range, units) gives a range's rule.
template <class T, class Range, class RuleOf, class Rule, class... Pointers>
void for_ranges(const Context& context, const char* name, const Range* ranges, int64_t count, const WeightAverage* ema,
                RuleOf rule_of, void (*kernel)(device::Rules<Rule>, const Fault*, Pointers...),
                std::type_identity_t<Pointers>... buffers) {
  T* const averages = ema != nullptr ? ema->values.as<T>() : nullptr;
  const bool packed = in_packs<T>({buffers..., averages});
  for (int64_t first = 0; first < count; first += device::kRules) {
    device::Rules<Rule> rules = {};
    if (ema != nullptr) rules.averages = {averages, static_cast<T>(ema->decay), static_cast<T>(1 - ema->decay)};
    Grid grid{.blocks = 0, .y = count - first < device::kRules ? count - first : device::kRules};
    for (int64_t i = 0; i < grid.y; ++i) {
      const Range& range = ranges[first + i];
      const Units<T> units = units_of<T>(range.begin, range.end, packed);
      rules.rule[i] = rule_of(range, units);
      const Grid own = units.grid(device::kOptimizerSteps);
      grid.threads = own.threads;
      grid.blocks = grid.blocks < own.blocks ? own.blocks : grid.blocks;
    }
    launch(context, name, grid, kernel, rules, context.fault(), buffers...);
  }
}

}  // namespace

void CudaOps::sgd(const SgdRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array* momentum,
                  const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    const auto rule = [](const SgdRange& range, const Units<T>& units) {
      return device::SgdRule<T>{.units = units,
                                .scale = static_cast<T>(range.gradient_scale),
                                .rate = static_cast<T>(-range.rate),
                                .decay = static_cast<T>(range.decay),
                                .momentum = static_cast<T>(range.momentum),
                                .damped = static_cast<T>(1 - range.dampening),
                                .nesterov = range.nesterov,
                                .first = range.first};
    };
    for_ranges<T>(context_, "sgd", ranges, count, ema, rule, &device::sgd<T>, w.as<T>(), g.as<T>(),
                  data_of<T>(momentum));
  });
}

void CudaOps::adam(const AdamRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& m,
                   const Array& v, const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    const auto rule = [](const AdamRange& range, const Units<T>& units) {
      const double rate = -range.step_size * (range.rectified ? range.root_correction2 : 1);
      return device::AdamRule<T>{
          .units = units,
          .scale = static_cast<T>(range.gradient_scale),
          .beta1 = static_cast<T>(range.beta1),
          .rest1 = static_cast<T>(1 - range.beta1),
          .beta2 = static_cast<T>(range.beta2),
          .rest2 = static_cast<T>(1 - range.beta2),
          .rate = static_cast<T>(rate),
          .epsilon = static_cast<T>(range.epsilon * range.root_correction2),
          .decay = static_cast<T>(range.decoupled ? 0 : range.decay),
          .shrink = static_cast<T>(range.decoupled ? 1 - range.rate * range.decay : 1),
          .rectified = range.rectified,
      };
    };
    for_ranges<T>(context_, "adam", ranges, count, ema, rule, &device::adam<T>, w.as<T>(), g.as<T>(), m.as<T>(),
                  v.as<T>());
  });
}

void CudaOps::rmsprop(const RmspropRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& v,
                      const Array* average, const Array* momentum, const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    const auto rule = [](const RmspropRange& range, const Units<T>& units) {
      return device::RmspropRule<T>{.units = units,
                                    .scale = static_cast<T>(range.gradient_scale),
                                    .rate = static_cast<T>(-range.rate),
                                    .decay = static_cast<T>(range.decay),
                                    .epsilon = static_cast<T>(range.epsilon),
                                    .momentum = static_cast<T>(range.momentum),
                                    .alpha = static_cast<T>(range.alpha),
                                    .rest = static_cast<T>(1 - range.alpha),
                                    .centered = range.centered};
    };
    for_ranges<T>(context_, "rmsprop", ranges, count, ema, rule, &device::rmsprop<T>, w.as<T>(), g.as<T>(), v.as<T>(),
                  data_of<T>(average), data_of<T>(momentum));
  });
}

void CudaOps::adagrad(const AdagradRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& sum,
                      const WeightAverage* ema) {
  dispatch_floating(w.dtype, [&]<class T>() {
    const auto rule = [](const AdagradRange& range, const Units<T>& units) {
      return device::AdagradRule<T>{.units = units,
                                    .scale = static_cast<T>(range.gradient_scale),
                                    .rate = static_cast<T>(-range.rate),
                                    .decay = static_cast<T>(range.decay),
                                    .epsilon = static_cast<T>(range.epsilon)};
    };
    for_ranges<T>(context_, "adagrad", ranges, count, ema, rule, &device::adagrad<T>, w.as<T>(), g.as<T>(),
                  sum.as<T>());
  });
}

void CudaOps::ema(const Array& w, double decay, const Array& average) {
  dispatch_floating(w.dtype, [&]<class T>() {
    const Units<T> units = units_of<T>(0, w.size, in_packs<T>({w.data, average.data}));
    launch(context_, "ema", units.grid(device::kOptimizerSteps), &device::ema<T>, w.as<T>(), static_cast<T>(decay),
           static_cast<T>(1 - decay), average.as<T>(), units, context_.fault());
  });
}

}  // namespace reel::cuda
