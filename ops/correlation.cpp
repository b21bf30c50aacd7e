#include "reel/ops/correlation.h"

#include <string>

namespace reel::detail {

Tensor correlate(const Conv& conv, const Tensor& x, const Tensor& weight, const Shape& shape) {
  Tensor y = empty(shape, x.options());
  backend(x.device()).conv(conv, packed_images(x).array(), packed(weight).array(), nullptr, Epilogue::none, y.array());
  if (taping())
    record_op("conv", SourceLocation{}, {&x, &weight}, y, {&x, &weight}, [conv, x, weight](Gradients& g) {
      if (g.needs(0)) g.add(0, correlate_input(conv, g.dy(), weight, x.shape()));
      if (g.needs(1)) g.add(1, correlate_weight(conv, x, g.dy(), weight.shape()));
    });
  return y;
}

Tensor correlate_input(const Conv& conv, const Tensor& dy, const Tensor& weight, const Shape& shape, const char* op,
                       SourceLocation where) {
  Tensor dx = empty(shape, dy.options());
  backend(dy.device())
      .conv_backward_input(conv, packed_images(dy).array(), nullptr, packed(weight).array(), dx.array());
  if (taping())
    record_op(op, where, {&dy, &weight}, dx, {&dy, &weight}, [conv, dy, weight](Gradients& g) {
      if (g.needs(0)) g.add(0, correlate(conv, g.dy(), weight, dy.shape()));
      if (g.needs(1)) g.add(1, correlate_weight(conv, g.dy(), dy, weight.shape()));
    });
  return dx;
}

Tensor correlate_weight(const Conv& conv, const Tensor& x, const Tensor& dy, const Shape& shape) {
  Tensor dweight = empty(shape, x.options());
  backend(x.device())
      .conv_backward_weight(conv, packed_images(x).array(), packed_images(dy).array(), nullptr, dweight.array(),
                            nullptr);
  if (taping())
    record_op("conv_weight_gradient", SourceLocation{}, {&x, &dy}, dweight, {&x, &dy}, [conv, x, dy](Gradients& g) {
      if (g.needs(0)) g.add(0, correlate_input(conv, dy, g.dy(), x.shape()));
      if (g.needs(1)) g.add(1, correlate(conv, x, g.dy(), dy.shape()));
    });
  return dweight;
}

Tensor packed_images(const Tensor& x) {
  std::int64_t stride = 1;
  for (int i = x.rank() - 1; i > 0; --i) {
    if (x.shape()[i] != 1 && x.stride(i) != stride) return packed(x);
    stride *= x.shape()[i];
  }
  return x;
}

void check_correlation(const char* op, int axes, const Tensor& x, const Tensor& weight, const char* channels,
                       SourceLocation where) {
  check::floating(op, "x", x, where);
  check::rank(op, "x", x, 2 + axes, image_form(axes), where);
  check::defined(op, "weight", weight, where);
  if (weight.rank() != 2 + axes) {
    const char* sizes = axes == 1 ? ", k]" : axes == 2 ? ", kh, kw]" : ", kd, kh, kw]";
    check::rank(op, "weight", weight, 2 + axes, ("[" + std::string(channels) + sizes).c_str(), where);
  }
  check::like(op, "weight", weight, "x", x, where);
}

void check_groups(const char* op, const Tensor& x, const Tensor& weight, std::int64_t in, std::int64_t groups,
                  SourceLocation where) {
  const std::int64_t out = weight.shape()[0];
  if (groups < 1 || in % groups != 0 || out % groups != 0)
    throw ShapeError(std::string(op) + ": groups must divide the " + std::to_string(in) + " input and " +
                         std::to_string(out) + " output channels, got " + std::to_string(groups),
                     where);
  if (weight.shape()[1] != in / groups)
    throw ShapeError(std::string(op) + ": weight must have " + std::to_string(in / groups) + " input channels for x " +
                         x.shape().str() + ", got shape " + weight.shape().str(),
                     where);
}

void check_bias(const char* op, const Tensor& bias, const Tensor& x, std::int64_t out, SourceLocation where) {
  if (!bias.defined()) return;
  check::like(op, "bias", bias, "x", x, where);
  check::shape(op, "bias", bias, {out}, where);
}

PerAxis kernel_of(const Tensor& weight) {
  const Shape& shape = weight.shape();
  if (shape.rank() == 3) return shape[2];
  if (shape.rank() == 4) return {shape[2], shape[3]};
  return {shape[2], shape[3], shape[4]};
}

}  // namespace reel::detail
