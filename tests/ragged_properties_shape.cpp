// The table's ops that rearrange rows, look beside them, or have other forms of what ragged_properties_ops.cpp has.

#include <algorithm>
#include <cmath>

#include "reel/reel.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {

namespace {

using Kind = Beside::Kind;
using In = const Tensors&;

constexpr double kInf = INFINITY;
constexpr std::int64_t kTable = 11;

// f takes a Ragged or one sequence alike and gives a row for each row.
template <class F>
RaggedOp per_row(const std::string& name, F f, std::optional<double> padding = 0) {
  return {.name = name,
          .ragged = [f](const Ragged& x, In) { return f(x).values(); },
          .list = [f](const Tensor& x, In) { return f(x); },
          .padding = padding};
}

// The same for a tensor beside it, which is f's second operand.
template <class F>
RaggedOp beside(const std::string& name, Kind kind, F f) {
  return {
      .name = name + (name.find('/') == name.npos ? "/" : "_") + (kind == Kind::sequence ? "sequences" : "trailing"),
      .ragged = [f](const Ragged& x, In in) { return f(x, in[0]).values(); },
      .list = [f](const Tensor& x, In in) { return f(x, in[0]); },
      .beside = {{kind, [](std::int64_t width) { return Shape{width}; }}}};
}

// A number of each column that knows the order of its rows: rows of 0 change nothing.
Tensor ordered(const Tensor& x) { return sum(x * cumsum(x, 0), 0); }
Tensor ordered(const Ragged& x) { return sum(x * cumsum(x)); }

// f gives other rows than it takes, of which one is made for each sequence.
template <class F>
RaggedOp per_sequence(const std::string& name, F f, std::optional<double> padding = 0) {
  return {.name = name,
          .ragged = [f](const Ragged& x, In) { return ordered(f(x)); },
          .list = [f](const Tensor& x, In) { return ordered(f(x)); },
          .per_sequence = true,
          .padding = padding};
}

Tensor values_of(const Tensor& x) { return x; }
Tensor values_of(const Ragged& x) { return x.values(); }
Tensor joined(const Tensors& parts) { return concatenate(parts, 1); }
Ragged joined(const std::vector<Ragged>& parts) { return concatenate(parts, 1); }
template <class X>
std::vector<X> list_of(const X& a, const X& b) {
  return {a, b};
}
Tensors list_of(const Tensor& a, const Tensor& b) { return {a, b}; }

// Rows [4, width].
template <class X>
X matrices(const X& x) {
  const X two = joined(list_of(x, X(0.5 * x)));
  return reshape(joined(list_of(two, X(-2.0 * two))), {-1, 4, values_of(x).shape()[1]});
}

// Whole numbers, each of them often; the first of each row.
template <class X>
X ids(const X& x) {
  return select(cast(2.0 * x, i64), 1, 0);
}

RaggedOp bag(const std::string& name, Bag bag, double none) {
  return {.name = name,
          .ragged = [=](const Ragged& x,
                        In in) { return embedding_bag(in[1], x.with(in[0]) + cast(0.0 * first_column(x), i64), bag); },
          .list =
              [=](const Tensor& x, In in) {
                const Tensor rows = embedding(in[1], in[0]);
                if (x.shape()[0] == 0) return full({x.shape()[1]}, none, {.dtype = x.dtype()});
                return bag == Bag::mean ? mean(rows, 0) : max(rows, 0);
              },
          .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, kTable, true},
                     {Kind::shared,
                      [](std::int64_t width) {
                        return Shape{kTable, width};
                      }}},
          .per_sequence = true,
          .padding = std::nullopt};
}

// Rows of x ask rows begin .. end - 1 of their sequence in the input beside it, of which there may be none.
RaggedOp cross_attention(const std::string& name, std::int64_t begin, std::int64_t end) {
  const Beside rows{Kind::row, [](std::int64_t width) { return Shape{width}; }};
  return {.name = name,
          .ragged =
              [=](const Ragged& x, In in) {
                const auto keys = [&](const Tensor& t) { return slice(unsqueeze(x.with(t), 1), begin, end); };
                return squeeze(scaled_dot_product_attention(unsqueeze(x, 1), keys(in[0]), keys(in[1])), 1).values();
              },
          .list =
              [=](const Tensor& x, In in) {
                return scaled_dot_product_attention(x, slice(in[0], 0, begin, end), slice(in[1], 0, begin, end));
              },
          .beside = {rows, rows},
          .padding = std::nullopt};
}

