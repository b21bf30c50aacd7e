// Ops within sequences, and those that give one row for each.

#include <algorithm>
#include <cmath>

#include "reel/reel.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {

namespace {

using Kind = Beside::Kind;
using In = const Tensors&;

constexpr double kInf = INFINITY;
constexpr std::int64_t kHidden = 5;

// One row for each sequence.
RaggedOp reduction(const std::string& name, Tensor (*ragged)(const Ragged&, SourceLocation),
                   std::function<Tensor(const Tensor&)> list, std::optional<double> padding,
                   std::optional<double> empty = {}) {
  return {.name = name,
          .ragged = [ragged](const Ragged& x, In) { return ragged(x, SourceLocation::current()); },
          .list = [list](const Tensor& x, In) { return list(x); },
          .per_sequence = true,
          .padding = padding,
          .empty = empty};
}

// Each row with its neighbours, from shifted copies.
Tensor windows(const Tensor& x, std::int64_t window) {
  const Tensor wide = pad(x, {{0, window, window}});
  Tensors parts;
  for (std::int64_t j = 0; j <= 2 * window; ++j) parts.push_back(narrow(wide, 0, j, x.shape()[0]));
  return concatenate(parts, 1);
}

// x as queries; keys and values beside it.
RaggedOp attention(const std::string& name, bool causal) {
  return {
      .name = name,
      .ragged =
          [=](const Ragged& x, In in) {
            const auto head = [&](const Tensor& rows) { return x.with(unsqueeze(rows, 1)); };
            return squeeze(
                scaled_dot_product_attention(head(x.values()), head(in[0]), head(in[1]), {.causal = causal}).values(),
                1);
          },
      .list = [=](const Tensor& x, In in) { return scaled_dot_product_attention(x, in[0], in[1], {.causal = causal}); },
      .beside = {rows(), rows()},
      .padding = causal ? std::optional(0.0) : std::nullopt};
}

template <class F>
RaggedOp convolution(const std::string& name, F f) {
  return {.name = name,
          .ragged = [f](const Ragged& x, In in) { return f(x, in[0], in[1]).values(); },
          .list =
              [f](const Tensor& x, In in) {
                // No kernel fits into nothing.
                if (x.shape()[0] == 0) return zeros({0, in[1].shape()[0]}, {.dtype = x.dtype()});
                return contiguous(transpose(squeeze(f(unsqueeze(transpose(x), 0), in[0], in[1]), 0)));
              },
          .beside = {{Kind::shared,
                      [](std::int64_t width) {
                        return Shape{7, width, 3};
                      },
                      -0.5, 0.5},
                     weight(7, -1)}};
}

// f(x, weights, options) for Ragged and Tensor; `state`: the last states rather than all.
template <class F>
RaggedOp recurrent(const std::string& name, std::int64_t gates, F f, bool bidirectional, bool state) {
  std::vector<Beside> beside;
  for (int direction = 0; direction < (bidirectional ? 2 : 1); ++direction)
    for (const std::int64_t in : {std::int64_t{0}, kHidden, std::int64_t{-1}, std::int64_t{-1}})
      beside.push_back(weight(gates * kHidden, in));
  const RecurrentOptions options{.bidirectional = bidirectional};
  const auto weights = [](In in) {
    std::vector<RecurrentWeights> all;
    for (std::size_t i = 0; i < in.size(); i += 4) all.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
    return all;
  };
  const auto last = [](const Tensor& h) {  // [directions, n, hidden] to [n, directions hidden]
    const Tensor by_sequence = contiguous(transpose(h, 0, 1));
    return reshape(by_sequence, {h.shape()[1], h.shape()[0] * h.shape()[2]});
  };
  return {.name = name + (bidirectional ? "/bidirectional" : "/forward") + (state ? "_state" : ""),
          .ragged =
              [=](const Ragged& x, In in) {
                const auto out = f(x, weights(in), options);
                return state ? last(out.h) : out.y.values();
              },
          .list =
              [=](const Tensor& x, In in) {
                const auto out = f(unsqueeze(x, 1), weights(in), options);
                return state ? squeeze(last(out.h), 0) : squeeze(out.y, 1);
              },
          .beside = beside,
          .per_sequence = state,
          .padding = bidirectional || state ? std::nullopt : std::optional(0.0)};
}

template <class F>
void append_recurrent(std::vector<RaggedOp>& ops, const std::string& name, std::int64_t gates, F f) {
  for (const bool bidirectional : {false, true})
    for (const bool state : {false, true}) ops.push_back(recurrent(name, gates, f, bidirectional, state));
}

}  // namespace

