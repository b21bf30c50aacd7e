#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/reduction.h"

/// Losses per element of x and a target of its shape, dtype (f32 or f64) and device. One element, the mean over all
/// (NaN of none) or the sum, or x's shape with Reduction::none. Two Ragged have the same lengths and count per element
/// of their values. Both sides have gradients, of any order; backward keeps both sides, or what is made of them.
/// Throw DTypeError, DeviceError, and ShapeError unless the shapes are equal: nothing is broadcast. The loss over
/// classes is cross_entropy in softmax.h.
namespace reel {

/// (x - target)^2
REEL_API Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                         SourceLocation where = SourceLocation::current());
REEL_API Tensor mse_loss(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                         SourceLocation where = SourceLocation::current());

/// |x - target|; the gradient at 0 is 0.
REEL_API Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                        SourceLocation where = SourceLocation::current());
REEL_API Tensor l1_loss(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                        SourceLocation where = SourceLocation::current());

/// r^2 / 2 for r = |x - target| up to delta, delta (r - delta / 2) beyond (Huber, 1964). Throws Error unless delta > 0.
REEL_API Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                           double delta = 1, SourceLocation where = SourceLocation::current());
REEL_API Tensor huber_loss(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                           double delta = 1, SourceLocation where = SourceLocation::current());

/// -target log(sigmoid(logits)) - (1 - target) log(1 - sigmoid(logits)) for targets in [0, 1], without overflow and
/// accurate where it is tiny.
REEL_API Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean,
                                SourceLocation where = SourceLocation::current());
REEL_API Tensor bce_with_logits(const Ragged& logits, const Ragged& target, Reduction reduction = Reduction::mean,
                                SourceLocation where = SourceLocation::current());

/// target (log(target) - x) for log-probabilities x and probabilities target; 0, with zero gradient, where the target
/// is 0, even for x = -inf. As in PyTorch the mean is over all elements, which is not the divergence per row.
REEL_API Tensor kl_div(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                       SourceLocation where = SourceLocation::current());
REEL_API Tensor kl_div(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                       SourceLocation where = SourceLocation::current());

/// max(0, 1 - target x) for targets -1 and 1; the gradient at the kink is 0.
REEL_API Tensor hinge_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                           SourceLocation where = SourceLocation::current());
REEL_API Tensor hinge_loss(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                           SourceLocation where = SourceLocation::current());

/// exp(x) - target x for x the logarithm of the rate: the negative logarithm of Poisson's distribution without its
/// constant.
REEL_API Tensor poisson_nll(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                            SourceLocation where = SourceLocation::current());
REEL_API Tensor poisson_nll(const Ragged& x, const Ragged& target, Reduction reduction = Reduction::mean,
                            SourceLocation where = SourceLocation::current());

/// The cosine of the angle between a and b along an axis, which goes: a . b / (max(|a|, eps) max(|b|, eps)); 0 for a
/// row of zeros. Not a loss: cosine_loss is. Throws as the losses do, and ShapeError for the axis.
REEL_API Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis = 1, double eps = 1e-8,
                                  SourceLocation where = SourceLocation::current());
/// Per row, along an axis of the values behind the first.
REEL_API Ragged cosine_similarity(const Ragged& a, const Ragged& b, int axis = 1, double eps = 1e-8,
                                  SourceLocation where = SourceLocation::current());

/// 1 - cosine_similarity per row along an axis, reduced.
REEL_API Tensor cosine_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean, int axis = 1,
                            SourceLocation where = SourceLocation::current());
/// Per row, along an axis of the values behind the first.
REEL_API Tensor cosine_loss(const Ragged& a, const Ragged& b, Reduction reduction = Reduction::mean, int axis = 1,
                            SourceLocation where = SourceLocation::current());

}  // namespace reel
