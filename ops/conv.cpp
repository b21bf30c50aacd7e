#include "reel/ops/conv.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/reduce.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::record_op;
using detail::taping;

// A correlation is linear in x and in the weight, and so are its two adjoints: each one's gradients are the others. With
// these three, recorded, any order of derivative is there.
Tensor correlate(const Conv& conv, const Tensor& x, const Tensor& weight, const Shape& y);
Tensor input_gradient(const Conv& conv, const Tensor& dy, const Tensor& weight, const Shape& x);
Tensor weight_gradient(const Conv& conv, const Tensor& x, const Tensor& dy, const Shape& weight);

TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

Tensor correlate(const Conv& conv, const Tensor& x, const Tensor& weight, const Shape& shape) {
  Tensor y = empty(shape, like(x));
  backend(x.device()).conv(conv, packed(x).array(), packed(weight).array(), nullptr, Epilogue::none, y.array());
  if (taping())
    record_op("conv2d", SourceLocation{}, {&x, &weight}, y, {&x, &weight}, [conv, x, weight](Gradients& g) {
      if (g.needs(0)) g.add(0, input_gradient(conv, g.dy(), weight, x.shape()));
      if (g.needs(1)) g.add(1, weight_gradient(conv, x, g.dy(), weight.shape()));
    });
  return y;
}

Tensor input_gradient(const Conv& conv, const Tensor& dy, const Tensor& weight, const Shape& shape) {
  Tensor dx = empty(shape, like(dy));
  backend(dy.device()).conv_backward_input(conv, packed(dy).array(), nullptr, packed(weight).array(), dx.array());
  if (taping())
    record_op("conv2d_input_gradient", SourceLocation{}, {&dy, &weight}, dx, {&dy, &weight},
              [conv, dy, weight](Gradients& g) {
                if (g.needs(0)) g.add(0, correlate(conv, g.dy(), weight, dy.shape()));
                if (g.needs(1)) g.add(1, weight_gradient(conv, g.dy(), dy, weight.shape()));
              });
  return dx;
}

Tensor weight_gradient(const Conv& conv, const Tensor& x, const Tensor& dy, const Shape& shape) {
  Tensor dweight = empty(shape, like(x));
  backend(x.device())
      .conv_backward_weight(conv, packed(x).array(), packed(dy).array(), nullptr, dweight.array(), nullptr);
  if (taping())
    record_op("conv2d_weight_gradient", SourceLocation{}, {&x, &dy}, dweight, {&x, &dy}, [conv, x, dy](Gradients& g) {
      if (g.needs(0)) g.add(0, input_gradient(conv, dy, g.dy(), x.shape()));
      if (g.needs(1)) g.add(1, correlate(conv, x, g.dy(), dy.shape()));
    });
  return dweight;
}