std::vector<RaggedOp> ragged_sequence_ops() {
  std::vector<RaggedOp> ops = {
      // within sequences
      {.name = "softmax",
       .ragged = [](const Ragged& x, In) { return softmax(x).values(); },
       .list = [](const Tensor& x, In) { return softmax(x, 0); },
       .padding = -kInf},
      {.name = "log_softmax",
       .ragged = [](const Ragged& x, In) { return log_softmax(x).values(); },
       .list = [](const Tensor& x, In) { return log_softmax(x, 0); },
       .padding = -kInf},
      {.name = "seq2col",
       .ragged = [](const Ragged& x, In) { return seq2col(x, 2).values(); },
       .list = [](const Tensor& x, In) { return windows(x, 2); }},
      {.name = "reverse",
       .ragged = [](const Ragged& x, In) { return reverse(x).values(); },
       .list = [](const Tensor& x, In) { return flip(x, 0); },
       .padding = std::nullopt},
      attention("scaled_dot_product_attention", false),
      attention("scaled_dot_product_attention/causal", true),
      convolution("conv1d",
                  [](const auto& x, const Tensor& w, const Tensor& b) { return conv1d(x, w, b, {.padding = 1}); }),
      convolution("conv1d_relu",
                  [](const auto& x, const Tensor& w, const Tensor& b) { return conv1d_relu(x, w, b, {.padding = 1}); }),
      {.name = "cumsum",
       .ragged = [](const Ragged& x, In) { return cumsum(x).values(); },
       .list = [](const Tensor& x, In) { return cumsum(x, 0); }},
      {.name = "cumsum/from_the_end",
       .ragged = [](const Ragged& x, In) { return cumsum(x, {.reverse = true, .exclusive = true}).values(); },
       .list = [](const Tensor& x, In) { return cumsum(x, 0, {.reverse = true, .exclusive = true}); }},
      {.name = "cumprod",
       .ragged = [](const Ragged& x, In) { return cumprod(x).values(); },
       .list = [](const Tensor& x, In) { return cumprod(x, 0); },
       .padding = 1,
       .low = 0.9,
       .high = 1.1},
      {.name = "linear_scan",
       .ragged = [](const Ragged& x, In in) { return linear_scan(x, x.with(in[0])).values(); },
       .list = [](const Tensor& x, In in) { return linear_scan(x, in[0], 0); },
       .beside = {rows(-1, 1)}},
      {.name = "sort",
       .ragged = [](const Ragged& x, In) { return sort(x).values.values(); },
       .list = [](const Tensor& x, In) { return sort(x, 0).values; },
       .padding = kInf},
      {.name = "argsort",
       .ragged = [](const Ragged& x, In) { return argsort(x, Order::descending).values(); },
       .list = [](const Tensor& x, In) { return argsort(x, 0, Order::descending); },
       .padding = -kInf},
      {.name = "gather",
       .ragged = [](const Ragged& x, In) { return gather(x, argsort(x)).values(); },
       .list = [](const Tensor& x, In) { return gather(x, 0, argsort(x, 0)); },
       .padding = kInf},
      {.name = "index_select",
       .ragged = [](const Ragged& x, In) { return index_select(x, first_column(argsort(x))).values(); },
       .list = [](const Tensor& x, In) { return index_select(x, 0, first_column(argsort(x, 0))); },
       .padding = kInf},
      {.name = "scatter_add",
       .ragged = [](const Ragged& x, In in) { return scatter_add(x, argsort(x), x.with(in[0])).values(); },
       .list = [](const Tensor& x, In in) { return scatter_add(x, 0, argsort(x, 0), in[0]); },
       .beside = {rows()},
       .padding = kInf},
      {.name = "position_encoding",
       .ragged = [](const Ragged& x, In) { return (x + position_encoding(x)).values(); },
       .list = [](const Tensor& x,
                  In) { return x + position_encoding(x.shape()[0], x.shape()[1], {.dtype = x.dtype()}); }},
      {.name = "positions",
       .ragged = [](const Ragged& x, In) { return positions(x).values(); },
       .list = [](const Tensor& x, In) { return arange(x.shape()[0]); }},
      {.name = "to_padded",
       .ragged = [](const Ragged& x, In) { return from_padded(to_padded(x, 3), x.offsets().lengths()).values(); },
       .list = [](const Tensor& x, In) { return x; }},
      {.name = "to_list",
       .ragged = [](const Ragged& x,
                    In) { return x.count() == 0 ? x.values() : Ragged::from_list(to_list(x)).values(); },
       .list = [](const Tensor& x, In) { return x; }},
      {.name = "repeat_rows",
       .ragged = [](const Ragged& x, In in) { return (x * repeat_rows(in[0], x.offsets())).values(); },
       .list = [](const Tensor& x, In in) { return x * in[0]; },
       .beside = {{Kind::sequence, [](std::int64_t width) { return Shape{width}; }}}},

      // per sequence
      reduction(
          "sum", sum, [](const Tensor& x) { return sum(x, 0); }, 0),
      reduction(
          "mean", mean, [](const Tensor& x) { return mean(x, 0); }, std::nullopt, 0),
      reduction(
          "max", max, [](const Tensor& x) { return max(x, 0); }, -kInf),
      reduction(
          "min", min, [](const Tensor& x) { return min(x, 0); }, kInf),
      reduction(
          "norm", norm, [](const Tensor& x) { return norm(x, 0); }, 0),
      reduction(
          "logsumexp", logsumexp, [](const Tensor& x) { return logsumexp(x, 0); }, -kInf),
      reduction(
          "reduce_first", reduce_first, [](const Tensor& x) { return select(x, 0, 0); }, 0, 0),
      reduction(
          "reduce_last", reduce_last, [](const Tensor& x) { return select(x, 0, -1); }, std::nullopt, 0),
      reduction(
          "prod", prod, [](const Tensor& x) { return prod(x, 0); }, 1),
      reduction(
          "prod/integers", [](const Ragged& x, SourceLocation) { return cast(prod(cast(2 * x, i64)), f64); },
          [](const Tensor& x) { return cast(prod(cast(2 * x, i64), 0), f64); }, 0.5),
      reduction(
          "argmax", [](const Ragged& x, SourceLocation) { return cast(argmax(x), f64); },
          [](const Tensor& x) { return cast(argmax(x, 0), f64); }, -kInf, -1),
      reduction(
          "argmin", [](const Ragged& x, SourceLocation) { return cast(argmin(x), f64); },
          [](const Tensor& x) { return cast(argmin(x, 0), f64); }, kInf, -1),
      reduction(
          "amax", amax, [](const Tensor& x) { return amax(x, 0); }, -kInf),
      reduction(
          "amin", amin, [](const Tensor& x) { return amin(x, 0); }, kInf),
      reduction(
          "any", any, [](const Tensor& x) { return any(x, 0); }, 0),
      reduction(
          "all", all, [](const Tensor& x) { return all(x, 0); }, 1),
      reduction(
          "var", [](const Ragged& x, SourceLocation) { return var(x, VarianceOptions{.correction = 0}); },
          [](const Tensor& x) { return var(x, 0, 0); }, std::nullopt, 0),
      reduction(
          "stddev", [](const Ragged& x, SourceLocation) { return stddev(x, VarianceOptions{.correction = 0}); },
          [](const Tensor& x) { return stddev(x, 0, 0); }, std::nullopt, 0),

      // lengths that change, then one row per sequence
      reduction(
          "topk", [](const Ragged& x, SourceLocation) { return sum(exp(topk(x, 2).values)); },
          [](const Tensor& x) { return sum(exp(topk(x, std::min<std::int64_t>(2, x.shape()[0]), 0).values), 0); },
          -kInf),
      reduction(
          "slice", [](const Ragged& x, SourceLocation) { return sum(slice(x, 1, 4)); },
          [](const Tensor& x) { return sum(slice(x, 0, 1, 4), 0); }, 0),
      reduction(
          "masked_select",
          [](const Ragged& x, SourceLocation) { return sum(masked_select(x, x.with(first_column(x.values()) > 0))); },
          [](const Tensor& x) { return sum(where(unsqueeze(first_column(x) > 0, 1), x, 0.0), 0); }, 0),
      reduction(
          "pad",
          [](const Ragged& x, SourceLocation) {
            return max(pad(x, {{0, 1, 2}}));
          },
          [](const Tensor& x) {
            return max(pad(x, {{0, 1, 2}}), 0);
          },
          -kInf),
      reduction(
          "pad/replicate",
          [](const Ragged& x, SourceLocation) {
            return sum(pad(x, {{0, 2, 0}}, PaddingMode::replicate));
          },
          [](const Tensor& x) {
            return sum(pad(x, {{0, 2, 0}}, PaddingMode::replicate), 0);
          },
          0, 0),
      reduction(
          "concatenate",
          [](const Ragged& x, SourceLocation) {
            return logsumexp(concatenate({x, 2.0 * x, x}));
          },
          [](const Tensor& x) {
            return logsumexp(concatenate({x, 2.0 * x, x}), 0);
          },
          -kInf),
      reduction(
          "concatenate_batches",
          [](const Ragged& x, SourceLocation) {
            return narrow(sum(concatenate_batches({2.0 * x, x})), 0, x.count(), x.count());
          },
          [](const Tensor& x) { return sum(x, 0); }, 0),
      reduction(
          "take",
          [](const Ragged& x, SourceLocation) {
            std::vector<std::int64_t> backwards;
            for (std::int64_t i = x.count() - 1; i >= 0; --i) backwards.push_back(i);
            return flip(sum(take(x, backwards)), 0);
          },
          [](const Tensor& x) { return sum(x, 0); }, 0),
  };
  ops.push_back({.name = "mean/masked",
                 .ragged = [](const Ragged& x, In) { return mean(x); },
                 .list =
                     [](const Tensor& x, In in) {
                       const Tensor mask = stop_gradient(in[0]);
                       return sum(x * mask, 0) / maximum(sum(mask, 0), 1);
                     },
                 .beside = {{Kind::row, [](std::int64_t) { return Shape{1}; }, 1, 1}},
                 .per_sequence = true});
  append_recurrent(ops, "lstm", 4, [](const auto& x, const auto& w, const auto& o) { return lstm(x, w, o); });
  append_recurrent(ops, "gru", 3, [](const auto& x, const auto& w, const auto& o) { return gru(x, w, o); });
  append_recurrent(ops, "rnn", 1,
                   [](const auto& x, const auto& w, const auto& o) { return rnn(x, w, Nonlinearity::tanh, o); });
  return ops;
}

}  // namespace reel::test
