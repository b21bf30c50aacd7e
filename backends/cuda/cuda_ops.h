#pragma once

#include <reel_cuda_missing.h>

#include "reel/backends/cuda/context.h"

namespace reel::cuda {

/// The backend of one GPU. Entries put their kernels on its stream and return; only to_host and synchronize wait.
class CudaOps final : public MissingOps {
 public:
  explicit CudaOps(int index) : context_(index) {}

  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;

  void fill(const Array& y, Scalar value) override;
  void copy(const Array& x, const Array& y) override;
  void arange(const Array& y, Scalar start, Scalar step) override;
  void random(RandomOp op, const Array& y, const PhiloxState& state) override;
  void check_indices(const Array& index, std::int64_t limit, const std::int64_t* exempt, const char* op,
                     SourceLocation where) override;
  void from_host(const void* host, void* device, std::int64_t bytes) override;
  void to_host(const void* device, void* host, std::int64_t bytes) override;
  void synchronize() override;

  void unary(UnaryOp op, const Array& x, const Array& y) override;
  void unary_backward(UnaryOp op, const Array& saved, const Array& dy, const Array& dx) override;
  void binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) override;
  void binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Array& dy, const Array* da,
                       const Array* db) override;
  void choose(const Array& condition, const Array& a, const Array& b, const Array& y) override;
  void accumulate(const Array& x, const Array& y) override;
  void parametric(ParametricOp op, const double* parameters, const Array& x, const Array& y) override;
  void parametric_backward(ParametricOp op, const double* parameters, const Array& x, const Array& dy,
                           const Array& dx) override;
  void gated(GateOp op, const Array& x, const Array& y) override;
  void gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) override;

  void reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) override;

  void scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
            const Array& y) override;
  void scan_backward(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                     const ScanGradients& gradients) override;
  void sort(const Array& x, int axis, bool descending, const Array& y, const Array& which) override;
  std::int64_t nonzero(const Array& mask, const Array& index) override;

  void gemm(const Gemm& gemm) override;
  void conv(const Conv& conv, const Array& x, const Array& weight, const Array* bias, Epilogue epilogue,
            const Array& y) override;
  void conv_backward_input(const Conv& conv, const Array& dy, const Array* relu_output, const Array& weight,
                           const Array& dx) override;
  void conv_backward_weight(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                            const Array& dweight, const Array* dbias) override;
  void pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
            const Array* which) override;
  void pool_backward(PoolOp op, const Conv& geometry, bool count_padding, const Array& dy, const Array* which,
                     const Array& dx) override;

  std::int64_t cholesky(const Array& a, const Array& l) override;
  void triangular_solve(const Array& a, const Array& b, bool upper, bool transposed, bool unit,
                        const Array& x) override;
  void lu(const Array& a, const Array& lu, const Array& rows, const Array& sign, const Array& logdet) override;

  void normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift, const Array& y,
                 const Array* mean, const Array& rstd) override;
  void normalize_backward(const Array& x, bool center, const Array* scale, const Array* mean, const Array& rstd,
                          const Array& dy, const GradientSink& dx, const Array* dscale, const Array* dshift) override;
  void normalize_channels(const Array& x, std::int64_t groups, double epsilon, const Array* scale, const Array* shift,
                          const Array& y, const Array& mean, const Array& rstd, const Array* variance) override;
  void normalize_channels_backward(const Array& x, std::int64_t groups, const Array* scale, const Array& mean,
                                   const Array& rstd, const Array& dy, const GradientSink& dx, const Array* dscale,
                                   const Array* dshift) override;
  void scale_channels(const Array& x, const Array* center, const Array* scale, const Array* shift,
                      const Array& y) override;
  void scale_channels_backward(const Array& x, const Array* center, const Array* scale, const Array& dy,
                               const Array* dx, const Array* dscale, const Array* dshift) override;

  void attention(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                 const Array& y, const Array& state) override;
  void attention_backward(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                          const Array& y, const Array& state, const Array& dy, const Array& dq, const Array& dk,
                          const Array& dv) override;
  void cell(CellOp op, const Array& x, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
            const Array* c, const Array& saved) override;
  void cell_backward(CellOp op, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                     const Array* c, const Array& saved, const Array& dh, const Array* dc, const Array& dx,
                     const Array& dr, const Array& dh_prev, const Array* dc_prev) override;
  bool fuses_steps(DType dtype, std::int64_t hidden) const override;
  void recurrent(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer, const Array& h0,
                 const Array* c0, const Array& h, const Array* c, const Array& y, const Array* states,
                 const Array* saved, const Array* back) override;
  void recurrent_backward(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer, const Array& h0,
                          const Array* c0, const Array& y, const Array* states, const Array& saved, const Array* back,
                          const Array* dy, const Array* dh, const Array* dc, const RecurrentGradients& to) override;

  void softmax(SoftmaxOp op, const Array& x, int axis, double temperature, const Array& y) override;
  void softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, int axis, double temperature,
                        const Array& dx) override;
  void cross_entropy(const Array& logits, const Array& target, std::int64_t ignore, const Array& loss, const Array& lse,
                     const Array* dlogits) override;
  void cross_entropy_scale(const Array& lse, const Array& target, std::int64_t ignore, const Array& dloss,
                           const Array& dlogits) override;

  void take_rows(const Array& table, const Array& index, const Array& y) override;
  void add_rows(const Array& y, const Array& index, const Array& table) override;
  void gather(const Array& x, const Array& index, int axis, const Array& y) override;
  void scatter_add(const Array& y, const Array& index, int axis, const Array& x) override;
  void segment_gather(const Array& table, const Array& index, const Array* weight, const Segments& segments, bool mean,
                      const Array& y) override;
  void segment_gather_backward_weight(const Array& table, const Array& index, const Array& dy, const Segments& segments,
                                      bool mean, const Array& dweight) override;
  void segment_gather_backward_table(const Array& dy, const Array& index, const Array* weight, const Segments& segments,
                                     bool mean, const Array& dtable) override;
  void murmur3(const Array& keys, std::uint32_t seed, const Array& y) override;

  void segment_reduce(ReduceOp op, const Array& x, const Segments& segments, const Array& y,
                      const Array* which) override;
  void segment_broadcast(const Array& x, const Segments& segments, bool mean, const Array& y) override;
  void segment_select_backward(const Array& dy, const Array& which, const Segments& segments, const Array& dx) override;
  void segment_scan(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                    bool exclusive, const Array& y) override;
  void segment_scan_backward(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                             bool exclusive, const ScanGradients& gradients) override;
  void segment_sort(const Array& x, const Segments& segments, bool descending, const Array& y,
                    const Array& which) override;
  void segment_window(const Array& x, const Segments& segments, std::int64_t before, const Array& y) override;
  void segment_window_backward(const Array& dy, const Segments& segments, std::int64_t before,
                               const Array& dx) override;
  void segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, double temperature,
                       const Array& y) override;
  void segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                double temperature, const Array& dx) override;
  void pad(const Array& x, const Padding& padding, const Array& y) override;
  void pad_backward(const Array& dy, const Padding& padding, const Array& dx) override;
  void segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) override;
  void segment_unpad(const Array& x, const Segments& segments, const Array& y) override;

  void sgd(const SgdRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array* momentum,
           const WeightAverage* ema) override;
  void adam(const AdamRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& m, const Array& v,
            const WeightAverage* ema) override;

  void rmsprop(const RmspropRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& v,
               const Array* average, const Array* momentum, const WeightAverage* ema) override;
  void adagrad(const AdagradRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& sum,
               const WeightAverage* ema) override;
  void ema(const Array& w, double decay, const Array& average) override;
  void sums_of_squares(const FlatRange* ranges, std::int64_t count, const Array& x, double* sums) override;
  void dropout(const Array& x, double p, const PhiloxState& state, const Array& y) override;
  void random_gamma(const Array& alpha, const PhiloxState& state, const Array& y) override;
  void random_poisson(const Array& rate, const PhiloxState& state, const Array& y) override;

  Context& context() { return context_; }

 private:
  Context context_;
};

/// The backend of GPU number `index`, made when it is first asked for.
CudaOps& gpu(int index);

}  // namespace reel::cuda