// Kernels of 3 with padding = dilation. As many rows as x has, or one for each sequence if there are others.
RaggedOp convolution(const std::string& name, const ConvOptions& options, bool as_many,
                     std::optional<double> padding = {}) {
  return {.name = "conv1d/" + name,
          .ragged =
              [=](const Ragged& x, In in) {
                const Ragged y = conv1d(x, in[0], in[1], options);
                return as_many ? y.values() : ordered(y);
              },
          .list =
              [=](const Tensor& x, In in) {
                const std::int64_t wide = options.padding[0];
                Tensor y = zeros({0, 5}, {.dtype = x.dtype()});
                if (x.shape()[0] > 0) {
                  const Tensor line = pad(unsqueeze(transpose(x), 0), {{2, wide, wide}}, options.mode);
                  y = transpose(
                      squeeze(conv1d(line, in[0], in[1], {.stride = options.stride, .dilation = options.dilation}), 0));
                }
                return as_many ? y : ordered(y);
              },
          .beside = {{Kind::shared,
                      [](std::int64_t width) {
                        return Shape{5, width, 3};
                      },
                      -0.5, 0.5},
                     {Kind::shared, [](std::int64_t) { return Shape{5}; }}},
          .per_sequence = !as_many,
          .padding = padding};
}

void append_shapes(std::vector<RaggedOp>& ops) {
  const auto append = [&](const std::string& name, auto f, std::optional<double> padding = 0) {
    ops.push_back(per_row(name, f, padding));
  };
  append("reshape", [](const auto& x) { return reshape(matrices(x), {-1, 2, 2 * values_of(x).shape()[1]}); });
  append("flatten", [](const auto& x) { return flatten(matrices(x), 1); });
  append("transpose", [](const auto& x) { return transpose(matrices(x), 1, 2); });
  append("permute", [](const auto& x) { return permute(matrices(x), {0, 2, -2}); });
  append("unsqueeze", [](const auto& x) { return unsqueeze(x, -1); });
  append("squeeze", [](const auto& x) { return squeeze(unsqueeze(x, 1), 1) * x; });
  append("expand", [](const auto& x) { return expand(unsqueeze(x, 1), {-1, 3, -1}); });
  append("slice/row", [](const auto& x) { return slice(matrices(x), 1, -3, 4, 2); });
  append("narrow", [](const auto& x) { return narrow(matrices(x), -2, 1, 2); });
  append("select", [](const auto& x) { return select(matrices(x), 1, 2); });
  append("split", [](const auto& x) { return split(matrices(x), {1, 3}, 1)[1]; });
  append("stack", [](const auto& x) { return stack(list_of(x, x * x), 2); });
  append("tril", [](const auto& x) { return tril(matrices(x), -1); });
  append("triu", [](const auto& x) { return triu(matrices(x)); });
  append("flip/row", [](const auto& x) { return flip(matrices(x), {1, 2}); });
  append(
      "flip",
      [](const auto& x) {
        return flip(x, {0, 1});
      },
      std::nullopt);
  append("roll/row", [](const auto& x) { return roll(matrices(x), 3, 1); });
  append(
      "roll", [](const auto& x) { return roll(x, -2, 0); }, std::nullopt);
  append("tile/row", [](const auto& x) { return tile(matrices(x), {3, 2}); });
  append("repeat_interleave/row", [](const auto& x) { return repeat_interleave(x, 2, 1); });
  append("pad/row", [](const auto& x) { return pad(x, {{1, 1, 2}}, PaddingMode::symmetric); });
  ops.push_back(per_sequence("tile", [](const auto& x) { return tile(x, {3, 1}); }));
  ops.push_back(per_sequence("repeat_interleave", [](const auto& x) { return repeat_interleave(x, 2, 0); }));
}

