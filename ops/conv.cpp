#include "reel/ops/conv.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/correlation.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::packed_images;
using detail::record_op;
using detail::taping;

void check_padding(const char* op, const Conv& conv, const Tensor& x, SourceLocation where) {
  if (conv.mode == PaddingMode::zero) return;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t n = conv.input[a], padding = conv.padding[a];
    const auto refuse = [&](const char* what) {
      throw ShapeError(
          std::string(op) + ": " + what + ", got padding " + std::to_string(padding) + " for shape " + x.shape().str(),
          where);
    };
    if (padding == 0) continue;
    if (conv.mode == PaddingMode::symmetric && padding > n) refuse("symmetric padding must not exceed the image");
    if (conv.mode == PaddingMode::reflect && padding >= n) refuse("reflect padding must be smaller than the image");
    if (conv.mode == PaddingMode::replicate && n == 0) refuse("replicate padding needs an edge");
  }
}

Conv geometry(const char* op, int axes, const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options, SourceLocation where) {
  detail::check_correlation(op, axes, x, weight, "out, in / groups", where);
  Conv conv{.batch = x.shape()[0], .in = x.shape()[1], .out = weight.shape()[0], .groups = options.groups};
  conv.mode = options.mode;
  detail::check_groups(op, x, weight, conv.in, conv.groups, where);
  detail::check_bias(op, bias, x, conv.out, where);
  detail::set_windows(conv, op, axes, detail::kernel_of(weight), options.stride, options.padding, options.dilation,
                      where);
  detail::set_sizes(conv, op, axes, x, where);
  check_padding(op, conv, x, where);
  return conv;
}

// What backward keeps; `result` is undefined without relu.
struct Saved {
  Conv conv;
  Tensor x, weight, result;
};

// The fused gradients of x, weight and bias, inputs 0 to 2; in recorded ops while an outer tape watches.
void conv_backward(Gradients& g, const Saved& saved, const Tensor& dy) {
  const auto& [conv, x, weight, result] = saved;
  if (g.recording()) {
    const Tensor dz = result.defined() ? detail::relu_mask(dy, stop_gradient(result)) : dy;
    if (g.needs(0)) g.add(0, detail::correlate_input(conv, dz, weight, x.shape()));
    if (g.needs(1)) g.add(1, detail::correlate_weight(conv, x, dz, weight.shape()));
    if (g.needs(2)) g.add(2, sum(flatten(dz, 2), {0, 2}));
    return;
  }
  Ops& ops = backend(x.device());
  const Tensor images = packed_images(dy);
  const Array* mask = result.defined() ? &result.array() : nullptr;
  const bool weights = g.needs(1) || g.needs(2);
  const TensorOptions options = x.options();
  Tensor dx = g.needs(0) ? empty(x.shape(), options) : Tensor();
  Tensor dweight = weights ? empty(weight.shape(), options) : Tensor();
  Tensor dbias = g.needs(2) ? empty({conv.out}, options) : Tensor();
  const Array* to_bias = dbias.defined() ? &dbias.array() : nullptr;
  if (!weights) {
    ops.conv_backward_input(conv, images.array(), mask, packed(weight).array(), dx.array());
  } else if (!dx.defined()) {
    ops.conv_backward_weight(conv, packed_images(x).array(), images.array(), mask, dweight.array(), to_bias);
  } else {
    ops.conv_backward(conv, packed_images(x).array(), images.array(), mask, packed(weight).array(), dx.array(),
                      dweight.array(), to_bias);
  }
  g.add(0, std::move(dx));
  g.add(1, std::move(dweight));
  g.add(2, std::move(dbias));
}

Tensor convolve(const char* op, int axes, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvOptions& options, Epilogue epilogue, SourceLocation where) {
  const Conv conv = geometry(op, axes, x, weight, bias, options, where);
  const Shape shape = detail::image_shape(conv.batch, conv.out, conv.output, axes);
  const WriteOnce::Part& into = options.into;
  Tensor y = into.defined() ? into.memory(op, shape, x, where) : empty(shape, x.options());
  if (!packed_images(y).is(y))
    throw ShapeError(std::string(op) + ": the buffer to write into must be divided along axis 0 or 1", where);
  const Tensor shift = bias.defined() ? packed(bias) : bias;
  backend(x.device())
      .conv(conv, packed_images(x).array(), packed(weight).array(), shift.defined() ? &shift.array() : nullptr,
            epilogue, y.array());
  const Tensor result = epilogue == Epilogue::relu ? y : Tensor();
  if (into.defined()) {
    const auto [before, after] = into.written(where);
    if (taping())
      record_op(op, where, {&x, &weight, &bias, &before}, after, {&x, &weight, &result},
                [saved = Saved{conv, x, weight, result}, into](Gradients& g) {
                  conv_backward(g, saved, into.of(g.dy()));
                  g.add(3, g.dy());
                });
    return into.of(after, where);
  }
  if (taping())
    record_op(op, where, {&x, &weight, &bias}, y, {&x, &weight, &result},
              [saved = Saved{conv, x, weight, result}](Gradients& g) { conv_backward(g, saved, g.dy()); });
  return y;
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
              SourceLocation where) {
  return convolve("conv1d", 1, x, weight, bias, options, Epilogue::none, where);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
              SourceLocation where) {
  return convolve("conv2d", 2, x, weight, bias, options, Epilogue::none, where);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
              SourceLocation where) {
  return convolve("conv3d", 3, x, weight, bias, options, Epilogue::none, where);
}
Tensor conv1d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                   SourceLocation where) {
  return convolve("conv1d_relu", 1, x, weight, bias, options, Epilogue::relu, where);
}
Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                   SourceLocation where) {
  return convolve("conv2d_relu", 2, x, weight, bias, options, Epilogue::relu, where);
}
Tensor conv3d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                   SourceLocation where) {
  return convolve("conv3d_relu", 3, x, weight, bias, options, Epilogue::relu, where);
}

}  // namespace reel
