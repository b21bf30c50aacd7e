#include "reel/ops/softmax.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::taping;

// The gradient in recorded ops, to be differentiated again.
Tensor recorded_gradient(SoftmaxOp op, const Tensor& y, const Tensor& dy, int axis, double temperature) {
  if (op == SoftmaxOp::softmax) return y * (dy - sum(dy * y, axis, Keep::yes)) / temperature;
  return (dy - exp(y) * sum(dy, axis, Keep::yes)) / temperature;
}

Tensor over_axis(SoftmaxOp op, const char* name, const Tensor& x, int axis, double temperature, SourceLocation where) {
  check::floating(name, "x", x, where);
  axis = check::axis(name, axis, x.rank(), where);
  if (!(temperature > 0))
    throw Error(std::string(name) + ": temperature must be above 0, got " + std::to_string(temperature), where);
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x.device()).softmax(op, detail::packed(x).array(), axis, temperature, y.array());
  if (taping())
    record_op(name, where, {&x}, y, {&y}, [op, y, axis, temperature](Gradients& g) {
      if (g.recording()) {
        g.add(0, recorded_gradient(op, y, g.dy(), axis, temperature));
        return;
      }
      Tensor dx = empty_like(y);
      backend(y.device())
          .softmax_backward(op, y.array(), detail::packed(g.dy()).array(), axis, temperature, dx.array());
      g.add(0, std::move(dx));
    });
  return y;
}

// Weights of the rows of a cross entropy: 0 where the target is `ignore`.
Tensor counted_rows(const Tensor& target, std::int64_t ignore, DType dtype) { return cast(target != ignore, dtype); }

Tensor row_losses(const Tensor& logits, const Tensor& target, std::int64_t ignore, SourceLocation where) {
  const std::int64_t rows = logits.shape()[0];
  Tensor loss = empty({rows}, {.dtype = logits.dtype(), .device = logits.device()});
  Tensor lse = empty_like(loss);
  const Tensor scores = detail::packed(logits);
  backend(logits.device()).cross_entropy(scores.array(), target.array(), ignore, loss.array(), lse.array());
  if (taping())
    record_op("cross_entropy", where, {&logits}, loss, {&logits, &target},
              [logits, scores, target, lse, ignore](Gradients& g) {
                if (g.recording()) {
                  const Tensor classes =
                      arange(logits.shape()[1], {.dtype = target.dtype(), .device = target.device()});
                  const Tensor hit = cast(unsqueeze(target, 1) == classes, logits.dtype());
                  const Tensor weight = unsqueeze(g.dy() * counted_rows(target, ignore, logits.dtype()), 1);
                  g.add(0, (softmax(logits, 1) - hit) * weight);
                  return;
                }
                Tensor dlogits = empty_like(scores);
                backend(scores.device())
                    .cross_entropy_backward(scores.array(), target.array(), ignore, lse.array(), g.dy().array(),
                                            dlogits.array());
                g.add(0, std::move(dlogits));
              });
  return loss;
}

}  // namespace

Tensor softmax(const Tensor& x, int axis, double temperature, SourceLocation where) {
  return over_axis(SoftmaxOp::softmax, "softmax", x, axis, temperature, where);
}

Tensor log_softmax(const Tensor& x, int axis, double temperature, SourceLocation where) {
  return over_axis(SoftmaxOp::log_softmax, "log_softmax", x, axis, temperature, where);
}

Ragged softmax(const Ragged& x, int axis, double temperature, SourceLocation where) {
  if (check::axis("softmax", axis, x.values().rank(), where) == 0) return softmax(x, where);
  return x.with(softmax(x.values(), axis, temperature, where));
}

Ragged log_softmax(const Ragged& x, int axis, double temperature, SourceLocation where) {
  if (check::axis("log_softmax", axis, x.values().rank(), where) == 0) return log_softmax(x, where);
  return x.with(log_softmax(x.values(), axis, temperature, where));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, CrossEntropyOptions options, SourceLocation where) {
  check::floating("cross_entropy", "logits", logits, where);
  check::rank("cross_entropy", "logits", logits, 2, "[rows, classes]", where);
  check::index("cross_entropy", "target", target, where);
  check::shape("cross_entropy", "target", target, {logits.shape()[0]}, where);
  if (!(target.device() == logits.device()))
    throw DeviceError(
        "cross_entropy: target must be on " + logits.device().name() + " like logits, got " + target.device().name(),
        where);
  const Tensor packed_target = detail::packed(target);
  const std::int64_t classes = logits.shape()[1];
  Ops& ops = backend(logits.device());
  // An ignored row's target need not be a class: it is checked as if it were 0.
  const bool may_ignore = options.ignore < 0 || options.ignore >= classes;
  Tensor checked = packed_target;
  Tensor counted;
  if (may_ignore) {
    counted = untaped([&] { return packed_target != options.ignore; });
    checked = untaped([&] { return packed_target * cast(counted, packed_target.dtype()); });
  }
  ops.check_indices(checked.array(), classes, "cross_entropy", where);

  Tensor loss = row_losses(logits, packed_target, options.ignore, where);
  if (options.reduction == Reduction::none) return loss;
  if (options.reduction == Reduction::sum) return sum(loss, {}, Keep::no, where);
  const Tensor rows = untaped([&] { return sum(packed_target != options.ignore); });
  return sum(loss, {}, Keep::no, where) / rows.item();
}

Tensor cross_entropy(const Ragged& logits, const Tensor& target, CrossEntropyOptions options, SourceLocation where) {
  return cross_entropy(logits.values(), target, options, where);
}

}  // namespace reel
