#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/reduction.h"

namespace reel {

/// exp(x / temperature) / sum exp(x / temperature) along `axis` (0 for a tensor without axes), without overflow and
/// without clipping; f32 or f64. A row that is all -inf gives 0, with zero gradient; a NaN or +inf makes its row NaN.
/// Throws DTypeError, ShapeError. Backward keeps the result.
REEL_API Tensor softmax(const Tensor& x, int axis = -1, double temperature = 1,
                        SourceLocation where = SourceLocation::current());
/// log(softmax(x)), accurate where the softmax is tiny. A row that is all -inf gives -inf, with zero gradient. Throws
/// and keeps as softmax.
REEL_API Tensor log_softmax(const Tensor& x, int axis = -1, double temperature = 1,
                            SourceLocation where = SourceLocation::current());

/// Within each sequence, down each column of values [total, ...].
REEL_API Ragged softmax(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log_softmax(const Ragged& x, SourceLocation where = SourceLocation::current());
/// Per row, along an axis of the values behind the first; axis 0: within each sequence.
REEL_API Ragged softmax(const Ragged& x, int axis, double temperature = 1,
                        SourceLocation where = SourceLocation::current());
REEL_API Ragged log_softmax(const Ragged& x, int axis, double temperature = 1,
                            SourceLocation where = SourceLocation::current());

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore = -100;  // rows with this target do not count
  double label_smoothing = 0;  // in [0, 1): this share of the target is spread evenly over all classes
  Tensor weight = {};          // [classes], dtype of the logits: the weight of each class in a loss; no gradient
};

/// -log softmax(logits)[target] per row: logits [rows, classes] (f32 or f64), target [rows] (i32 or i64) in [0,
/// classes); or, as in PyTorch, logits [n, classes, h, w] with target [n, h, w], of any number of axes behind the
/// classes, whose rows are the pixels in the target's order; or logits [classes] with one target. With weights and
/// smoothing e it is (1 - e) weight[target] (-log p[target]) + e / classes sum_c weight[c] (-log p[c]). One element, or
/// the target's shape with Reduction::none. The mean is over the rows that are not ignored, each counted with the
/// weight of its target; NaN if there is none. Soft labels: target of logits' shape and dtype, probabilities, gives
/// -sum_c weight[c] t[c] log p[c] with t = (1 - e) target + e / classes; the mean is over all rows and target has a
/// gradient too. Throws ShapeError, DTypeError, DeviceError, IndexError (row and value), Error for the smoothing.
/// Backward keeps logits, target and each row's log sum exp; on the CPU the gradient too, as large as the logits, until
/// the first sweep.
REEL_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {},
                              SourceLocation where = SourceLocation::current());
/// Per row of the values [total, classes, ...].
REEL_API Tensor cross_entropy(const Ragged& logits, const Tensor& target, const CrossEntropyOptions& options = {},
                              SourceLocation where = SourceLocation::current());
REEL_API Tensor cross_entropy(const Ragged& logits, const Ragged& target, const CrossEntropyOptions& options = {},
                              SourceLocation where = SourceLocation::current());

struct NllOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore = -100;
  Tensor weight = {};
};
/// -weight[target] log_p[target] per row, for log-probabilities log_p; shapes, targets, the reductions and what is
/// thrown as for cross_entropy. What is not the target is not looked at: it may be -inf.
REEL_API Tensor nll_loss(const Tensor& log_p, const Tensor& target, const NllOptions& options = {},
                         SourceLocation where = SourceLocation::current());
/// Per row of the values [total, classes, ...].
REEL_API Tensor nll_loss(const Ragged& log_p, const Tensor& target, const NllOptions& options = {},
                         SourceLocation where = SourceLocation::current());
REEL_API Tensor nll_loss(const Ragged& log_p, const Ragged& target, const NllOptions& options = {},
                         SourceLocation where = SourceLocation::current());

}  // namespace reel
