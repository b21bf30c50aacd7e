#pragma once

// Private to nn/: what optimisers and averages share that work on the parameters' flat buffers.

#include <string>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/parameter.h"
#include "reel/nn/named_tensor.h"

namespace reel::nn::detail {

/// Elements [low, high) of a flat buffer.
Array stretch(const Tensor& flat, std::int64_t low, std::int64_t high);

/// Each parameter once. Throws Error, naming `kind`, for an undefined one.
std::vector<Parameter> unique(const char* kind, const std::vector<Parameter>& parameters, SourceLocation where);
/// The same, with all of them put into flat buffers.
std::vector<Parameter> prepared(const char* kind, const std::vector<Parameter>& parameters, SourceLocation where);

/// The parameters' names, with a number where one is missing or there twice.
std::vector<std::string> names_of(const std::vector<Parameter>& parameters);

/// Throws Error, naming `kind`, unless `given` has the names, shapes and dtypes of `mine`, in its order.
void check_fits(const char* kind, const std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& given,
                SourceLocation where);

/// The tensors of `given`, each on the device of that of `mine`: all there before the first of those is overwritten.
std::vector<Tensor> on_devices_of(const std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& given);

/// Whether an optimiser would change it.
inline bool takes_part(const Parameter& parameter) { return parameter.has_gradient() && parameter.trainable(); }

/// The square root of the sum of all squares of the gradients of those of these that an optimiser would change: one pass over
/// them, and one wait for a device, per run of parameters in one flat buffer. Allocates nothing of its own.
double gradient_norm(const std::vector<Parameter>& parameters);
/// What gradients of this norm are multiplied by, lest it exceed max_norm: 1 or less. Of a norm that is NaN: 1.
double clip_scale(double norm, double max_norm);
/// As clip_grad_norm, for parameters that are there once.
double clip_norm(const std::vector<Parameter>& parameters, double max_norm, SourceLocation where);

}  // namespace reel::nn::detail
