#pragma once

// Private to ops/: what the normalisations of rows and those of channels share.

#include "reel/core/node.h"
#include "reel/ops/axes.h"

namespace reel::detail::normalization {

// What is normalised: x seen as [rows, n].
struct Rows {
  std::int64_t rows, n;
  bool center;
  double eps;
};

// (x - mean) rstd weight + bias of each row, recorded; weight and bias [n] in any shape, or undefined.
Tensor normalize_rows(const char* op, const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias,
                      SourceLocation where);

// x brought to mean 0 and variance 1 over some axes, in recorded ops; `first`: the first element along these. The mean is taken
// from there on, so that overflow shows in the same places as in the kernels.
struct Standardized {
  Tensor rstd, xhat;

  Standardized(const Tensor& x, const Tensor& first, Axes axes, bool center, double eps);
  // From the gradient g with respect to xhat and the means of g (undefined unless centered) and g xhat.
  Tensor gradient(const Tensor& g, const Tensor& mean_g, const Tensor& mean_g_xhat) const;
};

// Those of an empty x, where the mean of nothing would be NaN.
void no_gradients(Gradients& g, const Tensor& x);
// Room for the gradient with respect to an input, where wanted.
Tensor room(Gradients& g, int input, const Tensor& x);

void check_weight(const char* op, const char* name, const Tensor& weight, const Tensor& x, const Shape& shape,
                  SourceLocation where);
void check_eps(const char* op, double eps, SourceLocation where);

// For kernels, of a tensor that may be undefined.
inline const Array* array_of(const Tensor& t) { return t.defined() ? &t.array() : nullptr; }

}  // namespace reel::detail::normalization
