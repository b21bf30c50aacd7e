// Gamma and Poisson numbers, f64: a thread draws an element from its own blocks until it accepts.

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/math.h"
#include "reel/core/scalar/rejection.h"

namespace reel::cuda {

namespace device {
namespace {

struct Gamma {
  REEL_DEVICE static double draw(double alpha, scalar::RejectionBlocks blocks) {
    return scalar::random_gamma(alpha, blocks);
  }
};
struct Poisson {
  REEL_DEVICE static double draw(double rate, scalar::RejectionBlocks blocks) {
    return scalar::random_poisson(rate, blocks);
  }
};

template <class Distribution>
__global__ void draw(const double* parameter, double* y, int64_t count, std::uint64_t seed, std::uint64_t stream,
                     std::uint64_t counter) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    const std::uint64_t first = counter + static_cast<std::uint64_t>(i) * scalar::RejectionBlocks::kCount;
    y[i] = Distribution::draw(parameter[i], {seed, stream, first});
  }
}

}  // namespace
}  // namespace device

void CudaOps::random_gamma(const Array& alpha, const PhiloxState& state, const Array& y) {
  launch(context_, "random_gamma", grid_for(context_, y.size), &device::draw<device::Gamma>, alpha.as<double>(),
         y.as<double>(), y.size, state.seed, state.stream, state.counter);
}

void CudaOps::random_poisson(const Array& rate, const PhiloxState& state, const Array& y) {
  launch(context_, "random_poisson", grid_for(context_, y.size), &device::draw<device::Poisson>, rate.as<double>(),
         y.as<double>(), y.size, state.seed, state.stream, state.counter);
}

}  // namespace reel::cuda
