#include "reel/ops/losses.h"

#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/offsets.h"
#include "reel/ops/reduce.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/unary_op.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::Parameters;
using detail::record_op;
using detail::taping;

void check_pair(const char* op, const char* name, const Tensor& x, const char* other, const Tensor& target,
                SourceLocation where) {
  check::floating(op, name, x, where);
  check::like(op, other, target, name, x, where);
  check::shape(op, other, target, x.shape(), where);
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

// The derivative of binary cross entropy by the logits, recorded; its own are sigmoid(x) sigmoid(-x) and -1.
Tensor bce_slope(const Tensor& x, const Tensor& target) {
  Tensor y = detail::binary(BinaryOp::bce_slope, x, target);
  if (taping())
    record_op("bce_slope", SourceLocation{}, {&x, &target}, y, {&x}, [x](Gradients& g) {
      if (g.needs(0)) g.add(0, g.dy() * (sigmoid(x) * sigmoid(-x)));
      if (g.needs(1)) g.add(1, neg(g.dy()));
    });
  return y;
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("mse_loss", "x", x, "target", target, where);
  const Tensor off = x - target;
  if (reduction == Reduction::none) return square(off);
  const ReduceOp op = reduction == Reduction::sum ? ReduceOp::sum_of_squares : ReduceOp::mean_of_squares;
  return detail::reduced_squares("mse_loss", op, off, {}, Keep::no, where);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("l1_loss", "x", x, "target", target, where);
  return reduced(abs(x - target), reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction, double delta, SourceLocation where) {
  check_pair("huber_loss", "x", x, "target", target, where);
  if (!(delta > 0)) throw Error("huber_loss: delta must be above 0, got " + detail::number_text(delta), where);
  static constexpr detail::Parametric f{ParametricOp::huber, "huber_loss", [](const Tensor& r, const Parameters& p) {
                                          return untaped([&] { return cast(abs(r) <= p[0], r.dtype()); });
                                        }};
  return reduced(detail::parametric(f, x - target, {delta}, where), reduction);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("bce_with_logits", "logits", logits, "target", target, where);
  const Tensor losses = detail::binary(BinaryOp::bce, logits, target);
  if (taping())
    record_op("bce_with_logits", where, {&logits, &target}, losses, {&logits, &target}, [logits, target](Gradients& g) {
      if (g.needs(0)) g.add(0, g.dy() * bce_slope(logits, target));
      if (g.needs(1)) g.add(1, neg(g.dy() * logits));
    });
  return reduced(losses, reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("kl_div", "x", x, "target", target, where);
  const Tensor some = target != 0;
  return reduced(target * (log(reel::where(some, target, 1)) - reel::where(some, x, 0)), reduction);
}

Tensor hinge_loss(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("hinge_loss", "x", x, "target", target, where);
  return reduced(relu(1 - target * x), reduction);
}

Tensor poisson_nll(const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation where) {
  check_pair("poisson_nll", "x", x, "target", target, where);
  return reduced(exp(x) - target * x, reduction);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis, double eps, SourceLocation where) {
  check_pair("cosine_similarity", "a", a, "b", b, where);
  axis = check::axis("cosine_similarity", axis, a.rank(), where);
  const Tensor lengths = maximum(norm(a, axis), eps) * maximum(norm(b, axis), eps);
  return sum(a * b, axis) / lengths;
}

Tensor mse_loss(const Ragged& x, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("mse_loss", x, target, where);
  return mse_loss(x.values(), target.values(), reduction, where);
}
Tensor l1_loss(const Ragged& x, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("l1_loss", x, target, where);
  return l1_loss(x.values(), target.values(), reduction, where);
}
Tensor huber_loss(const Ragged& x, const Ragged& target, Reduction reduction, double delta, SourceLocation where) {
  check::same_lengths("huber_loss", x, target, where);
  return huber_loss(x.values(), target.values(), reduction, delta, where);
}
Tensor bce_with_logits(const Ragged& logits, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("bce_with_logits", logits, target, where);
  return bce_with_logits(logits.values(), target.values(), reduction, where);
}
Tensor kl_div(const Ragged& x, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("kl_div", x, target, where);
  return kl_div(x.values(), target.values(), reduction, where);
}
Tensor hinge_loss(const Ragged& x, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("hinge_loss", x, target, where);
  return hinge_loss(x.values(), target.values(), reduction, where);
}
Tensor poisson_nll(const Ragged& x, const Ragged& target, Reduction reduction, SourceLocation where) {
  check::same_lengths("poisson_nll", x, target, where);
  return poisson_nll(x.values(), target.values(), reduction, where);
}
Ragged cosine_similarity(const Ragged& a, const Ragged& b, int axis, double eps, SourceLocation where) {
  check::defined("cosine_similarity", "a", a.values(), where);
  check::same_lengths("cosine_similarity", a, b, where);
  check::row_axes("cosine_similarity", a, axis, where);
  return a.with(cosine_similarity(a.values(), b.values(), axis, eps, where));
}

Tensor cosine_loss(const Tensor& a, const Tensor& b, Reduction reduction, int axis, SourceLocation where) {
  check_pair("cosine_loss", "a", a, "b", b, where);
  check::axis("cosine_loss", axis, a.rank(), where);
  return reduced(1 - cosine_similarity(a, b, axis), reduction);
}
Tensor cosine_loss(const Ragged& a, const Ragged& b, Reduction reduction, int axis, SourceLocation where) {
  check::defined("cosine_loss", "a", a.values(), where);
  check::same_lengths("cosine_loss", a, b, where);
  check::row_axes("cosine_loss", a, axis, where);
  return cosine_loss(a.values(), b.values(), reduction, axis, where);
}

}  // namespace reel
