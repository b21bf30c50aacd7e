#include "reel/ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/embedding.h"
#include "reel/ops/logical.h"
#include "reel/ops/offsets.h"
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
  // A row that is all -inf has no gradient.
  const Tensor some = untaped([&] { return cast(max(y, axis, Keep::yes) != -INFINITY, y.dtype()); });
  return (dy * some - exp(y) * sum(dy, axis, Keep::yes)) / temperature;
}

void check_temperature(const char* name, const Tensor& x, double temperature, SourceLocation where) {
  check::floating(name, "x", x, where);
  const bool counts = x.dtype() == f64 ? std::isnormal(temperature) : std::isnormal(static_cast<float>(temperature));
  if (!(temperature > 0 && counts))
    throw Error(std::string(name) + ": temperature must be above 0, finite and not denormal in " + name_of(x.dtype()) +
                    ", got " + detail::number_text(temperature),
                where);
}

Tensor over_axis(SoftmaxOp op, const char* name, const Tensor& x, int axis, double temperature, SourceLocation where) {
  check_temperature(name, x, temperature, where);
  if (x.rank() == 0) return reshape(over_axis(op, name, reshape(x, {1}), axis, temperature, where), {});
  axis = check::axis(name, axis, x.rank(), where);
  Tensor y = empty(x.shape(), x.options());
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

Ragged over_axis(SoftmaxOp op, const char* name, const Ragged& x, int axis, double temperature, SourceLocation where) {
  check_temperature(name, x.values(), temperature, where);
  if (check::axis(name, axis, x.values().rank(), where) == 0)
    return detail::softmax_of_sequences(op, name, x, temperature, where);
  return x.with(over_axis(op, name, x.values(), axis, temperature, where));
}

// --- losses over classes ----------------------------------------------------------------------------------------------

// Where the classes are in scores [n, classes, ...] or [classes].
int class_axis(const char* op, const char* name, const Tensor& scores, SourceLocation where) {
  check::floating(op, name, scores, where);
  if (scores.rank() == 0)
    throw ShapeError(std::string(op) + ": " + name + " must have shape [classes] or [n, classes, ...], got []", where);
  return scores.rank() == 1 ? 0 : 1;
}

Shape without(const Shape& shape, int axis) {
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) rest.push_back(shape[i]);
  return rest;
}

// Scores or soft labels as [rows, classes].
Tensor in_rows(const Tensor& x, int axis) {
  Shape order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return reshape(permute(x, order), {without(x.shape(), axis).size(), x.shape()[axis]});
}

// A loss of scores [n, classes, ...] or [classes] by that of [rows, classes], loss(scores, target).
template <class Loss>
Tensor by_rows(const char* op, const Tensor& scores, int axis, const Tensor& target, Reduction reduction,
               SourceLocation where, Loss&& loss) {
  const bool soft = is_floating(target.dtype());
  const Shape rest = without(scores.shape(), axis);
  check::shape(op, "target", target, soft ? scores.shape() : rest, where);
  const Tensor y = loss(in_rows(scores, axis), soft ? in_rows(target, axis) : reshape(target, {rest.size()}));
  return reduction == Reduction::none ? reshape(y, rest) : y;
}

void check_classes(const char* op, const Ragged& scores, SourceLocation where) {
  check::defined(op, "each Ragged", scores.values(), where);
  if (scores.values().rank() < 2)
    throw ShapeError(std::string(op) + ": the values of a Ragged must have shape [total, classes, ...], got " +
                         scores.values().shape().str(),
                     where);
}

// The class of each row: checked, and contiguous.
Tensor checked_classes(const char* op, const Tensor& target, std::int64_t ignore, const char* name,
                       const Tensor& scores, SourceLocation where) {
  check::index(op, "target", target, where);
  check::shape(op, "target", target, {scores.shape()[0]}, where);
  if (!(target.device() == scores.device()))
    throw DeviceError(std::string(op) + ": target must be on " + scores.device().name() + " like " + name + ", got " +
                          target.device().name(),
                      where);
  const detail::Pause pause;
  Tensor index = detail::packed(target);
  backend(scores.device()).check_indices(index.array(), scores.shape()[1], &ignore, op, where);
  return index;
}

// The class of each row, and which of them are not ignored.
struct Targets {
  Tensor index;    // [rows]
  Tensor counts;   // bool8: not ignored
  Tensor counted;  // the same as 1 and 0 in the scores' dtype

  Targets(Tensor classes, std::int64_t ignore, DType dtype) : index(std::move(classes)) {
    const detail::Pause pause;
    counts = index != ignore;
    counted = cast(counts, dtype);
  }
  /// The classes as i64, 0 where ignored.
  Tensor index_or_0() const {
    return untaped([&] { return cast(index, i64) * cast(counts, i64); });
  }
};

