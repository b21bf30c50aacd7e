#pragma once

#include <optional>

#include "reel/core/ragged.h"

/// Normalisations: groups of elements brought to mean 0 and variance 1. Variances are biased (divided by the count) and taken
/// of the differences from the mean. f32 or f64; weight and bias have x's dtype and device and may be left out. A group
/// whose elements are all equal gives 0 for eps > 0 and NaN for eps = 0; a NaN or infinity makes its group NaN.
/// Backward keeps x (a copy where it has gaps, and where batch_norm has less than 8 elements a channel and sample) and each
/// group's mean and 1 / sqrt(variance + eps); group_norm of less than 8 elements a channel keeps for weight's gradient also what
/// weight multiplies. All throw DTypeError, DeviceError, ShapeError.
namespace reel {

/// Over the trailing axes of x [..., normalized...], each place alone: (x - mean) / sqrt(variance + eps) * weight + bias, with
/// weight and bias of the shape `normalized`. Ba, Kiros, Hinton, "Layer normalization", 2016.
REEL_API Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, SourceLocation where = SourceLocation::current());
/// Per row, over trailing axes of values [total, ..., normalized...].
REEL_API Ragged layer_norm(const Ragged& x, const Shape& normalized, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, SourceLocation where = SourceLocation::current());

/// x / sqrt(mean(x^2) + eps) * weight over the trailing axes of x [..., normalized...]; eps is the dtype's epsilon unless given.
/// An infinity gives 0 for its group's finite elements. Zhang, Sennrich, "Root mean square layer normalization", 2019.
REEL_API Tensor rms_norm(const Tensor& x, const Shape& normalized, const Tensor& weight = {},
                         std::optional<double> eps = {}, SourceLocation where = SourceLocation::current());
/// Per row.
REEL_API Ragged rms_norm(const Ragged& x, const Shape& normalized, const Tensor& weight = {},
                         std::optional<double> eps = {}, SourceLocation where = SourceLocation::current());

/// x [n, channels, ...]: each of `groups` runs of channels / groups channels of each sample as a whole; weight and bias
/// [channels]. Throws ShapeError unless groups divides the channels. Wu, He, "Group normalization", 2018.
REEL_API Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, SourceLocation where = SourceLocation::current());
/// Each row of values [total, channels, ...] is a sample.
REEL_API Ragged group_norm(const Ragged& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, SourceLocation where = SourceLocation::current());

struct BatchNormOptions {
  /// Normalise by the batch's own statistics, and move the running ones; else normalise by the running ones.
  bool training = false;
  /// The batch's part in the running statistics: running = (1 - momentum) running + momentum batch.
  double momentum = 0.1;
  double eps = 1e-5;
};

/// x [n, channels, ...], each channel over all samples and places: (x - mean) / sqrt(variance + eps) * weight + bias; weight,
/// bias and the running statistics [channels]. In training the running statistics, where given, are written: with the batch's
/// mean and its unbiased variance (divided by the count - 1); an empty batch leaves them. Throws ShapeError in training if
/// there is only one value per channel, or one place for several channels' statistics, Error if both statistics share memory,
/// or one shares that of weight or bias; out of training Error unless both are given. Ioffe, Szegedy, "Batch normalization",
/// 2015.
REEL_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_variance,
                           const Tensor& weight = {}, const Tensor& bias = {}, BatchNormOptions options = {},
                           SourceLocation where = SourceLocation::current());
/// Over all rows of all sequences: values [total, channels, ...].
REEL_API Ragged batch_norm(const Ragged& x, const Tensor& running_mean, const Tensor& running_variance,
                           const Tensor& weight = {}, const Tensor& bias = {}, BatchNormOptions options = {},
                           SourceLocation where = SourceLocation::current());

}  // namespace reel
