#pragma once

#include "reel/core/ragged.h"

/// Activation functions: y has x's shape, dtype (f32 or f64) and device; a Ragged keeps its offsets. NaN stays NaN.
/// Each throws DTypeError for other dtypes; backward keeps x, and there are gradients of any order. relu, sigmoid and
/// tanh stand in unary.h.
namespace reel {

/// x Phi(x) with the normal distribution function Phi, accurate in the left tail too (Hendrycks and Gimpel, 2016).
REEL_API Tensor gelu(const Tensor& x, SourceLocation where = SourceLocation::current());
/// The approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) of gelu, of the same authors.
REEL_API Tensor gelu_tanh(const Tensor& x, SourceLocation where = SourceLocation::current());
/// x sigmoid(x), also known as swish (Elfwing, Uchibe and Doya, 2018; Ramachandran, Zoph and Le, 2017).
REEL_API Tensor silu(const Tensor& x, SourceLocation where = SourceLocation::current());
/// x tanh(softplus(x)) (Misra, 2019).
REEL_API Tensor mish(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(1 + exp(x)), without overflow (Dugas et al., 2001).
REEL_API Tensor softplus(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(sigmoid(x)), without underflow.
REEL_API Tensor logsigmoid(const Tensor& x, SourceLocation where = SourceLocation::current());
/// min(max(x / 6 + 1/2, 0), 1); the gradient at the kinks is 0.
REEL_API Tensor hard_sigmoid(const Tensor& x, SourceLocation where = SourceLocation::current());
/// min(max(x, -1), 1); the gradient at the kinks is 0.
REEL_API Tensor hard_tanh(const Tensor& x, SourceLocation where = SourceLocation::current());
/// x hard_sigmoid(x) (Howard et al., "Searching for MobileNetV3", 2019); the gradient is 0 at the kink -3 and 1 at the
/// kink 3.
REEL_API Tensor hard_swish(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 0.5 x (x / sqrt(1 + x^2) + 1), Thinc's cheap relative of gelu.
REEL_API Tensor dish(const Tensor& x, SourceLocation where = SourceLocation::current());

/// slope x + offset within [low, high], as in Thinc; the gradient at the kinks is 0. Throws Error unless low <= high.
REEL_API Tensor clipped_linear(const Tensor& x, double slope = 1, double offset = 0, double low = 0, double high = 1,
                               SourceLocation where = SourceLocation::current());
/// x within [0, k]: clipped_linear with slope 1 and offset 0; relu6 is k = 6.
REEL_API Tensor relu_k(const Tensor& x, double k = 6, SourceLocation where = SourceLocation::current());

REEL_API Ragged gelu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged gelu_tanh(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged silu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged mish(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged softplus(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged logsigmoid(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged hard_sigmoid(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged hard_tanh(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged hard_swish(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged dish(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged clipped_linear(const Ragged& x, double slope = 1, double offset = 0, double low = 0, double high = 1,
                               SourceLocation where = SourceLocation::current());
REEL_API Ragged relu_k(const Ragged& x, double k = 6, SourceLocation where = SourceLocation::current());

}  // namespace reel