void append_per_row(std::vector<RaggedOp>& ops) {
  const auto append = [&](const std::string& name, auto f, std::optional<double> padding = 0) {
    ops.push_back(per_row(name, f, padding));
  };
  append("max_which/row", [](const auto& x) { return max_which(x, 1, Keep::yes).y; });
  append("min_which/row", [](const auto& x) { return min_which(x, 1, Keep::yes).which; });
  append("maxout_which", [](const auto& x) { return maxout_which(flatten(matrices(x), 1), 2).y; });
  append("maxout_which/index", [](const auto& x) { return maxout_which(flatten(matrices(x), 1), 2).which; });
  append("clone", [](const auto& x) { return clone(x); });
  append("contiguous", [](const auto& x) { return contiguous(x); });
  append("stop_gradient", [](const auto& x) { return x * stop_gradient(x); });
  append("full_like", [](const auto& x) { return x * full_like(x, 2); });
  append("argmax/row", [](const auto& x) { return argmax(x, 1); });
  append("argmin/row", [](const auto& x) { return argmin(x, 1); });
  append("one_hot", [](const auto& x) { return one_hot(ids(x) + 4, 9); });
  append("murmur3", [](const auto& x) { return murmur3(ids(x), 5); });
  append("sort/row", [](const auto& x) { return sort(x, 1).values; });
  append("argsort/row", [](const auto& x) { return argsort(x, -1, Order::descending); });
  append("topk/row", [](const auto& x) { return topk(flatten(matrices(x), 1), 3, 1).values; });
  append("gather/row", [](const auto& x) { return gather(x, 1, argsort(x, 1)); });
  append("scatter_add/row", [](const auto& x) { return scatter_add(x, 1, argsort(x, 1), x * x); });
  append("var/row_list", [](const auto& x) { return var(x, {1}, 0, Keep::yes); });
  append(
      "softmax/temperature", [](const auto& x) { return softmax(x, 0, 2.5); }, -kInf);
  append(
      "log_softmax/temperature", [](const auto& x) { return log_softmax(x, 0, 0.5); }, -kInf);
  append(
      "sort/descending", [](const auto& x) { return sort(x, 0, Order::descending).values; }, -kInf);
  ops.push_back(
      {.name = "topk/smallest",
       .ragged = [](const Ragged& x, In) { return sum(topk(x, 3, 0, Order::ascending).values); },
       .list = [](const Tensor& x,
                  In) { return sum(topk(x, std::min<std::int64_t>(3, x.shape()[0]), 0, Order::ascending).values, 0); },
       .per_sequence = true,
       .padding = std::nullopt});
  append(
      "unique/inverse", [](const auto& x) { return unique(ids(x)).inverse; }, std::nullopt);
  ops.push_back(per_sequence("unique", [](const auto& x) {
    const auto found = unique(ids(x));
    return cast(found.values * found.counts, values_of(x).dtype());
  }));
  ops.push_back(per_sequence(
      "ngrams", [](const auto& x) { return cast(ngrams(ids(x), 3), values_of(x).dtype()) * 0x1p-63; }, std::nullopt));
  append("batch_norm", [](const auto& x) {
    const Tensor statistics = 0.5 + arange(values_of(x).shape()[1], {.dtype = values_of(x).dtype()});
    return batch_norm(x, statistics, statistics);
  });
  append("dropout/evaluating", [](const auto& x) { return dropout(x, 0.5, {.training = false}) * x; });
  append("dropout/of_all", [](const auto& x) { return dropout(x, 1) + x; });
}

