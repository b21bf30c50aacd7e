#include "reel/ops/unary_op.h"

#include <algorithm>
#include <cmath>

#include "reel/core/given_numbers.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"

namespace reel::detail {

namespace {

// For any kind of function: `kernel(saved, dy, dx)` is the fused gradient, `curve(saved)` the second derivative or undefined.
template <class Kernel, class Curve>
Tensor gradient(const char* name, const Tensor& dy, const Tensor& saved, Kernel kernel, Curve curve) {
  const Tensor at = saved.defined() ? packed(saved) : dy;
  Tensor dx = empty(dy.shape(), dy.options());
  kernel(at.array(), dy.array(), dx.array());
  if (thread_tape.recording)  // a Trace alone knows it as the function's backward
    record_op(name, SourceLocation{}, {&dy, &saved}, dx, {&dy, &saved}, [=](Gradients& g) {
      if (g.needs(0)) g.add(0, gradient(name, g.dy(), saved, kernel, curve));
      if (!g.needs(1)) return;
      if (const Tensor second = curve(saved); second.defined()) g.add(1, g.dy() * dy * second);
    });
  return dx;
}

Tensor parametric_gradient(const Parametric& f, const Tensor& dy, const Tensor& x, const Parameters& p) {
  Ops& ops = backend(dy.device());
  return gradient(
      f.name, dy, x,
      [&f, &ops, p](const Array& x, const Array& dy, const Array& dx) {
        ops.parametric_backward(f.op, p.data(), x, dy, dx);
      },
      [&f, p](const Tensor& x) { return f.curvature == nullptr ? Tensor() : f.curvature(x, p); });
}

}  // namespace

Tensor unary_gradient(const Unary& f, const Tensor& dy, const Tensor& saved) {
  Ops& ops = backend(dy.device());
  return gradient(
      f.name, dy, saved,
      [&f, &ops](const Array& saved, const Array& dy, const Array& dx) { ops.unary_backward(f.op, saved, dy, dx); },
      [&f](const Tensor& saved) { return f.curvature == nullptr ? Tensor() : f.curvature(saved); });
}

Tensor unary_slope(const Unary& f, const Tensor& saved) { return unary_gradient(f, ones_like(saved), saved); }

Tensor unary(const Unary& f, const Tensor& x, SourceLocation where) {
  check::floating(f.name, "x", x, where);
  Tensor y = empty_like(x);
  backend(x.device()).unary(f.op, x.array(), y.array());
  if (taping()) {
    const Tensor saved = f.saved == scalar::Saved::input ? x : f.saved == scalar::Saved::output ? y : Tensor();
    record_op(f.name, where, {&x}, y, {&saved},
              [&f, saved](Gradients& g) { g.add(0, unary_gradient(f, g.dy(), saved)); });
  }
  return y;
}

Tensor parametric(const Parametric& f, const Tensor& x, const Parameters& p, SourceLocation where) {
  check::floating(f.name, "x", x, where);
  Tensor y = empty_like(x);
  backend(x.device()).parametric(f.op, p.data(), x.array(), y.array());
  if (taping()) {
    const auto infinite = std::find_if(p.begin(), p.end(), [](double number) { return std::isinf(number); });
    const Scalar infinity = infinite != p.end() ? *infinite : 0;
    const GivenNumbers given(&infinity, infinite != p.end());
    record_op(f.name, where, {&x}, y, {&x},
              [&f, x, p](Gradients& g) { g.add(0, parametric_gradient(f, g.dy(), x, p)); });
  }
  return y;
}

}  // namespace reel::detail
