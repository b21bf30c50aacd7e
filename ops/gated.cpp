#include "reel/ops/gated.h"

#include <string>

#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::record_op;
using detail::taping;

using Function = Tensor (*)(const Tensor&, SourceLocation);

// Seen as [rows, width], width the last axis' size; x contiguous.
Tensor as_lines(const Tensor& x) {
  const std::int64_t width = x.shape().back();
  return detail::reshaped(x, {width == 0 ? 0 : x.size() / width, width});
}

// The gradient in recorded ops: what the same function of recorded ops gets from a tape of its own.
Tensor recorded_gradient(Function f, const Tensor& x, const Tensor& dy) {
  Tape tape;
  tape.watch(x);
  const std::int64_t n = x.shape().back() / 2;
  const Tensor y = narrow(x, -1, 0, n) * f(narrow(x, -1, n, n), SourceLocation{});
  return tape.gradient(y, dy, {x})[0];
}

Tensor gated(GateOp op, const char* name, Function f, const Tensor& x, SourceLocation where) {
  check::floating(name, "x", x, where);
  if (x.rank() == 0 || x.shape().back() % 2 != 0)
    throw ShapeError(std::string(name) + ": x must have shape [.., 2 n], got " + x.shape().str(), where);
  Shape shape = x.shape();
  shape[x.rank() - 1] /= 2;
  Tensor y = empty(shape, x.options());
  const Tensor from = packed(x);
  backend(x.device()).gated(op, as_lines(from).array(), as_lines(y).array());
  if (taping())
    record_op(name, where, {&x}, y, {&x}, [op, f, x](Gradients& g) {
      if (g.recording()) return g.add(0, recorded_gradient(f, x, g.dy()));
      Tensor dx = empty(x.shape(), x.options());
      backend(x.device())
          .gated_backward(op, as_lines(packed(x)).array(), as_lines(packed(g.dy())).array(), as_lines(dx).array());
      g.add(0, std::move(dx));
    });
  return y;
}

// The last axis as two, [.., n, pieces].
Tensor in_pieces(const char* name, const Tensor& x, std::int64_t pieces, SourceLocation where) {
  check::floating(name, "x", x, where);
  if (pieces < 1 || x.rank() == 0 || x.rank() == kMaxRank || x.shape().back() % pieces != 0)
    throw ShapeError(std::string(name) +
                         ": x must have shape [.., n pieces] with pieces >= 1 and less than 8 axes, got " +
                         x.shape().str() + " and " + std::to_string(pieces) + " pieces",
                     where);
  Shape shape = x.shape();
  shape[x.rank() - 1] /= pieces;
  shape.push_back(pieces);
  return reshape(x, shape);
}

void check_columns(const char* name, const Ragged& x, SourceLocation where) {
  check::defined(name, "x", x.values(), where);
  if (x.values().rank() < 2)
    throw ShapeError(std::string(name) + ": the values of a Ragged must have shape [total, .., columns], got " +
                         x.values().shape().str(),
                     where);
}

Ragged per_row(GateOp op, const char* name, Function f, const Ragged& x, SourceLocation where) {
  check_columns(name, x, where);
  return x.with(gated(op, name, f, x.values(), where));
}

}  // namespace

Tensor glu(const Tensor& x, SourceLocation where) { return gated(GateOp::sigmoid, "glu", sigmoid, x, where); }
Tensor geglu(const Tensor& x, SourceLocation where) { return gated(GateOp::gelu, "geglu", gelu, x, where); }
Tensor swiglu(const Tensor& x, SourceLocation where) { return gated(GateOp::silu, "swiglu", silu, x, where); }

Tensor maxout(const Tensor& x, std::int64_t pieces, SourceLocation where) {
  return max(in_pieces("maxout", x, pieces, where), -1);
}
Winners maxout_which(const Tensor& x, std::int64_t pieces, SourceLocation where) {
  return max_which(in_pieces("maxout_which", x, pieces, where), -1);
}

Ragged glu(const Ragged& x, SourceLocation where) { return per_row(GateOp::sigmoid, "glu", sigmoid, x, where); }
Ragged geglu(const Ragged& x, SourceLocation where) { return per_row(GateOp::gelu, "geglu", gelu, x, where); }
Ragged swiglu(const Ragged& x, SourceLocation where) { return per_row(GateOp::silu, "swiglu", silu, x, where); }
Ragged maxout(const Ragged& x, std::int64_t pieces, SourceLocation where) {
  check_columns("maxout", x, where);
  return x.with(maxout(x.values(), pieces, where));
}
RaggedWinners maxout_which(const Ragged& x, std::int64_t pieces, SourceLocation where) {
  check_columns("maxout_which", x, where);
  const Winners rows = maxout_which(x.values(), pieces, where);
  return {x.with(rows.y), x.with(rows.which)};
}

}  // namespace reel