// Factors of the classes, or none.
struct ClassWeights {
  Tensor weight;

  ClassWeights(const char* op, const Tensor& given, const char* name, const Tensor& scores, SourceLocation where) {
    if (!given.defined()) return;
    check::like(op, "weight", given, name, scores, where);
    check::shape(op, "weight", given, {scores.shape()[1]}, where);
    weight = stop_gradient(given);
  }
  // Row losses times the weights of the rows' targets; without classes there is no target, and no loss.
  Tensor times(const Tensor& losses, const Targets& targets) const {
    if (!weight.defined() || weight.size() == 0) return losses;
    return losses * embedding(weight, targets.index_or_0());
  }
  // [rows, classes] weighted and summed over the classes.
  Tensor sum(const Tensor& scores) const { return reel::sum(weight.defined() ? scores * weight : scores, 1); }
};

// A mean counts each row that is not ignored with its target's weight.
Tensor reduced(const Tensor& loss, Reduction reduction, const Targets& targets, const ClassWeights& weights) {
  if (reduction == Reduction::none) return loss;
  const Tensor total = sum(loss);
  if (reduction == Reduction::sum) return total;
  return total / untaped([&] { return sum(weights.times(targets.counted, targets)); });
}

// Where the target is 0 the probability may be 0 too, or NaN: it is not looked at then.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& target, const ClassWeights& weights,
                          const CrossEntropyOptions& options, SourceLocation where) {
  check::like("cross_entropy", "target", target, "logits", logits, where);
  check::shape("cross_entropy", "target", target, logits.shape(), where);
  const double smoothing = options.label_smoothing;
  const Tensor wanted =
      smoothing > 0 ? (1 - smoothing) * target + smoothing / static_cast<double>(logits.shape()[1]) : target;
  const Tensor cost = neg(log_softmax(logits, 1));
  const Tensor some = untaped([&] { return cast(logical_or(wanted != 0, isfinite(cost)), logits.dtype()); });
  const Tensor known = weights.sum(wanted * detail::relu_mask(cost, some));
  // No probability of a row that is all -inf is right: NaN there, unless all its labels are 0, and else 0.
  const Tensor loss = known + untaped([&] {
                        const Tensor largest = max(logits, 1);
                        return reel::where(known != 0, largest - largest, 0.0);
                      });
  if (options.reduction == Reduction::none) return loss;
  return options.reduction == Reduction::sum ? sum(loss) : mean(loss);
}

