#include "reel/ops/rotary.h"

#include <cmath>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

// What turns each pair, broadcast to [..., width / 2].
struct Turn {
  Tensor cosine, sine;
  bool interleaved;
};

Tensor turned(const Tensor& x, const Turn& turn, SourceLocation where) {
  const Tensor y = untaped([&] {
    const std::int64_t half = x.shape().back() / 2;
    if (turn.interleaved) {
      Shape pairs = x.shape();
      pairs[x.rank() - 1] = half;
      pairs.push_back(2);
      const Tensor in = reshape(x, pairs), a = select(in, -1, 0), b = select(in, -1, 1);
      return reshape(stack({a * turn.cosine - b * turn.sine, b * turn.cosine + a * turn.sine}, -1), x.shape());
    }
    const Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half);
    return concatenate({a * turn.cosine - b * turn.sine, b * turn.cosine + a * turn.sine}, -1);
  });
  if (detail::taping())
    detail::record_op("rotary", where, {&x}, y, {}, [turn, where](detail::Gradients& g) {
      g.add(0, turned(g.dy(), {turn.cosine, untaped([&] { return -turn.sine; }), turn.interleaved}, where));
    });
  return y;
}

// Turns rows by their positions (f64), which stand along axis `axis` of x.
Tensor rotated(const Tensor& x, int axis, const Tensor& positions, const RotaryOptions& options, SourceLocation where) {
  const Turn turn = untaped([&] {
    const std::int64_t half = x.shape().back() / 2;
    Tensor rates = empty({half}, {.dtype = f64});
    double i = 0;
    for (double& rate : rates.mutable_data<double>()) rate = std::pow(options.theta, -i++ / static_cast<double>(half));
    Shape shape{positions.size()};
    for (int k = axis + 1; k < x.rank(); ++k) shape.push_back(1);
    const Tensor angles = reshape(positions + static_cast<double>(options.offset), shape) * rates;
    const auto as_x = [&](const Tensor& t) { return to(cast(t, x.dtype()), x.device()); };
    return Turn{as_x(cos(angles)), as_x(sin(angles)), options.interleaved};
  });
  return turned(x, turn, where);
}

void check_rows(const Tensor& x, const char* form, const RotaryOptions& options, SourceLocation where) {
  check::floating("rotary", "x", x, where);
  if (x.rank() < 2 || x.shape().back() % 2 != 0)
    throw ShapeError(std::string("rotary: x must have shape ") + form + " with an even width, got " + x.shape().str(),
                     where);
  if (!(options.theta > 0)) throw Error("rotary: theta must be above 0, got " + std::to_string(options.theta), where);
}

}  // namespace

Tensor rotary(const Tensor& x, RotaryOptions options, SourceLocation where) {
  check_rows(x, "[..., length, width]", options, where);
  return rotated(x, x.rank() - 2, arange(x.shape()[x.rank() - 2], {.dtype = f64}), options, where);
}

Ragged rotary(const Ragged& x, RotaryOptions options, SourceLocation where) {
  check_rows(x.values(), "[total, ..., width]", options, where);
  Tensor positions = empty({x.total()}, {.dtype = f64});
  double* position = positions.mutable_data<double>().data();
  for (std::int64_t s = 0; s < x.count(); ++s)
    for (std::int64_t i = 0; i < x.length(s); ++i) *position++ = static_cast<double>(i);
  return x.with(rotated(x.values(), 0, positions, options, where));
}

}  // namespace reel
