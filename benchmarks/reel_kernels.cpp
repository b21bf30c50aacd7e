// Products, reductions, softmax and its kin, activations, convolutions.

#include "reel_rows.h"
#include "reel/core/ops.h"

namespace bench {

using namespace reel;

namespace {

/// The backend's product itself, as BLAS would be called.
template <class T>
Work product(const Product& p) {
  auto x = std::make_shared<Operands<T>>(p);
  Gemm gemm;
  gemm.m = p.m, gemm.n = p.n, gemm.k = p.k, gemm.batch = p.batch;
  gemm.dtype = p.f64 ? DType::f64 : DType::f32;
  gemm.trans_a = p.trans_a, gemm.trans_b = p.trans_b;
  gemm.a = x->a.data(), gemm.b = x->b.data(), gemm.c = x->c.data();
  gemm.lda = p.trans_a ? p.m : p.k, gemm.ldb = p.trans_b ? p.k : p.n, gemm.ldc = p.n;
  gemm.stride_a = p.m * p.k, gemm.stride_b = p.k * p.n, gemm.stride_c = p.m * p.n;
  if (p.bias_relu) gemm.bias = x->bias.data(), gemm.epilogue = Epilogue::relu;
  return {repeated([x, gemm, &cpu = backend(Device::cpu())] { cpu.gemm(gemm); }), [x] {
            Digest digest;
            digest.add(x->c.data(), static_cast<Int>(x->c.size()));
            return digest;
          }};
}

/// What the sums of [rows, cols] along an axis are in double: f32's own error is seen beside it, however much cancels.
Digest exact_sums(const Matrix& m, bool along_rows) {
  std::vector<double> sums(static_cast<std::size_t>(along_rows ? m.rows : m.cols));
  for (Int r = 0, i = 0; r < m.rows; ++r)
    for (Int c = 0; c < m.cols; ++c, ++i)
      sums[static_cast<std::size_t>(along_rows ? r : c)] += input(1, static_cast<std::uint64_t>(i));
  Digest digest;
  for (const double sum : sums) digest.add(sum);
  return digest;
}

void add_reductions(std::vector<Row>& rows) {
  const auto with_exact = [](Work work, const Matrix& m, bool along_rows) {
    work.exact = [=] { return exact_sums(m, along_rows); };
    return work;
  };
  for (const Int n : kSums)
    rows.push_back({"sum_" + std::to_string(n), 0, [=] {
                      return with_exact(forward([x = tensor(1, {n})] { return sum(x); }), {"", 1, n}, true);
                    }});
  for (const Matrix& m : kSummed)
    for (const int axis : {1, 0})
      rows.push_back(
          {std::string(axis == 1 ? "row_sums_" : "column_sums_") + m.name, 0, [=] {
             return with_exact(forward([=, x = tensor(1, {m.rows, m.cols})] { return sum(x, {axis}); }), m, axis == 1);
           }});
}

/// Forward, and forward with backward, of f: x -> y. `variant`: "" or "@..."
template <class F>
void add_both(std::vector<Row>& rows, const std::string& name, const std::string& variant, const Shape& shape, F f) {
  rows.push_back({name + variant, 0, [=] { return forward([=, x = tensor(1, shape)] { return f(x); }); }});
  rows.push_back({name + "_backward" + variant, 0,
                  [=] { return with_backward({tensor(1, shape)}, [=](const Tensors& xs) { return f(xs[0]); }); }});
}

void add_fused(std::vector<Row>& rows) {
  for (const Matrix& m : kGelu) {
    const std::string name = std::string("gelu_") + m.name;
    add_both(rows, name, "", {m.cols}, [](const Tensor& x) { return gelu(x); });
    add_both(rows, name, "@unfused", {m.cols}, [](const Tensor& x) { return 0.5 * x * (1 + erf(x * M_SQRT1_2)); });
  }
  for (const Matrix& m : kSoftmax) {
    const Shape shape{m.rows, m.cols};
    const std::string name = std::string("softmax_") + m.name;
    add_both(rows, name, "", shape, [](const Tensor& x) { return softmax(x); });
    add_both(rows, name, "@naive", shape, [](const Tensor& x) {
      const Tensor e = exp(x);
      return e / sum(e, {1}, Keep::yes);
    });
    add_both(rows, name, "@composed", shape, [](const Tensor& x) {
      const Tensor e = exp(x - amax(x, {1}, Keep::yes));
      return e / sum(e, {1}, Keep::yes);
    });
    if (device().is_cpu()) {
      rows.push_back({name + "@three_pass", 0, [m] { return three_pass_softmax(m.rows, m.cols); }});
      rows.push_back({name + "@online", 0, [m] { return online_softmax(m.rows, m.cols); }});
    }
    add_both(rows, "log_" + name, "", shape, [](const Tensor& x) { return log_softmax(x); });
    add_both(rows, "log_" + name, "@composed", shape, [](const Tensor& x) { return log(softmax(x)); });
  }
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

Work conv(const Conv& c, bool fused) {
  const Tensors xs = conv_operands(1, c.in, c.out, c.size);
  const auto f = [=](const Tensors& in) {
    const ConvOptions options{.padding = c.dilation, .dilation = c.dilation};
    return fused ? conv2d_relu(in[0], in[1], in[2], options) : relu(conv2d(in[0], in[1], in[2], options));
  };
  return c.backward ? with_backward(xs, f) : forward([=] { return f(xs); });
}

}  // namespace

std::vector<Row> kernel_rows() {
  std::vector<Row> rows;
  if (device().is_cpu())
    for (const Product& p : products())
      rows.push_back({p.name, p.threads, [p] { return p.f64 ? product<double>(p) : product<float>(p); }});
  add_reductions(rows);
  add_fused(rows);
  for (const Conv& c : convs())
    for (const bool fused : {true, false})
      rows.push_back({c.name + (fused ? "" : "@unfused"), 0, [=] { return conv(c, fused); }, kConvWarmCalls});
  return rows;
}

}  // namespace bench
