#include "reel/ops/normalize.h"

#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/normalize_rows.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using namespace detail::normalization;
using detail::Gradients;
using detail::packed;
using detail::reshaped;

Tensor packed_or_none(const Tensor& t) { return t.defined() ? packed(t) : t; }

// Checks that x is [n, channels, ...].
void check_channels(const char* op, const Tensor& x, double eps, SourceLocation where) {
  check::floating(op, "x", x, where);
  check_eps(op, eps, where);
  if (x.rank() < 2)
    throw ShapeError(std::string(op) + ": x must have shape [n, channels, ...], got " + x.shape().str(), where);
}

// x [n, channels, ...] seen as [n, channels, the rest], the rest without gaps.
Tensor in_runs(const Tensor& x) {
  const std::int64_t n = x.shape()[0], channels = x.shape()[1];
  std::int64_t length = 1;
  bool gapless = true;
  for (int i = x.rank() - 1; i >= 2; length *= x.shape()[i--])
    gapless = gapless && (x.stride(i) == length || x.shape()[i] == 1);
  if (!gapless) return reshaped(packed(x), {n, channels, length});
  const std::int64_t strides[] = {x.stride(0), x.stride(1), 1};
  return detail::view(x, 0, {n, channels, length}, strides);
}

// Elements of a channel side by side, from which on the kernels for channels pay.
constexpr std::int64_t kShortestRun = 8;
std::int64_t run_length(const Tensor& x) {
  const std::int64_t runs = x.shape()[0] * x.shape()[1];
  return runs == 0 ? 0 : x.size() / runs;
}

// A number per channel with `after` axes of size 1 behind.
Tensor per_channel(const Tensor& numbers, int after) {
  Shape shape = numbers.shape();
  for (int i = 0; i < after; ++i) shape.push_back(1);
  return reshape(numbers, shape);
}

// The gradients in recorded ops; x [n, channels, ...], groups as for normalize_channels. What is normalised together has the axes
// of images, channels of a group and places, or the last two; sums are made of each channel before weight scales them, as in the
// kernels.
void recorded_gradients(Gradients& g, const Tensor& input, const Tensor& weight, std::int64_t groups, double eps) {
  if (input.size() == 0) return no_gradients(g, input);
  const std::int64_t n = input.shape()[0], channels = input.shape()[1], count = groups == 0 ? channels : groups;
  const Tensor x = reshape(input, {n, count, channels / count, input.size() / (n * channels)});
  const Axes group = groups == 0 ? Axes{0, 2, 3} : Axes{2, 3}, channel = groups == 0 ? Axes{0, 3} : Axes{3};
  const Tensor first = narrow(narrow(x, 3, 0, 1), 2, 0, 1);
  const Standardized is(x, groups == 0 ? narrow(first, 0, 0, 1) : first, group, true, eps);
  const Tensor dy = reshape(g.dy(), x.shape());
  const auto scaled = [&](const Tensor& t) {
    return weight.defined() ? t * reshape(weight, {count, channels / count, 1}) : t;
  };
  if (g.needs(0)) {
    const auto size = static_cast<double>(input.size()) / static_cast<double>(is.rstd.size());
    const auto mean_of = [&](const Tensor& t) {
      return sum(scaled(sum(t, channel, Keep::yes)), group, Keep::yes) / size;
    };
    g.add(0, reshape(is.gradient(scaled(dy), mean_of(dy), mean_of(dy * is.xhat)), g.shape(0)));
  }
  if (g.needs(1)) g.add(1, reshape(sum(dy * is.xhat, {0, 3}), g.shape(1)));
  if (g.needs(2)) g.add(2, reshape(sum(dy, {0, 3}), g.shape(2)));
}

struct Normalized {
  Tensor y, mean, variance;
};

// What normalize_channels keeps for its gradients: where only bias has one, none of x, `from`, mean and rstd.
struct Kept {
  Shape shape;  // [n, channels, length]
  std::int64_t groups;
  double eps;
  Tensor x, from, weight, scale, mean, rstd;
};

