#include "reel/ops/pool.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"
#include "reel/ops/windows.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::record_op;
using detail::taping;

// Windows that begin behind the padding do not count.
void add_last_windows(Conv& conv) {
  for (int a = 0; a < 3; ++a) {
    const std::int64_t rest = conv.input[a] + 2 * conv.padding[a] - detail::reach(conv, a);
    conv.output[a] = (rest + conv.stride[a] - 1) / conv.stride[a] + 1;
    if ((conv.output[a] - 1) * conv.stride[a] >= conv.input[a] + conv.padding[a]) --conv.output[a];
  }
}

bool sees_input(const Conv& conv, int axis, std::int64_t output) {
  for (std::int64_t k = 0; k < conv.kernel[axis]; ++k) {
    const std::int64_t i = output * conv.stride[axis] + k * conv.dilation[axis] - conv.padding[axis];
    if (i >= 0 && i < conv.input[axis]) return true;
  }
  return false;
}

template <class Options>
Conv geometry(const char* op, int axes, const Tensor& x, const Options& options, const PerAxis& dilation,
              SourceLocation where) {
  check::floating(op, "x", x, where);
  check::rank(op, "x", x, 2 + axes, detail::image_form(axes), where);
  Conv conv{.batch = x.shape()[0], .in = x.shape()[1], .out = x.shape()[1]};
  const PerAxis& stride = options.stride.count() == 0 ? options.kernel : options.stride;
  detail::set_windows(conv, op, axes, options.kernel, stride, options.padding, dilation, where);
  for (int a = 0; a < 3; ++a)
    if (2 * conv.padding[a] > detail::reach(conv, a))
      throw ShapeError(std::string(op) + ": padding must be at most half of the kernel, got " +
                           std::to_string(conv.padding[a]) + " for " + std::to_string(detail::reach(conv, a)),
                       where);
  detail::set_sizes(conv, op, axes, x, where);
  if (options.ceil) add_last_windows(conv);
  for (int a = 0; a < 3; ++a)
    for (std::int64_t o = 0; o < conv.output[a] && (conv.padding[a] > 0 || options.ceil); ++o)
      if (!sees_input(conv, a, o))
        throw ShapeError(std::string(op) + ": each window must see an element, got one with padding alone for shape " +
                             x.shape().str(),
                         where);
  return conv;
}

Shape shape_of(const Conv& conv, const std::int64_t (&sizes)[3], int axes) {
  return detail::image_shape(conv.batch, conv.in, sizes, axes);
}

// --- averages: linear, so that the map and its adjoint are each other's gradient ----------------------------------------

Tensor spread(const Conv& conv, int axes, bool count_padding, const Tensor& dy);

// Whether one window is all of the input and no more: then it is the mean of a plane, whose kernels are faster on the CPU.
bool is_global(const Conv& conv) {
  if (conv.batch == 0 || conv.in == 0) return false;  // no planes, whose sizes may be of any number
  for (int a = 0; a < 3; ++a)
    if (conv.output[a] != 1 || conv.kernel[a] != conv.input[a] || conv.padding[a] != 0) return false;
  return true;
}
Shape planes_of(const Conv& conv) { return {conv.batch * conv.in, conv.input[0] * conv.input[1] * conv.input[2]}; }

Tensor averaged(const char* op, const Conv& conv, int axes, bool count_padding, const Tensor& x, SourceLocation where) {
  const Shape shape = shape_of(conv, conv.output, axes);
  Tensor y;
  if (is_global(conv)) {
    y = untaped([&] { return reshape(mean(reshape(x, planes_of(conv)), {1}), shape); });
  } else {
    y = empty(shape, x.options());
    backend(x.device()).pool(PoolOp::average, conv, count_padding, packed(x).array(), y.array(), nullptr);
  }
  if (taping())
    record_op(op, where, {&x}, y, {},
              [conv, axes, count_padding](Gradients& g) { g.add(0, spread(conv, axes, count_padding, g.dy())); });
  return y;
}

