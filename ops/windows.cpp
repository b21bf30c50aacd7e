#include "reel/ops/windows.h"

#include <string>

namespace reel::detail {

namespace {

// Products of two of these fit 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

void set(std::int64_t (&to)[3], const char* op, const char* name, int axes, const PerAxis& from, std::int64_t least,
         SourceLocation where) {
  const auto refuse = [&](const std::string& what) {
    throw ShapeError(std::string(op) + ": " + name + " must " + what, where);
  };
  if (from.count() != 1 && from.count() != axes)
    refuse("have one number, or one for each of the " + std::to_string(axes) + " axes, got " +
           std::to_string(from.count()));
  for (int i = 0; i < axes; ++i) {
    to[3 - axes + i] = from[i];
    if (from[i] < least) refuse("be at least " + std::to_string(least) + ", got " + std::to_string(from[i]));
    if (from[i] > kMost) refuse("be at most " + std::to_string(kMost) + ", got " + std::to_string(from[i]));
  }
}

}  // namespace

const char* image_form(int axes) { return axes == 1 ? "[n, in, l]" : axes == 2 ? "[n, in, h, w]" : "[n, in, d, h, w]"; }

void set_windows(Conv& conv, const char* op, int axes, const PerAxis& kernel, const PerAxis& stride,
                 const PerAxis& padding, const PerAxis& dilation, SourceLocation where) {
  set(conv.kernel, op, "kernel", axes, kernel, 1, where);
  set(conv.stride, op, "stride", axes, stride, 1, where);
  set(conv.padding, op, "padding", axes, padding, 0, where);
  set(conv.dilation, op, "dilation", axes, dilation, 1, where);
}

void set_sizes(Conv& conv, const char* op, int axes, const Tensor& x, SourceLocation where) {
  for (int a = 3 - axes; a < 3; ++a) {
    conv.input[a] = x.shape()[a - 3 + x.rank()];
    const std::int64_t padded = conv.input[a] + 2 * conv.padding[a];
    if (reach(conv, a) > padded)
      throw ShapeError(std::string(op) + ": the kernel must fit the padded image, got " +
                           std::to_string(reach(conv, a)) + " pixels over " + std::to_string(padded) + " for shape " +
                           x.shape().str(),
                       where);
    conv.output[a] = (padded - reach(conv, a)) / conv.stride[a] + 1;
  }
}

Shape image_shape(std::int64_t first, std::int64_t second, const std::int64_t (&sizes)[3], int axes) {
  Shape shape{first, second};
  for (int a = 3 - axes; a < 3; ++a) shape.push_back(sizes[a]);
  return shape;
}

}  // namespace reel::detail
