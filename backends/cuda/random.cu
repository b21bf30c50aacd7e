// Random numbers: a thread makes one block of Philox, and of it four f32 numbers or two f64 numbers.

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/philox.h"

namespace reel::cuda {

namespace device {
namespace {

struct UniformFloat {
  using Element = float;
  static constexpr int kPerBlock = 4;
  REEL_DEVICE static void make(const scalar::PhiloxBlock& block, float* y) {
    for (int k = 0; k < 4; ++k) y[k] = scalar::uniform_float(block.lane[k]);
  }
};
struct UniformDouble {
  using Element = double;
  static constexpr int kPerBlock = 2;
  REEL_DEVICE static void make(const scalar::PhiloxBlock& block, double* y) {
    for (int k = 0; k < 2; ++k) y[k] = scalar::uniform_double(block.lane[2 * k], block.lane[2 * k + 1]);
  }
};
struct NormalFloat {
  using Element = float;
  static constexpr int kPerBlock = 4;
  REEL_DEVICE static void make(const scalar::PhiloxBlock& block, float* y) {
    for (int k = 0; k < 4; k += 2) {
      const scalar::Pair<float> pair = scalar::normal_pair(block.lane[k], block.lane[k + 1]);
      y[k] = pair.first;
      y[k + 1] = pair.second;
    }
  }
};
struct NormalDouble {
  using Element = double;
  static constexpr int kPerBlock = 2;
  REEL_DEVICE static void make(const scalar::PhiloxBlock& block, double* y) {
    const scalar::Pair<double> pair = scalar::normal_pair(block);
    y[0] = pair.first;
    y[1] = pair.second;
  }
};

/// One block of numbers per thread and step.
template <class Kind>
__global__ void random(typename Kind::Element* y, int64_t count, std::uint64_t seed, std::uint64_t stream,
                       std::uint64_t counter) {
  constexpr int n = Kind::kPerBlock;
  for (int64_t i = first_unit(); i * n < count; i += unit_step()) {
    typename Kind::Element made[n];
    Kind::make(scalar::philox(seed, stream, counter + static_cast<std::uint64_t>(i)), made);
    for (int k = 0; k < n; ++k)
      if (i * n + k < count) y[i * n + k] = made[k];
  }
}

/// y = x scale where the uniform number is at least p, else 0. One block of numbers per thread and step.
template <class Kind, class T>
__global__ void dropout(const T* x, T* y, int64_t count, double p, T scale, std::uint64_t seed, std::uint64_t stream,
                        std::uint64_t counter) {
  constexpr int n = Kind::kPerBlock;
  for (int64_t i = first_unit(); i * n < count; i += unit_step()) {
    T uniform[n];
    Kind::make(scalar::philox(seed, stream, counter + static_cast<std::uint64_t>(i)), uniform);
    for (int k = 0; k < n; ++k)
      if (i * n + k < count) y[i * n + k] = uniform[k] >= p ? x[i * n + k] * scale : T(0);
  }
}

}  // namespace
}  // namespace device

void CudaOps::random(RandomOp op, const Array& y, const PhiloxState& state) {
  const auto run = [&]<class Kind>() {
    using Element = typename Kind::Element;
    launch(context_, "random", grid_for(context_, ceil_div(y.size, Kind::kPerBlock)), &device::random<Kind>,
           y.as<Element>(), y.size, state.seed, state.stream, state.counter);
  };
  const bool f64 = y.dtype == DType::f64;
  switch (op) {
    case RandomOp::uniform:
      return f64 ? run.template operator()<device::UniformDouble>() : run.template operator()<device::UniformFloat>();
    case RandomOp::normal:
      return f64 ? run.template operator()<device::NormalDouble>() : run.template operator()<device::NormalFloat>();
  }
}

void CudaOps::dropout(const Array& x, double p, const PhiloxState& state, const Array& y) {
  const auto run = [&]<class Kind>() {
    using T = typename Kind::Element;
    launch(context_, "dropout", grid_for(context_, ceil_div(y.size, Kind::kPerBlock)), &device::dropout<Kind, T>,
           x.as<T>(), y.as<T>(), y.size, p, static_cast<T>(1 / (1 - p)), state.seed, state.stream, state.counter);
  };
  y.dtype == DType::f64 ? run.template operator()<device::UniformDouble>()
                        : run.template operator()<device::UniformFloat>();
}

}  // namespace reel::cuda
