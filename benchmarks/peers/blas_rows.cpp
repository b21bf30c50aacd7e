// The matrix products of rows.h by one library: OpenBLAS, oneDNN or Eigen (REEL_PEER_OPENBLAS, _ONEDNN, _EIGEN).

#include <omp.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "../rows.h"

#if defined(REEL_PEER_OPENBLAS)
#include <cblas.h>
#elif defined(REEL_PEER_ONEDNN)
#include <dnnl.hpp>
#else
#include <Eigen/Core>
#endif

namespace {

using bench::Operands, bench::Product;

/// All matrices by multiply(p, a, b, c, bias): a batch is shared among threads, where the library has no call for it.
template <class T, class F>
auto each_matrix(F multiply) {
  return [multiply](const Product& p, Operands<T>& x) {
    if (p.batch == 1) return multiply(p, x.a.data(), x.b.data(), x.c.data(), x.bias.data());
#pragma omp parallel for
    for (bench::Int i = 0; i < p.batch; ++i) {
      multiply(p, x.a.data() + i * p.m * p.k, x.b.data() + i * p.k * p.n, x.c.data() + i * p.m * p.n, x.bias.data());
    }
  };
}

#if defined(REEL_PEER_OPENBLAS)

/// A bias is in c beforehand; ReLU is a pass of its own.
template <class T>
auto multiply_all() {
  return each_matrix<T>([](const Product& p, const T* a, const T* b, T* c, const T* bias) {
    const auto size = [](bench::Int n) { return static_cast<blasint>(n); };
    const auto order_a = p.trans_a ? CblasTrans : CblasNoTrans, order_b = p.trans_b ? CblasTrans : CblasNoTrans;
    const blasint lda = size(p.trans_a ? p.m : p.k), ldb = size(p.trans_b ? p.k : p.n);
    const T beta = p.bias_relu ? 1 : 0;
    for (bench::Int i = 0; p.bias_relu && i < p.m; ++i) std::copy(bias, bias + p.n, c + i * p.n);
    if constexpr (sizeof(T) == 8) {
      cblas_dgemm(CblasRowMajor, order_a, order_b, size(p.m), size(p.n), size(p.k), 1, a, lda, b, ldb, beta, c,
                  size(p.n));
    } else {
      cblas_sgemm(CblasRowMajor, order_a, order_b, size(p.m), size(p.n), size(p.k), 1, a, lda, b, ldb, beta, c,
                  size(p.n));
    }
    for (bench::Int i = 0; p.bias_relu && i < p.m * p.n; ++i) c[i] = std::max(c[i], T(0));
  });
}

#elif defined(REEL_PEER_ONEDNN)

/// Its primitive, which knows batches, bias and ReLU. It has no products of doubles.
auto by_primitive(const Product& given) {
  using dnnl::memory;
  struct Call {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    dnnl::matmul primitive;
    std::unordered_map<int, memory> memories;
  };
  const auto desc = [&given](bench::Int rows, bench::Int cols, bool transposed) {
    const memory::dims strides = transposed ? memory::dims{rows * cols, 1, rows} : memory::dims{rows * cols, cols, 1};
    return memory::desc({given.batch, rows, cols}, memory::data_type::f32, strides);
  };
  const memory::desc a = desc(given.m, given.k, given.trans_a), b = desc(given.k, given.n, given.trans_b);
  const memory::desc c = desc(given.m, given.n, false);
  const memory::desc bias({1, 1, given.n}, memory::data_type::f32, memory::format_tag::abc);
  dnnl::primitive_attr attributes;
  if (given.bias_relu) {
    dnnl::post_ops after;
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  auto call = std::make_shared<Call>();
  const dnnl::matmul::desc operation =
      given.bias_relu ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  call->primitive = dnnl::matmul({operation, attributes, call->engine});
  const auto at = [call](const memory::desc& what) { return memory(what, call->engine, DNNL_MEMORY_NONE); };
  call->memories = {{DNNL_ARG_SRC, at(a)}, {DNNL_ARG_WEIGHTS, at(b)}, {DNNL_ARG_DST, at(c)}};
  if (given.bias_relu) call->memories.emplace(DNNL_ARG_BIAS, at(bias));
  return [call](const Product& p, Operands<float>& x) {
    call->memories.at(DNNL_ARG_SRC).set_data_handle(x.a.data());
    call->memories.at(DNNL_ARG_WEIGHTS).set_data_handle(x.b.data());
    call->memories.at(DNNL_ARG_DST).set_data_handle(x.c.data());
    if (p.bias_relu) call->memories.at(DNNL_ARG_BIAS).set_data_handle(x.bias.data());
    call->primitive.execute(call->stream, call->memories);
    call->stream.wait();
  };
}

template <class T>
auto multiply_all() {
  return each_matrix<T>([](const Product& p, const T* a, const T* b, T* c, const T*) {
    dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, p.k, 1, a, p.trans_a ? p.m : p.k, b,
               p.trans_b ? p.k : p.n, 0, c, p.n);
  });
}

#else

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
auto multiply_all() {
  return each_matrix<T>([](const Product& p, const T* a, const T* b, T* c, const T* bias) {
    const Eigen::Map<const Matrix<T>> x(a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k);
    const Eigen::Map<const Matrix<T>> y(b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n);
    Eigen::Map<Matrix<T>> z(c, p.m, p.n);
    if (p.trans_a && p.trans_b) z.noalias() = x.transpose() * y.transpose();
    else if (p.trans_a) z.noalias() = x.transpose() * y;
    else if (p.trans_b) z.noalias() = x * y.transpose();
    else z.noalias() = x * y;
    if (!p.bias_relu) return;
    const Eigen::Map<const Eigen::RowVector<T, Eigen::Dynamic>> added(bias, p.n);
    z = (z.rowwise() + added).cwiseMax(T(0));
  });
}

#endif

void set_threads(int threads) {
  omp_set_num_threads(threads);
#if defined(REEL_PEER_OPENBLAS)
  openblas_set_num_threads(threads);
#elif defined(REEL_PEER_EIGEN)
  Eigen::setNbThreads(threads);
#endif
}

template <class T, class F>
bench::Work work(const Product& p, F multiply) {
  auto x = std::make_shared<Operands<T>>(p);
  return {bench::repeated([p, x, multiply] { multiply(p, *x); }), [x] {
            bench::Digest digest;
            digest.add(x->c.data(), static_cast<bench::Int>(x->c.size()));
            return digest;
          }};
}

template <class T>
bench::Work product(const Product& p) {
#if defined(REEL_PEER_ONEDNN)
  if (p.batch > 1 || p.bias_relu) return work<T>(p, by_primitive(p));
#endif
  return work<T>(p, multiply_all<T>());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::Row> rows;
  for (const Product& p : bench::products()) {
    if (!p.f64) rows.push_back({p.name, p.threads, [p] { return product<float>(p); }});
#if !defined(REEL_PEER_ONEDNN)
    else rows.push_back({p.name, p.threads, [p] { return product<double>(p); }});
#endif
  }
  return bench::serve(argc, argv, rows, set_threads);
}
