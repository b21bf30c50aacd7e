#include "reel/ops/rotary.h"

#include <cmath>
#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

// What turns each pair: times each element, and times the other of its pair; both broadcast to x.
struct Turn {
  Tensor own, other;
  bool interleaved;
};

Tensor joined(const Tensor& first, const Tensor& second, bool interleaved) {
  if (!interleaved) return concatenate({first, second}, -1);
  Shape shape = first.shape();
  shape[first.rank() - 1] *= 2;
  return reshape(stack({first, second}, -1), shape);
}

// The other element of its pair in each element's place.
Tensor swapped(const Tensor& x, bool interleaved) {
  const std::int64_t half = x.shape().back() / 2;
  if (!interleaved) return roll(x, half, -1);
  Shape pairs = x.shape();
  pairs[x.rank() - 1] = half;
  pairs.push_back(2);
  const Tensor in = reshape(x, pairs);
  return joined(select(in, -1, 1), select(in, -1, 0), interleaved);
}

Tensor turned(const Tensor& x, const Turn& turn, SourceLocation where) {
  const Tensor y = untaped([&] { return x * turn.own + swapped(x, turn.interleaved) * turn.other; });
  if (detail::taping())
    detail::record_op("rotary", where, {&x}, y, {}, [turn, where](detail::Gradients& g) {
      g.add(0, turned(g.dy(), {turn.own, untaped([&] { return -turn.other; }), turn.interleaved}, where));
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
    const Tensor cosine = as_x(cos(angles)), sine = as_x(sin(angles));
    return Turn{joined(cosine, cosine, options.interleaved), joined(-sine, sine, options.interleaved),
                options.interleaved};
  });
  return turned(x, turn, where);
}

// `length`: of the longest sequence.
void check_options(std::int64_t length, const RotaryOptions& options, SourceLocation where) {
  constexpr std::int64_t most = 100'000'000;
  if (options.offset < -most || options.offset > most || length > most - options.offset)
    throw Error("rotary: positions must be in [-1e8, 1e8], got " + std::to_string(length) + " from " +
                    std::to_string(options.offset) + " on",
                where);
  if (!(options.theta > 0))
    throw Error("rotary: theta must be above 0, got " + detail::number_text(options.theta), where);
}

void check_width(const Tensor& x, const char* form, SourceLocation where) {
  check::floating("rotary", "x", x, where);
  if (x.rank() < 2 || x.shape().back() % 2 != 0)
    throw ShapeError(std::string("rotary: x must have shape ") + form + " with an even width, got " + x.shape().str(),
                     where);
}

}  // namespace

Tensor rotary(const Tensor& x, RotaryOptions options, SourceLocation where) {
  check_width(x, "[..., length, width]", where);
  check_options(x.shape()[x.rank() - 2], options, where);
  return rotated(x, x.rank() - 2, arange(x.shape()[x.rank() - 2], {.dtype = f64}), options, where);
}

Ragged rotary(const Ragged& x, RotaryOptions options, SourceLocation where) {
  check_width(x.values(), "[total, ..., width]", where);
  check_options(x.offsets().max_length(), options, where);
  Tensor positions = empty({x.total()}, {.dtype = f64});
  double* position = positions.mutable_data<double>().data();
  for (std::int64_t s = 0; s < x.count(); ++s)
    for (std::int64_t i = 0; i < x.length(s); ++i) *position++ = static_cast<double>(i);
  return x.with(rotated(x.values(), 0, positions, options, where));
}

}  // namespace reel
