#include <algorithm>
#include <cmath>

#include "reel/reel.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {

namespace {

using Kind = Beside::Kind;
using In = const Tensors&;

constexpr double kInf = INFINITY;
constexpr std::int64_t kHidden = 5, kTable = 11;

Beside rows(double low = -2, double high = 2) {
  return {Kind::row, [](std::int64_t width) { return Shape{width}; }, low, high};
}
Beside weight(std::int64_t out, std::int64_t in = 0) {  // [out, in]; in = 0: x's width; in < 0: [out]
  return {Kind::shared,
          [=](std::int64_t width) {
            return in < 0 ? Shape{out} : Shape{out, in == 0 ? width : in};
          },
          -0.5, 0.5};
}

// f takes a Ragged or one sequence alike and gives a row for each row.
template <class F>
RaggedOp per_row(const std::string& name, F f, double low = -2, double high = 2) {
  return {.name = name,
          .ragged = [f](const Ragged& x, In) { return f(x).values(); },
          .list = [f](const Tensor& x, In) { return f(x); },
          .low = low,
          .high = high};
}

// The same for two operands with the same rows; f(Ragged, Ragged) may give values or a Ragged.
template <class F>
RaggedOp two(const std::string& name, F f, double low = -2, double high = 2) {
  return {.name = name,
          .ragged =
              [f](const Ragged& x, In in) {
                if constexpr (std::is_same_v<decltype(f(x, x)), Ragged>) return f(x, x.with(in[0])).values();
                else return f(x, x.with(in[0]));
              },
          .list = [f](const Tensor& x, In in) { return f(x, in[0]); },
          .beside = {rows(low, high)}};
}

// Each way in which operands broadcast.
template <class F>
void append_binary(std::vector<RaggedOp>& ops, const std::string& name, F f) {
  ops.push_back(two(name + "_rows", f, 0.5, 2));
  const auto ragged = [f](const Ragged& x, In in) { return f(x, in[0]).values(); };
  const auto list = [f](const Tensor& x, In in) { return f(x, in[0]); };
  const auto width = [](std::int64_t n) { return Shape{n}; };
  ops.push_back(
      {.name = name + "_sequences", .ragged = ragged, .list = list, .beside = {{Kind::sequence, width, 0.5, 2}}});
  ops.push_back(
      {.name = name + "_trailing", .ragged = ragged, .list = list, .beside = {{Kind::shared, width, 0.5, 2}}});
  ops.push_back({.name = name + "_number_per_row",
                 .ragged = [f](const Ragged& x, In in) { return f(x, x.with(in[0])).values(); },
                 .list = list,
                 .beside = {{Kind::row, [](std::int64_t) { return Shape{1}; }, 0.5, 2}}});
}

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

// The first number of each row, two copies side by side, and the size of a row, of a Ragged or of one sequence.
Tensor first_column(const Tensor& x) { return select(x, 1, 0); }
Ragged first_column(const Ragged& x) { return x.with(select(x.values(), 1, 0)); }
Tensor doubled(const Tensor& x) { return concatenate(Tensors{x, 0.5 * x}, 1); }
Ragged doubled(const Ragged& x) { return concatenate(std::vector<Ragged>{x, 0.5 * x}, 1); }
Shape last_of(const Tensor& x) { return {x.shape()[1]}; }
Shape last_of(const Ragged& x) { return last_of(x.values()); }

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
  return {.name = name + (bidirectional ? "_bidirectional" : "") + (state ? "_state" : ""),
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

std::vector<RaggedOp> ragged_ops() {
  std::vector<RaggedOp> ops = {
      // functions of one element, and of one row
      per_row("neg", [](const auto& x) { return -x; }),
      per_row("exp", [](const auto& x) { return exp(x); }),
      per_row("expm1", [](const auto& x) { return expm1(x); }),
      per_row(
          "log", [](const auto& x) { return log(x); }, 0.1, 3),
      per_row(
          "log1p", [](const auto& x) { return log1p(x); }, -0.9, 3),
      per_row(
          "sqrt", [](const auto& x) { return sqrt(x); }, 0.1, 3),
      per_row(
          "rsqrt", [](const auto& x) { return rsqrt(x); }, 0.1, 3),
      per_row("square", [](const auto& x) { return square(x); }),
      per_row("abs", [](const auto& x) { return abs(x); }),
      per_row("sign", [](const auto& x) { return sign(x); }),
      per_row("sin", [](const auto& x) { return sin(x); }),
      per_row("cos", [](const auto& x) { return cos(x); }),
      per_row("tanh", [](const auto& x) { return tanh(x); }),
      per_row("sigmoid", [](const auto& x) { return sigmoid(x); }),
      per_row("erf", [](const auto& x) { return erf(x); }),
      per_row("erfc", [](const auto& x) { return erfc(x); }),
      per_row(
          "lgamma", [](const auto& x) { return lgamma(x); }, 0.5, 4),
      per_row(
          "digamma", [](const auto& x) { return digamma(x); }, 0.5, 4),
      per_row(
          "log1mexp", [](const auto& x) { return log1mexp(x); }, 0.1, 3),
      per_row(
          "logit", [](const auto& x) { return logit(x); }, 0.1, 0.9),
      per_row("log_ndtr", [](const auto& x) { return log_ndtr(x); }),
      per_row("relu", [](const auto& x) { return relu(x); }),
      per_row("leaky_relu", [](const auto& x) { return leaky_relu(x); }),
      per_row("elu", [](const auto& x) { return elu(x); }),
      per_row("clamp", [](const auto& x) { return clamp(x, -1, 0.5); }),
      per_row("gelu", [](const auto& x) { return gelu(x); }),
      per_row("gelu_tanh", [](const auto& x) { return gelu_tanh(x); }),
      per_row("silu", [](const auto& x) { return silu(x); }),
      per_row("mish", [](const auto& x) { return mish(x); }),
      per_row("softplus", [](const auto& x) { return softplus(x); }),
      per_row("logsigmoid", [](const auto& x) { return logsigmoid(x); }),
      per_row("hard_sigmoid", [](const auto& x) { return hard_sigmoid(x); }),
      per_row("hard_tanh", [](const auto& x) { return hard_tanh(x); }),
      per_row("hard_swish", [](const auto& x) { return hard_swish(x); }),
      per_row("dish", [](const auto& x) { return dish(x); }),
      per_row("sum_row", [](const auto& x) { return sum(x, -1, Keep::yes); }),
      per_row("mean_row", [](const auto& x) { return mean(x, -1, Keep::yes); }),
      per_row("max_row", [](const auto& x) { return max(x, -1, Keep::yes); }),
      per_row("min_row", [](const auto& x) { return min(x, -1, Keep::yes); }),
      per_row("var_row", [](const auto& x) { return var(x, -1, 0, Keep::yes); }),
      per_row("stddev_row", [](const auto& x) { return stddev(x, -1, 0, Keep::yes); }),
      per_row("norm_row", [](const auto& x) { return norm(x, -1, Keep::yes); }),
      per_row("logsumexp_row", [](const auto& x) { return logsumexp(x, -1, Keep::yes); }),
      per_row("softmax_row", [](const auto& x) { return softmax(x, 1, 2); }),
      per_row("log_softmax_row", [](const auto& x) { return log_softmax(x, 1, 2); }),
      per_row("prod_row", [](const auto& x) { return prod(x, -1, Keep::yes); }),
      per_row("any_row", [](const auto& x) { return any(x, -1, Keep::yes); }),
      per_row("all_row", [](const auto& x) { return all(x, -1, Keep::yes); }),
      per_row("cumsum_row", [](const auto& x) { return cumsum(x, 1); }),
      per_row("cumprod_row", [](const auto& x) { return cumprod(x, 1); }),
      per_row("clipped_linear", [](const auto& x) { return clipped_linear(x, 2, 0.5, -1, 1); }),
      per_row("relu_k", [](const auto& x) { return relu_k(x, 1); }),
      per_row(
          "polygamma", [](const auto& x) { return polygamma(1, x); }, 0.5, 4),
      per_row(
          "pow_number", [](const auto& x) { return pow(x, 1.7); }, 0.5, 2),
      per_row("isfinite", [](const auto& x) { return isfinite(x); }),
      per_row("logical_not", [](const auto& x) { return logical_not(x); }),
      per_row("glu", [](const auto& x) { return glu(doubled(x)); }),
      per_row("geglu", [](const auto& x) { return geglu(doubled(x)); }),
      per_row("swiglu", [](const auto& x) { return swiglu(doubled(x)); }),
      per_row("maxout", [](const auto& x) { return maxout(doubled(x), 2); }),
      per_row("layer_norm", [](const auto& x) { return layer_norm(x, last_of(x)); }),
      per_row("rms_norm", [](const auto& x) { return rms_norm(x, last_of(x), {}, 1e-5); }),
      per_row("group_norm", [](const auto& x) { return group_norm(doubled(x), 2); }),
      per_row("rotary", [](const auto& x) { return rotary(doubled(x)); }),

      // two operands
      two("logaddexp", [](const auto& a, const auto& b) { return logaddexp(a, b); }),
      two("cosine_similarity", [](const auto& a, const auto& b) { return cosine_similarity(a, b, 1); }),
      two("mse_loss", [](const auto& a, const auto& b) { return mse_loss(a, b, Reduction::none); }),
      two("l1_loss", [](const auto& a, const auto& b) { return l1_loss(a, b, Reduction::none); }),
      two("huber_loss", [](const auto& a, const auto& b) { return huber_loss(a, b, Reduction::none); }),
      two("hinge_loss", [](const auto& a, const auto& b) { return hinge_loss(a, b, Reduction::none); }),
      two("poisson_nll", [](const auto& a, const auto& b) { return poisson_nll(a, b, Reduction::none); }),
      two(
          "bce_with_logits", [](const auto& a, const auto& b) { return bce_with_logits(a, b, Reduction::none); }, 0.1,
          0.9),
      two(
          "kl_div", [](const auto& a, const auto& b) { return kl_div(a, b, Reduction::none); }, 0.1, 0.9),
      two("cosine_loss", [](const auto& a, const auto& b) { return cosine_loss(a, b, Reduction::none); }),
      two("less", [](const auto& a, const auto& b) { return a < b; }),
      two("logical_and", [](const auto& a, const auto& b) { return logical_and(a, b); }),
      {.name = "where",
       .ragged = [](const Ragged& x, In in) { return where(x.with(x.values() > 0), x, x.with(in[0])).values(); },
       .list = [](const Tensor& x, In in) { return where(x > 0, x, in[0]); },
       .beside = {rows()}},

      // with weights
      {.name = "linear",
       .ragged = [](const Ragged& x, In in) { return linear(x, in[0], in[1]).values(); },
       .list = [](const Tensor& x, In in) { return linear(x, in[0], in[1]); },
       .beside = {weight(7), weight(7, -1)}},
      {.name = "linear_relu",
       .ragged = [](const Ragged& x, In in) { return linear(x, in[0], in[1], Epilogue::relu).values(); },
       .list = [](const Tensor& x, In in) { return linear(x, in[0], in[1], Epilogue::relu); },
       .beside = {weight(7), weight(7, -1)}},
      {.name = "cross_entropy",
       .ragged = [](const Ragged& x, In in) { return cross_entropy(x, in[0], {.reduction = Reduction::none}); },
       .list = [](const Tensor& x, In in) { return cross_entropy(x, in[0], {.reduction = Reduction::none}); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, 1, true}}},
      {.name = "nll_loss",
       .ragged = [](const Ragged& x, In in) { return nll_loss(x, in[0], {.reduction = Reduction::none}); },
       .list = [](const Tensor& x, In in) { return nll_loss(x, in[0], {.reduction = Reduction::none}); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, 1, true}}},
      {.name = "matmul",
       .ragged = [](const Ragged& x, In in) { return matmul(x, in[0]).values(); },
       .list = [](const Tensor& x, In in) { return matmul(x, in[0]); },
       .beside = {{Kind::shared, [](std::int64_t width) { return Shape{width, 7}; }}}},
      {.name = "matmul_each",
       .ragged = [](const Ragged& x, In in) { return matmul(x, in[0]).values(); },
       .list = [](const Tensor& x, In in) { return matmul(x, squeeze(in[0], 0)); },
       .beside = {{Kind::sequence, [](std::int64_t width) { return Shape{width, 7}; }}}},
      {.name = "layer_norm_affine",
       .ragged = [](const Ragged& x, In in) { return layer_norm(x, last_of(x), in[0], in[1]).values(); },
       .list = [](const Tensor& x, In in) { return layer_norm(x, last_of(x), in[0], in[1]); },
       .beside = {{Kind::shared, [](std::int64_t width) { return Shape{width}; }},
                  {Kind::shared, [](std::int64_t width) { return Shape{width}; }}}},
      {.name = "gather_add",
       .ragged = [](const Ragged& x, In in) { return (x * gather_add(in[1], x.with(in[0]))).values(); },
       .list = [](const Tensor& x, In in) { return x * gather_add(in[1], in[0]); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape{3}; }, 0, kTable, true}, weight(kTable)}},
      {.name = "hash_embed",
       .ragged = [](const Ragged& x, In in) { return (x * hash_embed(in[1], x.with(in[0]))).values(); },
       .list = [](const Tensor& x, In in) { return x * hash_embed(in[1], in[0]); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, 1000, true}, weight(kTable)}},
      {.name = "embedding_bag",
       .ragged = [](const Ragged& x, In in) { return embedding_bag(in[1], x.with(in[0]), first_column(x)); },
       .list = [](const Tensor& x, In in) { return sum(embedding(in[1], in[0]) * unsqueeze(first_column(x), 1), 0); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, kTable, true}, weight(kTable)},
       .per_sequence = true},
      {.name = "spmm",
       .ragged = [](const Ragged& x, In in) { return spmm(x.with(in[0]), first_column(x), in[1]); },
       .list = [](const Tensor& x, In in) { return sum(embedding(in[1], in[0]) * unsqueeze(first_column(x), 1), 0); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, kTable, true}, weight(kTable)},
       .per_sequence = true},
      {.name = "embedding",
       .ragged = [](const Ragged& x, In in) { return (x * embedding(in[1], x.with(in[0]))).values(); },
       .list = [](const Tensor& x, In in) { return x * embedding(in[1], in[0]); },
       .beside = {{Kind::row, [](std::int64_t) { return Shape(); }, 0, kTable, true}, weight(kTable)}},

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
      attention("attention", false),
      attention("attention_causal", true),
      convolution("conv1d",
                  [](const auto& x, const Tensor& w, const Tensor& b) { return conv1d(x, w, b, {.padding = 1}); }),
      convolution("conv1d_relu",
                  [](const auto& x, const Tensor& w, const Tensor& b) { return conv1d_relu(x, w, b, {.padding = 1}); }),
      {.name = "cumsum",
       .ragged = [](const Ragged& x, In) { return cumsum(x).values(); },
       .list = [](const Tensor& x, In) { return cumsum(x, 0); }},
      {.name = "cumsum_from_the_end",
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
          "pad_replicate",
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
  ops.push_back({.name = "mean_masked",
                 .ragged = [](const Ragged& x, In) { return mean(x); },
                 .list =
                     [](const Tensor& x, In in) {
                       const Tensor mask = stop_gradient(in[0]);
                       return sum(x * mask, 0) / maximum(sum(mask, 0), 1);
                     },
                 .beside = {{Kind::row, [](std::int64_t) { return Shape{1}; }, 1, 1}},
                 .per_sequence = true});
  append_binary(ops, "add", [](const auto& a, const auto& b) { return a + b; });
  append_binary(ops, "sub", [](const auto& a, const auto& b) { return a - b; });
  append_binary(ops, "mul", [](const auto& a, const auto& b) { return a * b; });
  append_binary(ops, "div", [](const auto& a, const auto& b) { return a / b; });
  append_binary(ops, "maximum", [](const auto& a, const auto& b) { return maximum(a, b); });
  append_binary(ops, "minimum", [](const auto& a, const auto& b) { return minimum(a, b); });
  append_recurrent(ops, "lstm", 4, [](const auto& x, const auto& w, const auto& o) { return lstm(x, w, o); });
  append_recurrent(ops, "gru", 3, [](const auto& x, const auto& w, const auto& o) { return gru(x, w, o); });
  append_recurrent(ops, "rnn", 1,
                   [](const auto& x, const auto& w, const auto& o) { return rnn(x, w, Nonlinearity::tanh, o); });
  return ops;
}

}  // namespace reel::test
