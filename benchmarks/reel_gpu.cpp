// Tensors that a GPU needs some time for, and what has no row among those for CPUs. A row's bytes are what must be read and
// written at least: inputs and results once; with backward also the gradients, and again what the gradients are made of.

#include "reel_rows.h"
#include "reel/core/ops.h"

namespace bench {

using namespace reel;

namespace {

constexpr double kBytes = 4.0 * kLarge;  // of one large tensor

Row with_bytes(Row row, double tensors) {
  row.make = [make = row.make, tensors] {
    Work work = make();
    work.bytes = tensors * kBytes;
    return work;
  };
  return row;
}

/// Forward, and forward with backward, of f: x -> y, which read and write so many large tensors.
template <class F>
void add_both(std::vector<Row>& rows, const std::string& name, const std::vector<Shape>& shapes, double forward_tensors,
              double both_tensors, F f) {
  const auto inputs = [=] {
    Tensors xs;
    for (const Shape& shape : shapes) xs.push_back(tensor(static_cast<std::uint32_t>(xs.size() + 1), shape));
    return xs;
  };
  rows.push_back(with_bytes({name, 0, [=] { return forward([=, xs = inputs()] { return f(xs); }); }}, forward_tensors));
  if (both_tensors > 0)
    rows.push_back(with_bytes({name + "_backward", 0, [=] { return with_backward(inputs(), f); }}, both_tensors));
}

/// Steps t = 1, 2, ... of an optimiser, whose weights and gradients start as streams 1 and 2, and all else as zeros.
template <class Step>
Row optimizer_row(const std::string& name, int buffers, double tensors, Step step) {
  return with_bytes({name, 0,
                     [=] {
                       auto xs = std::make_shared<Tensors>();
                       for (std::uint32_t i = 0; static_cast<int>(i) < buffers; ++i)
                         xs->push_back(i < 2 ? tensor(i + 1, {kLarge}) : zeros({kLarge}, {.device = device()}));
                       return Work{[=, t = 0](std::int64_t n) mutable {
                                     for (std::int64_t i = 0; i < n; ++i) step(*xs, ++t);
                                     synchronize(device());
                                   },
                                   [xs] { return digest({(*xs)[0]}); }};
                     }},
                    tensors);
}

void add_elementwise(std::vector<Row>& rows) {
  const Shape one{kLarge};
  add_both(rows, "large_add", {one, one}, 3, 0, [](const Tensors& xs) { return xs[0] + xs[1]; });
  add_both(rows, "large_mul", {one, one}, 3, 8, [](const Tensors& xs) { return xs[0] * xs[1]; });
  add_both(rows, "large_add_row", {{kLarge / 1024, 1024}, {1024}}, 2, 0,
           [](const Tensors& xs) { return xs[0] + xs[1]; });
  add_both(rows, "large_add_transposed", {{8192, 8192}, {8192, 8192}}, 3, 0,
           [](const Tensors& xs) { return xs[0] + transpose(xs[1], 0, 1); });
  const auto unary = [&](const char* name, auto f) {
    add_both(rows, std::string("large_") + name, {one}, 2, 5, [f](const Tensors& xs) { return f(xs[0]); });
  };
  unary("exp", [](const Tensor& x) { return exp(x); });
  unary("tanh", [](const Tensor& x) { return tanh(x); });
  unary("sigmoid", [](const Tensor& x) { return sigmoid(x); });
  unary("relu", [](const Tensor& x) { return relu(x); });
  unary("gelu", [](const Tensor& x) { return gelu(x); });
  unary("silu", [](const Tensor& x) { return silu(x); });
  // A condition is a byte: a quarter of a tensor.
  rows.push_back(with_bytes({"large_where", 0,
                             [=] {
                               return forward([condition = tensor(3, one) > 0, a = tensor(1, one), b = tensor(2, one)] {
                                 return where(condition, a, b);
                               });
                             }},
                            3.25));
  rows.push_back(with_bytes({"large_where_backward", 0,
                             [=] {
                               return with_backward({tensor(1, one), tensor(2, one)},
                                                    [=, condition = tensor(3, one) > 0](const Tensors& xs) {
                                                      return where(condition, xs[0], xs[1]);
                                                    });
                             }},
                            6.5));
}

void add_rowwise(std::vector<Row>& rows) {
  for (const Int columns : {10, 128, 1024, 8192, 262144}) {
    const Shape shape{columns == 10 ? Int{1} << 22 : kLarge / columns, columns};
    const double tensors = static_cast<double>(shape.size()) / kLarge;
    add_both(rows, "large_softmax_" + std::to_string(columns), {shape}, 2 * tensors, 5 * tensors,
             [](const Tensors& xs) { return softmax(xs[0]); });
  }
  const Int columns = 1024, count = kLarge / columns;
  add_both(rows, "large_log_softmax", {{count, columns}}, 2, 5, [](const Tensors& xs) { return log_softmax(xs[0]); });
  add_both(rows, "large_layer_norm", {{count, columns}, {columns}, {columns}}, 2, 5,
           [](const Tensors& xs) { return layer_norm(xs[0], {1024}, xs[1], xs[2]); });
  add_both(rows, "large_rms_norm", {{count, columns}, {columns}}, 2, 5,
           [](const Tensors& xs) { return rms_norm(xs[0], {1024}, xs[1]); });
  rows.push_back(with_bytes({"large_cross_entropy_backward", 0,
                             [=] {
                               return with_backward({tensor(1, {count, columns}, 4)},
                                                    [target = labels(count, columns)](const Tensors& xs) {
                                                      return cross_entropy(xs[0], target);
                                                    });
                             }},
                            2));
  add_both(rows, "large_sum", {{kLarge}}, 1, 0, [](const Tensors& xs) { return sum(xs[0]); });
  add_both(rows, "large_row_sums", {{8192, 8192}}, 1, 0, [](const Tensors& xs) { return sum(xs[0], {1}); });
  add_both(rows, "large_column_sums", {{8192, 8192}}, 1, 0, [](const Tensors& xs) { return sum(xs[0], {0}); });
}

void add_optimizers(std::vector<Row>& rows) {
  rows.push_back(optimizer_row("large_sgd", 2, 3, [&ops = backend(device())](const Tensors& x, int) {
    const SgdRange range{.begin = 0, .end = kLarge, .rate = kRate};
    ops.sgd(&range, 1, x[0].array(), x[1].array(), nullptr);
  }));
  rows.push_back(optimizer_row("large_adam", 4, 7, [&ops = backend(device())](const Tensors& x, int t) {
    const AdamRange range{.begin = 0,
                          .end = kLarge,
                          .rate = kRate,
                          .step_size = kRate / (1 - std::pow(0.9, t)),
                          .root_correction2 = std::sqrt(1 - std::pow(0.999, t))};
    ops.adam(&range, 1, x[0].array(), x[1].array(), x[2].array(), x[3].array());
  }));
}

void add_conv(std::vector<Row>& rows, const std::string& name, Int images, Int channels, Int size, Int dilation) {
  for (const bool backward : {false, true})
    rows.push_back({"conv_" + name + (backward ? "_backward" : ""), 0, [=] {
                      const Tensors xs = conv_operands(images, channels, channels, size);
                      const auto f = [=](const Tensors& in) {
                        return conv2d_relu(in[0], in[1], in[2], {.padding = dilation, .dilation = dilation});
                      };
                      return backward ? with_backward(xs, f) : forward([=] { return f(xs); });
                    }});
}

/// What the CPU's rows leave out of the published grid: small images with holes between the taps, and batches.
void add_convs(std::vector<Row>& rows) {
  for (const Int size : {8, 16, 32, 64, 128, 256})
    for (Int dilation = 2; dilation <= 10; ++dilation)
      add_conv(rows, "1_" + std::to_string(size) + "_dilation" + std::to_string(dilation), 1, 1, size, dilation);
  for (const Int channels : {1, 2, 4, 8, 16, 32, 64})
    add_conv(rows, "batch_" + std::to_string(channels) + "_64", kManyConvImages, channels, 64, 1);
}

}  // namespace

std::vector<Row> gpu_rows() {
  std::vector<Row> rows;
  if (device().is_cpu()) return rows;
  add_elementwise(rows);
  add_rowwise(rows);
  add_optimizers(rows);
  add_convs(rows);
  for (const Int n : {1024, 4096})
    rows.push_back({"matmul_" + std::to_string(n), 0, [n] {
                      return forward([a = tensor(1, {n, n}), b = tensor(2, {n, n})] { return matmul(a, b); });
                    }});
  return rows;
}

}  // namespace bench
