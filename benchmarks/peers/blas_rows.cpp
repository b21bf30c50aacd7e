// The matrix products of rows.h by one library: OpenBLAS, oneDNN or Eigen (REEL_PEER_OPENBLAS, _ONEDNN, _EIGEN).

#include <omp.h>

#include <memory>

#include "../rows.h"

#if defined(REEL_PEER_OPENBLAS)
#include <cblas.h>
#elif defined(REEL_PEER_ONEDNN)
#include <dnnl.h>
#else
#include <Eigen/Core>
#endif

namespace {

using bench::Product;

void multiply(const Product& p, const float* a, const float* b, float* c) {
#if defined(REEL_PEER_OPENBLAS)
  const auto size = [](bench::Int n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasRowMajor, p.trans_a ? CblasTrans : CblasNoTrans, p.trans_b ? CblasTrans : CblasNoTrans, size(p.m),
              size(p.n), size(p.k), 1, a, size(p.trans_a ? p.m : p.k), b, size(p.trans_b ? p.k : p.n), 0, c, size(p.n));
#elif defined(REEL_PEER_ONEDNN)
  dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, p.k, 1, a, p.trans_a ? p.m : p.k, b,
             p.trans_b ? p.k : p.n, 0, c, p.n);
#else
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> x(a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k);
  const Eigen::Map<const Matrix> y(b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n);
  Eigen::Map<Matrix> z(c, p.m, p.n);
  if (p.trans_a) z.noalias() = x.transpose() * y;
  else if (p.trans_b) z.noalias() = x * y.transpose();
  else z.noalias() = x * y;
#endif
}

void set_threads(int threads) {
  omp_set_num_threads(threads);
#if defined(REEL_PEER_OPENBLAS)
  openblas_set_num_threads(threads);
#elif defined(REEL_PEER_EIGEN)
  Eigen::setNbThreads(threads);
#endif
}

bench::Work product(const Product& p) {
  struct Operands {
    std::vector<float> a, b, c;
  };
  auto x = std::make_shared<Operands>();
  x->a = bench::inputs(1, p.m * p.k), x->b = bench::inputs(2, p.k * p.n);
  x->c.resize(static_cast<std::size_t>(p.m * p.n));
  return {bench::repeated([=] { multiply(p, x->a.data(), x->b.data(), x->c.data()); }), [x] {
            bench::Digest digest;
            digest.add(x->c.data(), static_cast<bench::Int>(x->c.size()));
            return digest;
          }};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::Row> rows;
  for (const Product& p : bench::products()) rows.push_back({p.name, p.threads, [p] { return product(p); }});
  return bench::serve(argc, argv, rows, set_threads);
}