// The rows' losses [rows], or the mean of those that are not ignored.
Tensor row_losses(const Tensor& logits, const Tensor& target, std::int64_t ignore, bool mean, SourceLocation where) {
  const std::int64_t rows = logits.shape()[0];
  const TensorOptions options = logits.options();
  Tensor loss = mean ? empty({}, options) : empty({rows}, options);
  Tensor lse = empty({mean ? rows + 1 : rows}, options);
  const Tensor scores = detail::packed(logits);
  Ops& ops = backend(logits.device());
  Tensor made;  // the gradient for a dloss of 1
  if (detail::would_record("cross_entropy", logits, where)) made = empty_like(scores);
  ops.cross_entropy(scores.array(), target.array(), ignore, loss.array(), lse.array(),
                    made.defined() ? &made.array() : nullptr);
  if (taping())
    record_op(
        "cross_entropy", where, {&logits}, loss, {&logits, &target},
        [logits, scores, target, lse, ignore, mean, made = std::move(made)](Gradients& g) mutable {
          if (g.recording()) {
            const Tensor classes = arange(logits.shape()[1], target.options());
            const Tensor hit = cast(unsqueeze(target, 1) == classes, logits.dtype());
            // Rows that are ignored or all -inf are not looked at: a NaN there does not come through.
            const Tensor counted = untaped([&] { return logical_and(target != ignore, max(logits, 1) != -INFINITY); });
            const Tensor grad =
                mean ? g.dy() / untaped([&] { return slice(lse, 0, lse.size() - 1, lse.size()); }) : g.dy();
            // If none counts, the mean's gradient is infinite, or NaN.
            const Tensor weight = unsqueeze(detail::relu_mask(grad, cast(counted, logits.dtype())), 1);
            g.add(0, (softmax(reel::where(unsqueeze(counted, 1), logits, 0.0), 1) - hit) * weight);
            return;
          }
          Ops& ops = backend(scores.device());
          const bool given_away = !made.defined();  // to an earlier sweep
          Tensor dlogits = given_away ? empty_like(scores) : std::exchange(made, Tensor());
          if (given_away) {
            const Tensor loss = mean ? empty({}, lse.options()) : empty_like(lse), again = empty_like(lse);
            ops.cross_entropy(scores.array(), target.array(), ignore, loss.array(), again.array(), &dlogits.array());
          }
          ops.cross_entropy_scale(lse.array(), target.array(), ignore, g.dy().array(), dlogits.array());
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
  return over_axis(SoftmaxOp::softmax, "softmax", x, axis, temperature, where);
}

Ragged log_softmax(const Ragged& x, int axis, double temperature, SourceLocation where) {
  return over_axis(SoftmaxOp::log_softmax, "log_softmax", x, axis, temperature, where);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options,
                     SourceLocation where) {
  const int axis = class_axis("cross_entropy", "logits", logits, where);
  check::defined("cross_entropy", "target", target, where);
  if (logits.rank() != 2)
    return by_rows("cross_entropy", logits, axis, target, options.reduction, where,
                   [&](const Tensor& x, const Tensor& t) { return cross_entropy(x, t, options, where); });
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing < 1))
    throw Error("cross_entropy: label_smoothing must be in [0, 1), got " + detail::number_text(smoothing), where);
  const ClassWeights weights("cross_entropy", options.weight, "logits", logits, where);
  if (is_floating(target.dtype()) && target.rank() + 1 == logits.rank())
    throw DTypeError(std::string("cross_entropy: target must be i32 or i64 class numbers, or probabilities of logits' "
                                 "shape ") +
                         logits.shape().str() + ", got " + name_of(target.dtype()) + " " + target.shape().str(),
                     where);
  if (is_floating(target.dtype())) return soft_cross_entropy(logits, target, weights, options, where);

  const Tensor classes = checked_classes("cross_entropy", target, options.ignore, "logits", logits, where);
  if (!weights.weight.defined() && smoothing == 0) {
    const Tensor loss = row_losses(logits, classes, options.ignore, options.reduction == Reduction::mean, where);
    return options.reduction == Reduction::sum ? sum(loss) : loss;
  }
  const Targets targets(classes, options.ignore, logits.dtype());
  Tensor loss = weights.times(row_losses(logits, classes, options.ignore, false, where), targets);
  if (smoothing > 0) {
    const Tensor counted =
        detail::broadcast_view(untaped([&] { return unsqueeze(targets.counted, 1); }), logits.shape());
    const Tensor spread = weights.sum(neg(log_softmax(detail::relu_mask(logits, counted), 1)));
    loss = (1 - smoothing) * loss + smoothing / static_cast<double>(std::max<std::int64_t>(1, logits.shape()[1])) *
                                        detail::relu_mask(spread, targets.counted);
  }
  return reduced(loss, options.reduction, targets, weights);
}

Tensor nll_loss(const Tensor& log_p, const Tensor& target, const NllOptions& options, SourceLocation where) {
  const int axis = class_axis("nll_loss", "log_p", log_p, where);
  check::defined("nll_loss", "target", target, where);
  if (log_p.rank() != 2)
    return by_rows("nll_loss", log_p, axis, target, options.reduction, where,
                   [&](const Tensor& x, const Tensor& t) { return nll_loss(x, t, options, where); });
  const ClassWeights weights("nll_loss", options.weight, "log_p", log_p, where);
  const Targets targets(checked_classes("nll_loss", target, options.ignore, "log_p", log_p, where), options.ignore,
                        log_p.dtype());
  const std::int64_t rows = log_p.shape()[0], classes = log_p.shape()[1];
  const auto picked = [&] {
    if (classes == 0) return sum(log_p, 1);  // of rows that are all ignored
    const Tensor place = untaped(
        [&] { return targets.index_or_0() + classes * arange(rows, {.dtype = i64, .device = log_p.device()}); });
    return embedding(reshape(log_p, {rows * classes}), place);
  };
  const Tensor loss = weights.times(detail::relu_mask(neg(picked()), targets.counted), targets);
  return reduced(loss, options.reduction, targets, weights);
}

Tensor cross_entropy(const Ragged& logits, const Tensor& target, const CrossEntropyOptions& options,
                     SourceLocation where) {
  check_classes("cross_entropy", logits, where);
  return cross_entropy(logits.values(), target, options, where);
}
Tensor cross_entropy(const Ragged& logits, const Ragged& target, const CrossEntropyOptions& options,
                     SourceLocation where) {
  check::same_lengths("cross_entropy", logits, target, where);
  return cross_entropy(logits, target.values(), options, where);
}
Tensor nll_loss(const Ragged& log_p, const Tensor& target, const NllOptions& options, SourceLocation where) {
  check_classes("nll_loss", log_p, where);
  return nll_loss(log_p.values(), target, options, where);
}
Tensor nll_loss(const Ragged& log_p, const Ragged& target, const NllOptions& options, SourceLocation where) {
  check::same_lengths("nll_loss", log_p, target, where);
  return nll_loss(log_p, target.values(), options, where);
}

}  // namespace reel