void gradients(Gradients& g, const Kept& kept) {
  if (!kept.x.defined()) return g.add(2, sum(reshape(g.dy(), kept.shape), {0, 2}));
  if (g.recording()) return recorded_gradients(g, kept.x, kept.weight, kept.groups, kept.eps);
  const Tensor dy = packed(g.dy()), dweight = room(g, 1, kept.x), dbias = room(g, 2, kept.x);
  backend(dy.device())
      .normalize_channels_backward(kept.from.array(), kept.groups, array_of(kept.scale), kept.mean.array(),
                                   kept.rstd.array(), reshaped(dy, kept.shape).array(), g.sink(0), array_of(dweight),
                                   array_of(dbias));
  g.add(1, dweight);
  g.add(2, dbias);
}

// x [n, channels, ...] as normalised over each of `groups` of an image's channels or, where groups is 0, over each channel of all
// images; y has no gaps, and the statistics are those of each group, variance only if it is wanted.
Normalized normalize_channels(const char* op, const Tensor& x, std::int64_t groups, double eps, const Tensor& weight,
                              const Tensor& bias, bool wants_variance, SourceLocation where) {
  const TensorOptions like = x.options();
  const Tensor runs = in_runs(x), scale = packed_or_none(weight), shift = packed_or_none(bias);
  const Shape shape = runs.shape(), statistics{groups == 0 ? shape[1] : shape[0] * groups};
  const bool apart = groups > 0 && groups < shape[1] && runs.stride(1) != shape[2];  // the channels of a group
  const Tensor from = apart ? packed(runs) : runs;
  const Tensor y = empty(x.shape(), like), mean = empty(statistics, like), rstd = empty(statistics, like),
               variance = wants_variance ? empty(statistics, like) : Tensor();
  backend(x.device())
      .normalize_channels(from.array(), groups, eps, array_of(scale), array_of(shift), reshaped(y, shape).array(),
                          mean.array(), rstd.array(), array_of(variance));
  if (!detail::taping()) return {y, mean, variance};
  Kept kept{shape, groups, eps, {}, {}, {}, {}, {}, {}};
  if (detail::would_record(op, x, where) || detail::would_record(op, weight, where))
    kept = {shape, groups, eps, x, from, weight, scale, mean, rstd};
  detail::record_op(op, where, {&x, &weight, &bias}, y, {&kept.x, &kept.weight},
                    [kept](Gradients& g) { gradients(g, kept); });
  return {y, mean, variance};
}

// What affine keeps for its gradients: `shape` is [n, channels, length]; x and center are undefined where scale has none.
struct Affine {
  Shape shape;
  Tensor x, center, scale;
};

void recorded_gradients(Gradients& g, const Affine& a) {
  const Tensor dy = reshape(g.dy(), a.shape), of_shift = sum(dy, {0, 2});
  if (g.needs(0)) g.add(0, reshape(a.scale.defined() ? dy * per_channel(a.scale, 1) : dy, g.shape(0)));
  if (g.needs(1)) g.add(1, -a.scale * of_shift);
  if (g.needs(2)) {
    const Tensor x = reshape(a.x, a.shape);
    g.add(2, sum(dy * (a.center.defined() ? x - per_channel(a.center, 1) : x), {0, 2}));
  }
  if (g.needs(3)) g.add(3, of_shift);
}

void gradients(Gradients& g, const Affine& a) {
  const Tensor dy = reshaped(packed(g.dy()), a.shape), x = a.x.defined() ? in_runs(a.x) : dy;  // of dscale alone
  const auto room = [&](bool wanted, const Shape& shape) { return wanted ? empty(shape, dy.options()) : Tensor(); };
  const Shape channels{a.shape[1]};
  const Tensor dx = room(g.needs(0), a.shape), dscale = room(g.needs(2), channels),
               dshift = room(g.needs(1) || g.needs(3), channels), center = packed_or_none(a.center),
               scale = packed_or_none(a.scale);
  backend(dy.device())
      .scale_channels_backward(x.array(), array_of(center), array_of(scale), dy.array(), array_of(dx), array_of(dscale),
                               array_of(dshift));
  if (g.needs(0)) g.add(0, reshaped(dx, g.shape(0)));
  if (g.needs(1)) g.add(1, -scale * dshift);
  g.add(2, dscale);
  if (g.needs(3)) g.add(3, dshift);
}

