// What layers and losses are made of, of a size that models have.

#include "reel_rows.h"

namespace bench {

using namespace reel;

namespace {

class LayerRows {
 public:
  /// f(operands), and with the gradients of all of them. make() makes the operands.
  template <class Make, class F>
  void add(const std::string& name, Make make, F f) {
    rows.push_back({name, 0, [=] { return forward([=, xs = make()] { return f(xs); }); }});
    rows.push_back({name + "_backward", 0, [=] { return with_backward(make(), f); }});
  }
  /// f(table), f(table, table), f(images).
  template <class F>
  void of_table(const std::string& name, F f) {
    add(
        name, [] { return Tensors{tensor(1, shape(kTable))}; }, [=](const Tensors& xs) { return f(xs[0]); });
  }
  template <class F>
  void of_tables(const std::string& name, F f) {
    add(
        name,
        [] {
          return Tensors{tensor(1, shape(kTable)), tensor(2, shape(kTable))};
        },
        [=](const Tensors& xs) { return f(xs[0], xs[1]); });
  }
  template <class F>
  void of_images(const std::string& name, F f) {
    add(
        name, [] { return Tensors{tensor(1, shape(kImages))}; }, [=](const Tensors& xs) { return f(xs[0]); });
  }
  /// f(images, weight) for a weight of this shape.
  template <class F>
  void of_weight(const std::string& name, const Shape& weight, F f) {
    add(
        name,
        [=] {
          return Tensors{tensor(1, shape(kImages)), tensor(2, weight)};
        },
        [=](const Tensors& xs) { return f(xs[0], xs[1]); });
  }

  template <std::size_t n>
  static Shape shape(const Int (&sizes)[n]) {
    Shape shape;
    for (const Int size : sizes) shape.push_back(size);
    return shape;
  }

  std::vector<Row> rows;
};

/// A table's rows in another order, some of them several times.
Tensor places() { return labels(kTable[0], kTable[0]); }

}  // namespace

std::vector<Row> layer_rows() {
  LayerRows r;
  r.of_table("sin", [](const Tensor& x) { return sin(x); });
  r.of_table("tanh", [](const Tensor& x) { return tanh(x); });
  r.of_table("silu", [](const Tensor& x) { return silu(x); });
  r.of_table("softplus", [](const Tensor& x) { return softplus(x); });
  r.of_table("cube", [](const Tensor& x) { return pow(x, 3); });
  r.of_table("norm", [](const Tensor& x) { return norm(x, 1); });
  r.of_table("variance", [](const Tensor& x) { return var(x, 1); });
  r.of_table("logsumexp", [](const Tensor& x) { return logsumexp(x, 1); });
  r.of_table("cumsum", [](const Tensor& x) { return cumsum(x, 1); });
  r.of_table("cumsum_columns", [](const Tensor& x) { return cumsum(x, 0); });
  r.of_table("sort", [](const Tensor& x) { return sort(x, 1).values; });
  r.of_table("topk", [](const Tensor& x) { return topk(x, 10, 1).values; });
  r.rows.push_back(
      {"topk_100", 0, [] {  // its gradient goes to one of equal elements, to which is each library's choice
         return forward([x = tensor(1, {kTable[0] * kTable[1]})] { return topk(x, 100, 0).values; });
       }});
  r.of_table("sub_column", [](const Tensor& x) {  // as from logits of 8 classes
    const Tensor rows = reshape(x, {-1, 8});
    return rows - narrow(rows, 1, 0, 1);
  });
  r.of_tables("add_transposed",
              [](const Tensor& a, const Tensor& b) { return transpose(a, 0, 1) + transpose(b, 0, 1); });
  r.of_table("sum_transposed", [](const Tensor& x) { return sum(transpose(x, 0, 1), 1); });
  r.of_table("neg_half_rows", [](const Tensor& x) { return neg(narrow(x, 1, 0, kTable[1] / 2)); });
  r.of_table("roll", [](const Tensor& x) { return roll(x, 3, 1); });
  r.of_table("gather", [at = reshape(labels(kTable[0] * kTable[1], kTable[1]), LayerRows::shape(kTable))](
                           const Tensor& x) { return gather(x, 1, at); });
  r.of_table("index_select_columns",
             [at = labels(kTable[1], kTable[1])](const Tensor& x) { return index_select(x, 1, at); });
  r.of_table("index_select", [at = places()](const Tensor& x) { return index_select(x, 0, at); });
  r.of_table("embedding", [at = places()](const Tensor& x) { return embedding(x, at); });
  r.of_tables("index_add", [at = places()](const Tensor& x, const Tensor& rows) {
    return scatter_add(x, 0, expand(unsqueeze(at, 1), x.shape()), rows);
  });
  r.of_tables("concatenate", [](const Tensor& a, const Tensor& b) { return concatenate({a, b}, 1); });
  r.add(
      "matrix_vector",
      [] {
        return Tensors{tensor(1, LayerRows::shape(kTable)), tensor(2, {kTable[1]})};
      },
      [](const Tensors& xs) { return matmul(xs[0], xs[1]); });
  r.of_tables("mse_loss", [](const Tensor& x, const Tensor& target) { return mse_loss(x, target); });
  r.of_tables("cosine_similarity", [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b, 1); });
  r.add(
      "rms_norm",
      [] {
        return Tensors{tensor(1, LayerRows::shape(kTable)), tensor(2, {kTable[1]})};
      },
      [](const Tensors& xs) { return rms_norm(xs[0], {kTable[1]}, xs[1]); });

