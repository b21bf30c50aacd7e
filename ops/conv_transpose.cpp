#include "reel/ops/conv_transpose.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/correlation.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

// Of the convolution whose adjoint this is: from y to x.
Conv geometry(const char* op, int axes, const Tensor& x, const Tensor& weight, const ConvTransposeOptions& options,
              SourceLocation where) {
  detail::check_correlation(op, axes, x, weight, "in, out / groups", where);
  const std::int64_t in = x.shape()[1];
  if (weight.shape()[0] != in)
    throw ShapeError(std::string(op) + ": weight must have " + std::to_string(in) + " input channels for x " +
                         x.shape().str() + ", got shape " + weight.shape().str(),
                     where);
  if (options.groups < 1 || in % options.groups != 0)
    throw ShapeError(std::string(op) + ": groups must divide the " + std::to_string(in) + " input channels, got " +
                         std::to_string(options.groups),
                     where);
  Conv conv{.batch = x.shape()[0], .in = weight.shape()[1] * options.groups, .out = in, .groups = options.groups};
  detail::set_windows(conv, op, axes, detail::kernel_of(weight), options.stride, options.padding, options.dilation,
                      where);
  if (options.output_padding.count() != 1 && options.output_padding.count() != axes)
    throw ShapeError(std::string(op) + ": output_padding must have one number, or one for each of the " +
                         std::to_string(axes) + " axes, got " + std::to_string(options.output_padding.count()),
                     where);
  for (int i = 0; i < axes; ++i) {
    const int a = 3 - axes + i;
    const std::int64_t extra = options.output_padding[i];
    if (extra < 0 || (extra >= conv.stride[a] && extra >= conv.dilation[a]))
      throw ShapeError(std::string(op) +
                           ": output_padding must be at least 0, and smaller than stride or dilation, got " +
                           std::to_string(extra),
                       where);
    conv.output[a] = x.shape()[2 + i];
    conv.input[a] = (conv.output[a] - 1) * conv.stride[a] - 2 * conv.padding[a] + detail::reach(conv, a) + extra;
    if (conv.input[a] < 0)
      throw ShapeError(std::string(op) + ": padding must leave something, got " + std::to_string(conv.input[a]) +
                           " elements for shape " + x.shape().str(),
                       where);
  }
  return conv;
}

Tensor transposed(const char* op, int axes, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const ConvTransposeOptions& options, SourceLocation where) {
  const Conv conv = geometry(op, axes, x, weight, options, where);
  detail::check_bias(op, bias, x, conv.in, where);
  const Shape shape = detail::image_shape(conv.batch, conv.in, conv.input, axes);
  const Tensor y = detail::correlate_input(conv, x, weight, shape, op, where);
  if (!bias.defined()) return y;
  constexpr std::int64_t kOnes[3] = {1, 1, 1};
  return add(y, reshape(bias, detail::image_shape(1, conv.in, kOnes, axes)));
}

}  // namespace

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
                        SourceLocation where) {
  return transposed("conv_transpose1d", 1, x, weight, bias, options, where);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
                        SourceLocation where) {
  return transposed("conv_transpose2d", 2, x, weight, bias, options, where);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
                        SourceLocation where) {
  return transposed("conv_transpose3d", 3, x, weight, bias, options, where);
}

}  // namespace reel