// (x - center) scale + shift for x [n, channels, ...], numbers of each channel that may be undefined, but no center without a
// scale; contiguous.
Tensor affine(const char* op, const Tensor& x, const Tensor& center, const Tensor& scale, const Tensor& shift,
              SourceLocation where) {
  if (run_length(x) < kShortestRun || !(center.defined() || scale.defined() || shift.defined())) {
    Tensor y = x;
    if (center.defined()) y = y - per_channel(center, x.rank() - 2);
    if (scale.defined()) y = y * per_channel(scale, x.rank() - 2);
    if (shift.defined()) y = y + per_channel(shift, x.rank() - 2);
    return contiguous(y);
  }
  const Tensor from = in_runs(x), middle = packed_or_none(center), factor = packed_or_none(scale),
               term = packed_or_none(shift);
  const Tensor y = empty(x.shape(), x.options());
  backend(x.device())
      .scale_channels(from.array(), array_of(middle), array_of(factor), array_of(term),
                      reshaped(y, from.shape()).array());
  if (!detail::taping()) return y;
  const auto tracked = [&](const Tensor& t) { return detail::would_record(op, t, where); };
  Affine kept{from.shape(), {}, {}, {}};
  if (tracked(x) || tracked(center)) kept.scale = scale;
  if (tracked(scale)) {
    kept.x = x;
    // A running mean may move before the sweep: a copy is small.
    if (center.defined()) kept.center = tracked(center) ? center : detail::copied(center, center.dtype());
  }
  detail::record_op(op, where, {&x, &center, &scale, &shift}, y, {&kept.x, &kept.center, &kept.scale},
                    [kept](Gradients& g) { g.recording() ? recorded_gradients(g, kept) : gradients(g, kept); });
  return y;
}

// Whether two tensors [channels] have an element in one place.
bool meet(const Tensor& a, const Tensor& b) {
  const auto size = static_cast<std::int64_t>(size_of(a.dtype())), step = b.stride(0) * size;
  const std::int64_t apart = static_cast<const char*>(a.array().data) - static_cast<const char*>(b.array().data);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const std::int64_t offset = apart + i * a.stride(0) * size;
    if (offset == 0 || (step != 0 && offset % step == 0 && offset / step >= 0 && offset / step < b.size())) return true;
  }
  return false;
}

// Of what training writes nothing may be refused once one of both is written.
void check_running(const Tensor& mean, const Tensor& variance, SourceLocation where) {
  for (const Tensor* running : {&mean, &variance}) {
    if (!running->defined()) continue;
    detail::refuse_if_taped(*running, "batch_norm", where);
    if (running->size() > 1 && running->stride(0) == 0)
      throw ShapeError(std::string("batch_norm: in ") + (running == &mean ? "running_mean" : "running_variance") +
                           " each channel must have a place of its own, got a view of shape " + running->shape().str() +
                           " in which all share one",
                       where);
  }
  if (mean.defined() && variance.defined() && meet(mean, variance))
    throw Error("batch_norm: running_mean and running_variance must be two tensors, got two that share memory", where);
}

// What is written must not be what the result is then multiplied by or shifted by.
void check_apart(const char* name, const Tensor& running, const char* other_name, const Tensor& other,
                 SourceLocation where) {
  if (running.defined() && other.defined() && meet(running, other))
    throw Error(std::string("batch_norm: ") + name + " must have memory of its own, got a tensor that shares " +
                    other_name + "'s",
                where);
}

// running = (1 - momentum) running + momentum batch
void move_running(Tensor running, const Tensor& batch, double momentum, SourceLocation where) {
  if (running.defined()) running.copy_((1 - momentum) * running + momentum * batch, where);
}