Conv geometry(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
              SourceLocation where) {
  const std::string name = op;
  check::floating(op, "x", x, where);
  check::rank(op, "x", x, 4, "[n, in, h, w]", where);
  check::rank(op, "weight", weight, 4, "[out, in / groups, kh, kw]", where);
  check::like(op, "weight", weight, "x", x, where);
  Conv conv{.batch = x.shape()[0], .in = x.shape()[1], .out = weight.shape()[0], .groups = options.groups};
  conv.mode = options.mode;
  if (conv.groups < 1 || conv.in % conv.groups != 0 || conv.out % conv.groups != 0)
    throw ShapeError(name + ": groups must divide the " + std::to_string(conv.in) + " input and " +
                         std::to_string(conv.out) + " output channels, got " + std::to_string(conv.groups),
                     where);
  if (weight.shape()[1] != conv.in / conv.groups)
    throw ShapeError(name + ": weight must have shape [out, " + std::to_string(conv.in / conv.groups) +
                         ", kh, kw] for x " + x.shape().str() + ", got " + weight.shape().str(),
                     where);
  if (bias.defined()) {
    check::like(op, "bias", bias, "x", x, where);
    check::shape(op, "bias", bias, {conv.out}, where);
  }
  for (int i = 0; i < 2; ++i) {
    const int at = i + 1;  // of Conv's three axes
    conv.input[at] = x.shape()[2 + i];
    conv.kernel[at] = weight.shape()[2 + i];
    conv.stride[at] = options.stride[i];
    conv.dilation[at] = options.dilation[i];
    conv.padding[at] = options.padding[i];
    if (conv.stride[at] < 1 || conv.dilation[at] < 1 || conv.padding[at] < 0 || conv.kernel[at] < 1)
      throw ShapeError(name + ": stride, dilation and kernel must be at least 1, padding at least 0, got " +
                           std::to_string(conv.stride[at]) + ", " + std::to_string(conv.dilation[at]) + ", " +
                           std::to_string(conv.kernel[at]) + ", " + std::to_string(conv.padding[at]),
                       where);
    if (conv.mode == PaddingMode::symmetric && conv.padding[at] > conv.input[at])
      throw ShapeError(name + ": symmetric padding must not exceed the image, got padding " +
                           std::to_string(conv.padding[at]) + " for shape " + x.shape().str(),
                       where);
    const std::int64_t reach = conv.dilation[at] * (conv.kernel[at] - 1) + 1;
    const std::int64_t room = conv.input[at] + 2 * conv.padding[at] - reach;
    if (room < 0)
      throw ShapeError(name + ": the kernel must fit the padded image, got " + std::to_string(reach) + " pixels over " +
                           std::to_string(conv.input[at] + 2 * conv.padding[at]) + " for shape " + x.shape().str(),
                       where);
    conv.output[at] = room / conv.stride[at] + 1;
  }
  return conv;
}

// The fused gradients; in recorded ops while an outer tape watches.
void conv_backward(Gradients& g, const Conv& conv, const Tensor& x, const Tensor& weight, const Tensor& result) {
  if (g.recording()) {
    const Tensor dz = result.defined() ? detail::relu_mask(g.dy(), stop_gradient(result)) : g.dy();
    if (g.needs(0)) g.add(0, input_gradient(conv, dz, weight, x.shape()));
    if (g.needs(1)) g.add(1, weight_gradient(conv, x, dz, weight.shape()));
    if (g.needs(2)) g.add(2, sum(dz, {0, 2, 3}));
    return;
  }
  Ops& ops = backend(x.device());
  const Tensor dy = packed(g.dy());
  const Array* mask = result.defined() ? &result.array() : nullptr;
  if (g.needs(0)) {
    Tensor dx = empty(x.shape(), like(x));
    ops.conv_backward_input(conv, dy.array(), mask, packed(weight).array(), dx.array());
    g.add(0, std::move(dx));
  }
  if (!g.needs(1) && !g.needs(2)) return;
  Tensor dweight = empty(weight.shape(), like(x));
  Tensor dbias = g.needs(2) ? empty({conv.out}, like(x)) : Tensor();
  ops.conv_backward_weight(conv, packed(x).array(), dy.array(), mask, dweight.array(),
                           dbias.defined() ? &dbias.array() : nullptr);
  g.add(1, std::move(dweight));
  g.add(2, std::move(dbias));
}

Tensor convolve(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                Epilogue epilogue, SourceLocation where) {
  const Conv conv = geometry(op, x, weight, bias, options, where);
  Tensor y = empty({conv.batch, conv.out, conv.output[1], conv.output[2]}, like(x));
  const Tensor shift = bias.defined() ? packed(bias) : bias;
  backend(x.device())
      .conv(conv, packed(x).array(), packed(weight).array(), shift.defined() ? &shift.array() : nullptr, epilogue,
            y.array());
  if (taping()) {
    const Tensor result = epilogue == Epilogue::relu ? y : Tensor();
    record_op(op, where, {&x, &weight, &bias}, y, {&x, &weight, &result},
              [conv, x, weight, result](Gradients& g) { conv_backward(g, conv, x, weight, result); });
  }
  return y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
              SourceLocation where) {
  return convolve("conv2d", x, weight, bias, options, Epilogue::none, where);
}

Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                   SourceLocation where) {
  return convolve("conv2d_relu", x, weight, bias, options, Epilogue::relu, where);
}

}  // namespace reel
