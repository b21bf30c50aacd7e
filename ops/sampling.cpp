#include "reel/ops/sampling.h"

#include "reel/core/scalar/rejection.h"
#include "reel/ops/check.h"

namespace reel {

namespace {

using Draw = void (Ops::*)(const Array& parameter, const PhiloxState& state, const Array& y);

Tensor drawn(const char* op, const char* name, const Tensor& parameter, Generator* generator, Draw draw,
             SourceLocation where) {
  check::floating(op, name, parameter, where);
  const Tensor from = parameter.dtype() == f64 ? detail::packed(parameter) : detail::copied(parameter, f64);
  Tensor y = empty(from.shape(), {.dtype = f64, .device = from.device()});
  const std::int64_t lanes = 4 * scalar::RejectionBlocks::kCount * y.size();
  const PhiloxState state = generator != nullptr ? generator->take(lanes, f32) : detail::take_random(lanes, f32);
  (backend(y.device()).*draw)(from.array(), state, y.array());
  return parameter.dtype() == f64 ? y : detail::copied(y, parameter.dtype());
}

}  // namespace

Tensor standard_gamma(const Tensor& alpha, Generator* generator, SourceLocation where) {
  return drawn("standard_gamma", "alpha", alpha, generator, &Ops::random_gamma, where);
}

Tensor poisson(const Tensor& rate, Generator* generator, SourceLocation where) {
  return drawn("poisson", "rate", rate, generator, &Ops::random_poisson, where);
}

}  // namespace reel