// Normalised by the batch; the running statistics are moved.
Tensor by_batch(const Tensor& x, const Tensor& running_mean, const Tensor& running_variance, const Tensor& weight,
                const Tensor& bias, const BatchNormOptions& options, SourceLocation where) {
  const std::int64_t channels = x.shape()[1];
  std::int64_t count = x.shape()[0];
  for (int i = 2; i < x.rank(); ++i) count *= x.shape()[i];
  if (count == 1)
    throw ShapeError("batch_norm: training needs more than one value per channel, got x of shape " + x.shape().str(),
                     where);
  check_running(running_mean, running_variance, where);
  const bool turn = run_length(x) < kShortestRun;  // a channel's elements are brought together first
  const Tensor turned = turn ? transpose(x, 0, 1) : x;
  const Tensor images = turn ? reshape(turned, {1, channels, count}) : x;
  const Normalized batch =
      normalize_channels("batch_norm", images, 0, options.eps, weight, bias, running_variance.defined(), where);
  if (count > 0)
    untaped([&] {
      move_running(running_mean, batch.mean, options.momentum, where);
      const auto n = static_cast<double>(count);
      if (running_variance.defined())
        move_running(running_variance, batch.variance * (n / (n - 1)), options.momentum, where);
    });
  return turn ? contiguous(transpose(reshape(batch.y, turned.shape()), 0, 1)) : batch.y;
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                  SourceLocation where) {
  check_channels("group_norm", x, eps, where);
  const std::int64_t channels = x.shape()[1];
  if (groups < 1 || channels % groups != 0)
    throw ShapeError("group_norm: groups must divide the channels, got " + std::to_string(groups) + " for x of shape " +
                         x.shape().str(),
                     where);
  check_weight("group_norm", "weight", weight, x, {channels}, where);
  check_weight("group_norm", "bias", bias, x, {channels}, where);
  if (run_length(x) >= kShortestRun)
    return normalize_channels("group_norm", x, groups, eps, weight, bias, false, where).y;
  Rows r{x.shape()[0] * groups, channels / groups, true, eps};
  for (int i = 2; i < x.rank(); ++i) r.n *= x.shape()[i];
  return affine("group_norm", normalize_rows("group_norm", x, r, {}, {}, where), {}, weight, bias, where);
}
Ragged group_norm(const Ragged& x, std::int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                  SourceLocation where) {
  return x.with(group_norm(x.values(), groups, weight, bias, eps, where));
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_variance, const Tensor& weight,
                  const Tensor& bias, BatchNormOptions options, SourceLocation where) {
  check_channels("batch_norm", x, options.eps, where);
  const Shape channels{x.shape()[1]};
  check_weight("batch_norm", "running_mean", running_mean, x, channels, where);
  check_weight("batch_norm", "running_variance", running_variance, x, channels, where);
  check_weight("batch_norm", "weight", weight, x, channels, where);
  check_weight("batch_norm", "bias", bias, x, channels, where);
  if (options.training) {
    check_apart("running_mean", running_mean, "weight", weight, where);
    check_apart("running_mean", running_mean, "bias", bias, where);
    check_apart("running_variance", running_variance, "weight", weight, where);
    check_apart("running_variance", running_variance, "bias", bias, where);
    return by_batch(x, running_mean, running_variance, weight, bias, options, where);
  }
  if (!running_mean.defined() || !running_variance.defined())
    throw Error("batch_norm: out of training running_mean and running_variance must be defined", where);
  const Tensor rstd = rsqrt(running_variance + options.eps);
  return affine("batch_norm", x, running_mean, weight.defined() ? rstd * weight : rstd, bias, where);
}
Ragged batch_norm(const Ragged& x, const Tensor& running_mean, const Tensor& running_variance, const Tensor& weight,
                  const Tensor& bias, BatchNormOptions options, SourceLocation where) {
  return x.with(batch_norm(x.values(), running_mean, running_variance, weight, bias, options, where));
}

}  // namespace reel