  constexpr Int c = kImages[1];
  const auto channels = [] { return Tensors{tensor(1, LayerRows::shape(kImages)), tensor(2, {c}), tensor(3, {c})}; };
  r.add("group_norm", channels, [](const Tensors& xs) { return group_norm(xs[0], kGroups, xs[1], xs[2]); });
  r.add("batch_norm", channels,
        [](const Tensors& xs) { return batch_norm(xs[0], {}, {}, xs[1], xs[2], {.training = true}); });
  r.of_images("channel_sums", [](const Tensor& x) { return sum(x, {0, 2, 3}); });
  r.of_images("sum_channels_last", [](const Tensor& x) { return sum(permute(x, {0, 2, 3, 1}), 3); });
  r.of_images("max_pool", [](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); });
  r.of_images("avg_pool", [](const Tensor& x) { return avg_pool2d(x); });
  r.of_images("pad", [](const Tensor& x) { return pad(x, {{2, 1, 1}, {3, 1, 1}}); });
  r.of_images("pad_reflect", [](const Tensor& x) { return pad(x, {{2, 1, 1}, {3, 1, 1}}, PaddingMode::reflect); });
  r.of_images("channels_last", [](const Tensor& x) { return contiguous(permute(x, {0, 2, 3, 1})); });
  r.of_weight("conv_stride_2", {2 * c, c, 3, 3},
              [](const Tensor& x, const Tensor& weight) { return conv2d(x, weight, {}, {.stride = 2, .padding = 1}); });
  r.of_weight("conv_depthwise", {c, 1, 3, 3},
              [](const Tensor& x, const Tensor& weight) { return conv2d(x, weight, {}, {.padding = 1, .groups = c}); });
  r.of_weight("conv_1x1", {2 * c, c, 1, 1}, [](const Tensor& x, const Tensor& weight) { return conv2d(x, weight); });
  r.of_weight("conv_transpose", {c, c / 2, 4, 4}, [](const Tensor& x, const Tensor& weight) {
    return conv_transpose2d(x, weight, {}, {.stride = 2, .padding = 1});
  });
  for (const bool causal : {false, true})
    r.add(
        causal ? "attention_causal" : "attention",
        [] {
          const Shape heads = LayerRows::shape(kAttention);
          return Tensors{tensor(1, heads), tensor(2, heads), tensor(3, heads)};
        },
        [=](const Tensors& xs) { return scaled_dot_product_attention(xs[0], xs[1], xs[2], {.causal = causal}); });
  return r.rows;
}

}  // namespace bench