void append_beside(std::vector<RaggedOp>& ops) {
  for (const Kind kind : {Kind::sequence, Kind::shared}) {
    ops.push_back(beside("logaddexp", kind, [](const auto& a, const auto& b) { return logaddexp(a, b); }));
    ops.push_back(beside("logaddexp/left", kind, [](const auto& a, const auto& b) { return logaddexp(b, a); }));
    ops.push_back(beside("where", kind, [](const auto& a, const auto& b) { return where(a > 0.0, a, b); }));
    ops.push_back(beside("where/left", kind, [](const auto& a, const auto& b) { return where(a > 0.0, b, a); }));
    ops.push_back(beside("where/condition", kind, [](const auto& a, const auto& b) { return where(b > 0, a, -1.5); }));
    ops.push_back(
        beside("logical_and", kind, [](const auto& a, const auto& b) { return logical_and(a > 0.0, b > 0); }));
    ops.push_back(beside("logical_or", kind, [](const auto& a, const auto& b) { return logical_or(b > 0, a > 0.0); }));
    ops.push_back(
        beside("logical_xor", kind, [](const auto& a, const auto& b) { return logical_xor(a > 0.0, b > 0); }));
    ops.push_back(
        beside("where/condition_left", kind, [](const auto& a, const auto& b) { return where(b > 0, -1.5, a); }));
    ops.push_back(
        beside("logical_and/left", kind, [](const auto& a, const auto& b) { return logical_and(b > 0, a > 0.0); }));
    ops.push_back(
        beside("logical_or/right", kind, [](const auto& a, const auto& b) { return logical_or(a > 0.0, b > 0); }));
    ops.push_back(
        beside("logical_xor/left", kind, [](const auto& a, const auto& b) { return logical_xor(b > 0, a > 0.0); }));
    ops.push_back(beside("less/left", kind, [](const auto& a, const auto& b) { return b < a; }));
    ops.push_back(
        beside("equal/integers", kind, [](const auto& a, const auto& b) { return cast(b, i64) == cast(a, i64); }));
  }
  ops.push_back(per_row("less/and_others_of_a_number", [](const auto& x) {
    return cast(0.5 < x, i64) + 2 * cast(0.5 <= x, i64) + 4 * cast(-0.5 > x, i64) + 8 * cast(-0.5 >= x, i64) +
           16 * cast(0.0 == x, i64) + 32 * cast(0.0 != x, i64);
  }));
  // A number per row without an axis of its own.
  ops.push_back({.name = "mul/by_rank",
                 .ragged = [](const Ragged& x, In) { return (select(x, 1, 0) * x).values(); },
                 .list = [](const Tensor& x, In) { return unsqueeze(select(x, 1, 0), 1) * x; }});
  ops.push_back({.name = "add/by_rank",
                 .ragged = [](const Ragged& x, In) { return (x + matrices(x)).values(); },
                 .list = [](const Tensor& x, In) { return unsqueeze(x, 1) + matrices(x); }});
  ops.push_back({.name = "where/by_rank",
                 .ragged = [](const Ragged& x, In) { return where(select(x, 1, 0) > 0, x, select(x, 1, 0)).values(); },
                 .list =
                     [](const Tensor& x, In) {
                       const Tensor first = narrow(x, 1, 0, 1);
                       return where(first > 0, x, first);
                     }});
}

}  // namespace

std::vector<RaggedOp> ragged_shape_ops() {
  std::vector<RaggedOp> ops;
  append_shapes(ops);
  append_per_row(ops);
  append_beside(ops);
  ops.push_back(bag("embedding_bag/mean", Bag::mean, 0));
  ops.push_back(bag("embedding_bag/max", Bag::max, -kInf));
  ops.push_back(cross_attention("scaled_dot_product_attention/cross", 0, 4));
  ops.push_back(cross_attention("scaled_dot_product_attention/cross_without_keys", 2, 6));
  ops.push_back(convolution("dilated", {.padding = 2, .dilation = 2}, true, 0));
  ops.push_back(convolution("symmetric", {.padding = 1, .mode = PaddingMode::symmetric}, true));
  ops.push_back(convolution("reflect", {.padding = 2, .dilation = 2, .mode = PaddingMode::reflect}, true));
  ops.push_back(convolution("replicate", {.padding = 3, .dilation = 3, .mode = PaddingMode::replicate}, true));
  ops.push_back(convolution("strided", {.stride = 2, .padding = 1}, false));
  ops.push_back(
      convolution("strided_far", {.stride = 3, .padding = 2, .dilation = 2, .mode = PaddingMode::symmetric}, false));
  ops.push_back({.name = "cross_entropy/pixels",
                 .ragged = [](const Ragged& x,
                              In in) { return cross_entropy(matrices(x), in[0], {.reduction = Reduction::none}); },
                 .list =
                     [](const Tensor& x, In in) {
                       const std::int64_t rows = x.shape()[0], width = x.shape()[1];
                       const Tensor flat = reshape(transpose(matrices(x), 1, 2), {rows * width, 4});
                       return reshape(
                           cross_entropy(flat, reshape(in[0], {rows * width}), {.reduction = Reduction::none}),
                           {rows, width});
                     },
                 .beside = {{Kind::row, [](std::int64_t width) { return Shape{width}; }, 0, 4, true}}});
  return ops;
}

}  // namespace reel::test
