#pragma once

#include <cstdint>

#include "reel/core/parameter.h"
#include "reel/core/random.h"

/// First values of parameters. Numbers are the same for every backend and number of threads. Each counts as a write to the
/// parameter's value, and throws Error if the parameter is undefined or a number out of its range. fan_in and fan_out are
/// those of a weight [out, in, kernel...]: in and out times the kernel's size; the functions that need them throw ShapeError
/// for a rank below 2.
namespace reel::nn::init {

/// Where random numbers come from: a generator, or else the process's (see manual_seed).
class Source {
 public:
  Source() = default;
  Source(Generator& generator) : generator_(&generator) {}

  /// f32 or f64, on the CPU or a GPU: uniform in [0, 1), and standard normal.
  Tensor uniform(const Shape& shape, TensorOptions options) const;
  Tensor normal(const Shape& shape, TensorOptions options) const;

 private:
  Generator* generator_ = nullptr;
};

REEL_API void zeros(Parameter parameter, SourceLocation where = SourceLocation::current());
REEL_API void constant(Parameter parameter, double value, SourceLocation where = SourceLocation::current());
/// In [low, high), where low <= high; rounding may give high.
REEL_API void uniform(Parameter parameter, double low, double high, Source source = {},
                      SourceLocation where = SourceLocation::current());
REEL_API void normal(Parameter parameter, double mean, double deviation, Source source = {},
                     SourceLocation where = SourceLocation::current());

/// Variance 1 / fan_in. LeCun et al. 1998, "Efficient BackProp".
REEL_API void lecun_uniform(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
REEL_API void lecun_normal(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
/// Variance 2 / fan_in, for ReLU. He et al. 2015, "Delving Deep into Rectifiers".
REEL_API void he_uniform(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
REEL_API void he_normal(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
/// Variance 2 / (fan_in + fan_out). Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward
/// neural networks".
REEL_API void glorot_uniform(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
REEL_API void glorot_normal(Parameter weight, Source source = {}, SourceLocation where = SourceLocation::current());
/// Uniform with variance 2 / ((1 + a^2) fan_in). PyTorch's layers start with a = sqrt(5): within 1 / sqrt(fan_in).
REEL_API void kaiming_uniform(Parameter weight, double a, Source source = {},
                              SourceLocation where = SourceLocation::current());

/// Seen as [out, in * kernel...]: orthonormal rows, or columns if there are fewer, times `gain`; uniformly distributed.
/// Saxe et al. 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks".
REEL_API void orthogonal(Parameter weight, double gain = 1, Source source = {},
                         SourceLocation where = SourceLocation::current());

/// 1 / sqrt(fan_in): PyTorch starts weight and bias of its linear and convolution layers uniform within it.
REEL_API double layer_bound(const Parameter& weight, SourceLocation where = SourceLocation::current());

}  // namespace reel::nn::init
