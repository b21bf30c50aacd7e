#pragma once

#include "reel/core/ops.h"

namespace reel::cuda {

/// The entries that CUDA does not have yet. Who writes the kernels of one takes its line away here.
class MissingOps : public Ops {
 public:
  void parametric(ParametricOp, const double*, const Array&, const Array&) override { missing("parametric"); }
  void parametric_backward(ParametricOp, const double*, const Array&, const Array&, const Array&) override {
    missing("parametric_backward");
  }
  void gated(GateOp, const Array&, const Array&) override { missing("gated"); }
  void gated_backward(GateOp, const Array&, const Array&, const Array&) override { missing("gated_backward"); }
  void dropout(const Array&, double, const PhiloxState&, const Array&) override { missing("dropout"); }
  void scan(ScanOp, const Array&, int, bool, bool, const Array&) override { missing("scan"); }
  void sort(const Array&, int, bool, const Array&, const Array&) override { missing("sort"); }
  std::int64_t nonzero(const Array&, const Array&) override { missing("nonzero"); }
  void pool(PoolOp, const Conv&, bool, const Array&, const Array&, const Array*) override { missing("pool"); }
  void pool_backward(PoolOp, const Conv&, bool, const Array&, const Array*, const Array&) override {
    missing("pool_backward");
  }
  std::int64_t cholesky(const Array&, const Array&) override { missing("cholesky"); }
  void triangular_solve(const Array&, const Array&, bool, bool, bool, const Array&) override {
    missing("triangular_solve");
  }
  void invert(const Array&, const Array*, const Array&, const Array&) override { missing("invert"); }
  void normalize(const Array&, bool, double, const Array*, const Array*, const Array&, const Array*,
                 const Array&) override {
    missing("normalize");
  }
  void normalize_backward(const Array&, bool, const Array*, const Array*, const Array&, const Array&, const Array*,
                          const Array*, const Array*) override {
    missing("normalize_backward");
  }
  void attention(const Attention&, const Array&, const Array&, const Array&, const Array*, const Array&,
                 const Array&) override {
    missing("attention");
  }
  void attention_backward(const Attention&, const Array&, const Array&, const Array&, const Array*, const Array&,
                          const Array&, const Array&, const Array&, const Array&, const Array&) override {
    missing("attention_backward");
  }
  void cell(CellOp, const Array&, const Array&, const Array&, const Array*, const Array&, const Array*,
            const Array&) override {
    missing("cell");
  }
  void cell_backward(CellOp, const Array&, const Array&, const Array*, const Array&, const Array*, const Array&,
                     const Array&, const Array*, const Array&, const Array&, const Array&, const Array*) override {
    missing("cell_backward");
  }
  void gather(const Array&, const Array&, int, const Array&) override { missing("gather"); }
  void scatter_add(const Array&, const Array&, int, const Array&) override { missing("scatter_add"); }
  void segment_gather(const Array&, const Array&, const Array*, const Segments&, bool, const Array&) override {
    missing("segment_gather");
  }
  void segment_gather_backward_weight(const Array&, const Array&, const Array&, const Segments&, bool,
                                      const Array&) override {
    missing("segment_gather_backward_weight");
  }
  void segment_gather_backward_table(const Array&, const Array&, const Array*, const Segments&, bool,
                                     const Array&) override {
    missing("segment_gather_backward_table");
  }
  void murmur3(const Array&, std::uint32_t, const Array&) override { missing("murmur3"); }
  void segment_scan(ScanOp, const Array&, const Segments&, bool, bool, const Array&) override {
    missing("segment_scan");
  }
  void segment_sort(const Array&, const Segments&, bool, const Array&, const Array&) override {
    missing("segment_sort");
  }
  void segment_window(const Array&, const Segments&, std::int64_t, const Array&) override { missing("segment_window"); }
  void segment_window_backward(const Array&, const Segments&, std::int64_t, const Array&) override {
    missing("segment_window_backward");
  }
  void rmsprop(const RmspropRange*, std::int64_t, const Array&, const Array&, const Array&, const Array*,
               const Array*) override {
    missing("rmsprop");
  }
  void adagrad(const AdagradRange*, std::int64_t, const Array&, const Array&, const Array&) override {
    missing("adagrad");
  }
  void ema(const Array&, double, const Array&) override { missing("ema"); }
  void random_gamma(const Array&, const PhiloxState&, const Array&) override { missing("random_gamma"); }
  void random_poisson(const Array&, const PhiloxState&, const Array&) override { missing("random_poisson"); }

 private:
  /// Throws DeviceError "<entry>: not on CUDA yet".
  [[noreturn]] static void missing(const char* entry);
};

}  // namespace reel::cuda
