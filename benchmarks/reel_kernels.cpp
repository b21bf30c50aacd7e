// Products, reductions, softmax and its kin, activations, convolutions.

#include "reel_rows.h"
#include "reel/core/ops.h"

namespace bench {

using namespace reel;

namespace {

/// The backend's product itself, as BLAS would be called.
Work product(const Product& p) {
  struct Operands {
    std::vector<float> a, b, c;
    Gemm gemm;
  };
  auto x = std::make_shared<Operands>();
  x->a = inputs(1, p.m * p.k), x->b = inputs(2, p.k * p.n), x->c.resize(static_cast<std::size_t>(p.m * p.n));
  x->gemm.m = p.m, x->gemm.n = p.n, x->gemm.k = p.k;
  x->gemm.trans_a = p.trans_a, x->gemm.trans_b = p.trans_b;
  x->gemm.a = x->a.data(), x->gemm.b = x->b.data(), x->gemm.c = x->c.data();
  x->gemm.lda = p.trans_a ? p.m : p.k, x->gemm.ldb = p.trans_b ? p.k : p.n, x->gemm.ldc = p.n;
  return {repeated([x, &cpu = backend(Device::cpu())] { cpu.gemm(x->gemm); }), [x] {
            Digest digest;
            digest.add(x->c.data(), static_cast<Int>(x->c.size()));
            return digest;
          }};
}

void add_reductions(std::vector<Row>& rows) {
  for (const Int n : kSums)
    rows.push_back({"sum_" + std::to_string(n), 0, [n] { return forward([x = tensor(1, {n})] { return sum(x); }); }});
  for (const Matrix& m : kSummed)
    for (const int axis : {1, 0})
      rows.push_back({std::string(axis == 1 ? "row_sums_" : "column_sums_") + m.name, 0, [=] {
                        return forward([=, x = tensor(1, {m.rows, m.cols})] { return sum(x, {axis}); });
                      }});
}

/// Forward, and forward with backward, of f: x -> y.
template <class F>
void add_both(std::vector<Row>& rows, const std::string& name, const Shape& shape, F f) {
  rows.push_back({name, 0, [=] { return forward([=, x = tensor(1, shape)] { return f(x); }); }});
  rows.push_back({name + "_backward", 0,
                  [=] { return with_backward({tensor(1, shape)}, [=](const Tensors& xs) { return f(xs[0]); }); }});
}

void add_fused(std::vector<Row>& rows) {
  add_both(rows, "gelu_1e7", {10'000'000}, [](const Tensor& x) { return gelu(x); });
  for (const Matrix& m : kSoftmax)
    add_both(rows, std::string("softmax_") + m.name, {m.rows, m.cols}, [](const Tensor& x) { return softmax(x); });
  for (const Matrix& m : kCrossEntropy)
    rows.push_back({std::string("cross_entropy_") + m.name + "_backward", 0, [m] {
                      return with_backward({tensor(1, {m.rows, m.cols}, 4)},
                                           [target = labels(m.rows, m.cols)](const Tensors& xs) {
                                             return cross_entropy(xs[0], target);
                                           });
                    }});
  const auto norm = [](const Tensors& xs) { return layer_norm(xs[0], {1024}, xs[1], xs[2]); };
  const auto operands = [] { return Tensors{tensor(1, {1024, 1024}), tensor(2, {1024}), tensor(3, {1024})}; };
  rows.push_back({"layer_norm_1024x1024", 0, [=] { return forward([=, xs = operands()] { return norm(xs); }); }});
  rows.push_back({"layer_norm_1024x1024_backward", 0, [=] { return with_backward(operands(), norm); }});
}

Work conv(const Conv& c) {
  const Tensors xs = {tensor(1, {1, c.in, c.size, c.size}), tensor(2, {c.out, c.in, 3, 3}, 0.3), tensor(3, {c.out})};
  const auto f = [=](const Tensors& in) {
    return conv2d_relu(in[0], in[1], in[2], {.padding = c.dilation, .dilation = c.dilation});
  };
  return c.backward ? with_backward(xs, f) : forward([=] { return f(xs); });
}

}  // namespace

std::vector<Row> kernel_rows() {
  std::vector<Row> rows;
  for (const Product& p : products()) rows.push_back({p.name, p.threads, [p] { return product(p); }});
  add_reductions(rows);
  add_fused(rows);
  for (const Conv& c : convs()) rows.push_back({c.name, 0, [c] { return conv(c); }});
  return rows;
}

}  // namespace bench
