#include <algorithm>
#include <cmath>

#include "reel/reel.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {

namespace {

using Kind = Beside::Kind;
using In = const Tensors&;

constexpr std::int64_t kTable = 11;

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
  ops.push_back(two(name + "/rows", f, 0.5, 2));
  const auto ragged = [f](const Ragged& x, In in) { return f(x, in[0]).values(); };
  const auto list = [f](const Tensor& x, In in) { return f(x, in[0]); };
  const auto width = [](std::int64_t n) { return Shape{n}; };
  ops.push_back(
      {.name = name + "/sequences", .ragged = ragged, .list = list, .beside = {{Kind::sequence, width, 0.5, 2}}});
  ops.push_back(
      {.name = name + "/trailing", .ragged = ragged, .list = list, .beside = {{Kind::shared, width, 0.5, 2}}});
  ops.push_back({.name = name + "/number_per_row",
                 .ragged = [f](const Ragged& x, In in) { return f(x, x.with(in[0])).values(); },
                 .list = list,
                 .beside = {{Kind::row, [](std::int64_t) { return Shape{1}; }, 0.5, 2}}});
}

// Two copies side by side, and the size of a row, of a Ragged or of one sequence.
Tensor doubled(const Tensor& x) { return concatenate(Tensors{x, 0.5 * x}, 1); }
Ragged doubled(const Ragged& x) { return concatenate(std::vector<Ragged>{x, 0.5 * x}, 1); }
Shape last_of(const Tensor& x) { return {x.shape()[1]}; }
Shape last_of(const Ragged& x) { return last_of(x.values()); }

}  // namespace

std::vector<RaggedOp> ragged_ops() {
  std::vector<RaggedOp> ops = {
      // functions of one element, and of one row
      per_row("cast", [](const auto& x) { return cast(cast(x, f32), f64); }),
      per_row("to", [](const auto& x) { return to(x, Device::cpu()) * 1; }),
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
      per_row("sum/row", [](const auto& x) { return sum(x, -1, Keep::yes); }),
      per_row("mean/row", [](const auto& x) { return mean(x, -1, Keep::yes); }),
      per_row("max/row", [](const auto& x) { return max(x, -1, Keep::yes); }),
      per_row("min/row", [](const auto& x) { return min(x, -1, Keep::yes); }),
      per_row("var/row", [](const auto& x) { return var(x, -1, 0, Keep::yes); }),
      per_row("stddev/row", [](const auto& x) { return stddev(x, -1, 0, Keep::yes); }),
      per_row("norm/row", [](const auto& x) { return norm(x, -1, Keep::yes); }),
      per_row("logsumexp/row", [](const auto& x) { return logsumexp(x, -1, Keep::yes); }),
      per_row("softmax/row", [](const auto& x) { return softmax(x, 1, 2); }),
      per_row("log_softmax/row", [](const auto& x) { return log_softmax(x, 1, 2); }),
      per_row("prod/row", [](const auto& x) { return prod(x, -1, Keep::yes); }),
      per_row("any/row", [](const auto& x) { return any(x, -1, Keep::yes); }),
      per_row("all/row", [](const auto& x) { return all(x, -1, Keep::yes); }),
      per_row("cumsum/row", [](const auto& x) { return cumsum(x, 1); }),
      per_row("cumprod/row", [](const auto& x) { return cumprod(x, 1); }),
      per_row("clipped_linear", [](const auto& x) { return clipped_linear(x, 2, 0.5, -1, 1); }),
      per_row("relu_k", [](const auto& x) { return relu_k(x, 1); }),
      per_row(
          "polygamma", [](const auto& x) { return polygamma(1, x); }, 0.5, 4),
      per_row(
          "pow/number", [](const auto& x) { return pow(x, 1.7); }, 0.5, 2),
      per_row("isfinite", [](const auto& x) { return isfinite(x); }),
      per_row("isnan", [](const auto& x) { return isnan(log(x)); }),
      per_row("isinf", [](const auto& x) { return isinf(exp(1000 * x)); }),
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
      two("less_equal", [](const auto& a, const auto& b) { return a <= b; }),
      two("greater", [](const auto& a, const auto& b) { return a > b; }),
      two("greater_equal", [](const auto& a, const auto& b) { return a >= b; }),
      two("not_equal", [](const auto& a, const auto& b) { return a != b; }),
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
      {.name = "linear/relu",
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
      {.name = "matmul/each",
       .ragged = [](const Ragged& x, In in) { return matmul(x, in[0]).values(); },
       .list = [](const Tensor& x, In in) { return matmul(x, squeeze(in[0], 0)); },
       .beside = {{Kind::sequence, [](std::int64_t width) { return Shape{width, 7}; }}}},
      {.name = "layer_norm/affine",
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
  };
  append_binary(ops, "add", [](const auto& a, const auto& b) { return a + b; });
  append_binary(ops, "sub", [](const auto& a, const auto& b) { return a - b; });
  append_binary(ops, "mul", [](const auto& a, const auto& b) { return a * b; });
  append_binary(ops, "div", [](const auto& a, const auto& b) { return a / b; });
  append_binary(ops, "maximum", [](const auto& a, const auto& b) { return maximum(a, b); });
  append_binary(ops, "minimum", [](const auto& a, const auto& b) { return minimum(a, b); });
  // A number before the Ragged.
  ops.push_back(per_row("add/number", [](const auto& x) { return add(1.5, x); }));
  ops.push_back(per_row("sub/number", [](const auto& x) { return sub(1.5, x); }));
  ops.push_back(per_row("mul/number", [](const auto& x) { return mul(1.5, x); }));
  ops.push_back(per_row(
      "div/number", [](const auto& x) { return div(1.5, x); }, 0.5, 2));
  ops.push_back(per_row("maximum/number", [](const auto& x) { return maximum(0.25, x); }));
  ops.push_back(per_row("minimum/number", [](const auto& x) { return minimum(0.25, x); }));
  for (RaggedOp& op : ragged_sequence_ops()) ops.push_back(std::move(op));
  for (RaggedOp& op : ragged_shape_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace reel::test