Tensor spread(const Conv& conv, int axes, bool count_padding, const Tensor& dy) {
  const Shape shape = shape_of(conv, conv.input, axes);
  Tensor dx;
  if (is_global(conv)) {
    dx = untaped([&] {
      const Shape planes = planes_of(conv);
      const Tensor share = reshape(dy, {planes[0], 1}) / static_cast<double>(planes[1]);
      return reshape(contiguous(expand(share, planes)), shape);
    });
  } else {
    dx = empty(shape, dy.options());
    backend(dy.device()).pool_backward(PoolOp::average, conv, count_padding, packed(dy).array(), nullptr, dx.array());
  }
  if (taping())
    record_op("avg_pool_backward", SourceLocation{}, {&dy}, dx, {}, [conv, axes, count_padding](Gradients& g) {
      g.add(0, averaged("avg_pool", conv, axes, count_padding, g.dy(), SourceLocation{}));
    });
  return dx;
}

Tensor average(const char* op, int axes, const Tensor& x, const AvgPoolOptions& options, SourceLocation where) {
  const Conv conv = geometry(op, axes, x, options, 1, where);
  return averaged(op, conv, axes, options.count_padding, x, where);
}

// --- maxima -----------------------------------------------------------------------------------------------------------

// dy added where the maxima were, in recorded ops.
Tensor recorded_gradient(const Tensor& dy, const Tensor& which, const Shape& shape) {
  const std::int64_t planes = shape[0] * shape[1], size = shape.size();
  if (size == 0) return dy.size() == 0 ? reshape(dy, shape) : zeros(shape, dy.options());
  const Tensor plane = arange(planes, {.dtype = i64, .device = dy.device()}) * (size / planes);
  const Tensor index = reshape(reshape(plane, {planes, 1}) + reshape(which, {planes, which.size() / planes}), {-1});
  return reshape(detail::add_rows(reshape(dy, {dy.size()}), index, {size}), shape);
}

MaxPooled maximum(const char* op, int axes, const Tensor& x, const MaxPoolOptions& options, bool wants_which,
                  SourceLocation where) {
  const Conv conv = geometry(op, axes, x, options, options.dilation, where);
  const Shape shape = shape_of(conv, conv.output, axes);
  Tensor y = empty(shape, x.options());
  const Tensor which = wants_which || taping() ? empty(shape, {.dtype = i64, .device = x.device()}) : Tensor();
  backend(x.device())
      .pool(PoolOp::max, conv, false, packed(x).array(), y.array(), which.defined() ? &which.array() : nullptr);
  if (taping())
    record_op(op, where, {&x}, y, {&which}, [conv, which](Gradients& g) {
      if (g.recording()) {
        g.add(0, recorded_gradient(g.dy(), which, g.shape(0)));
        return;
      }
      Tensor dx = empty(g.shape(0), g.dy().options());
      backend(dx.device()).pool_backward(PoolOp::max, conv, false, packed(g.dy()).array(), &which.array(), dx.array());
      g.add(0, std::move(dx));
    });
  return {y, which};
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool1d", 1, x, options, false, where).values;
}
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool2d", 2, x, options, false, where).values;
}
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool3d", 3, x, options, false, where).values;
}
MaxPooled max_pool1d_which(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool1d_which", 1, x, options, true, where);
}
MaxPooled max_pool2d_which(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool2d_which", 2, x, options, true, where);
}
MaxPooled max_pool3d_which(const Tensor& x, const MaxPoolOptions& options, SourceLocation where) {
  return maximum("max_pool3d_which", 3, x, options, true, where);
}
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options, SourceLocation where) {
  return average("avg_pool1d", 1, x, options, where);
}
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options, SourceLocation where) {
  return average("avg_pool2d", 2, x, options, where);
}
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options, SourceLocation where) {
  return average("avg_pool3d", 3, x, options, where);
}

}  // namespace reel
