#pragma once

#include <concepts>
#include <initializer_list>

#include "reel/core/ragged.h"
#include "reel/ops/axes.h"

/// Statistics over some or all axes, with gradients of any order, for which norm and logsumexp keep x and the result,
/// var and stddev x's differences from the mean. x is f32 or f64 unless said otherwise; the result has x's shape
/// without the reduced axes, or with size 1 there (Keep::yes). A Ragged with axes: per row, over axes of the values
/// behind the first. Throw DTypeError, and ShapeError for an axis that is out of range, named twice or, for a Ragged,
/// 0.
namespace reel {

/// sum((x - mean)^2) / max(0, n - correction) over n elements, in two passes and corrected for the rounding of the mean
/// (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983), so never below 0; NaN for n <=
/// correction where all are equal, as for one.
REEL_API Tensor var(const Tensor& x, const Axes& axes = {}, double correction = 1, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// A struct, for a bare number beside a Ragged is an axis.
struct VarianceOptions {
  double correction = 1;
};
/// Per sequence and column: values [total, ...] give [n, ...]; 0 for a sequence without rows.
REEL_API Tensor var(const Ragged& x, VarianceOptions options = {}, SourceLocation where = SourceLocation::current());
/// sqrt(var(x)), the standard deviation; the gradient where it is 0 is 0.
REEL_API Tensor stddev(const Tensor& x, const Axes& axes = {}, double correction = 1, Keep keep = Keep::no,
                       SourceLocation where = SourceLocation::current());
/// As var of a Ragged.
REEL_API Tensor stddev(const Ragged& x, VarianceOptions options = {}, SourceLocation where = SourceLocation::current());

/// sqrt(sum(x^2)), with the squares in x's dtype; 0 of nothing. The gradient where it is 0 is 0.
REEL_API Tensor norm(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
/// Per sequence and column: values [total, ...] give [n, ...].
REEL_API Tensor norm(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged norm(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());

/// log(sum(exp(x))) without overflow. Of nothing, and where all are -inf, it is -inf with zero gradient.
REEL_API Tensor logsumexp(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                          SourceLocation where = SourceLocation::current());
/// Per sequence and column: values [total, ...] give [n, ...].
REEL_API Tensor logsumexp(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged logsumexp(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                          SourceLocation where = SourceLocation::current());

/// Whether any element, or every one, is not 0; NaN is not. x has any dtype, the result is bool8. Of nothing: false,
/// true.
REEL_API Tensor any(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
REEL_API Tensor all(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());

/// Per sequence and column: values [total, ...] give [n, ...].
REEL_API Tensor any(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor all(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged any(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
REEL_API Ragged all(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());

namespace detail {
/// Per row; the standard deviation, if `root`.
REEL_API Ragged row_variance(const Ragged& x, const Axes& axes, double correction, Keep keep, bool root,
                             SourceLocation where);
}  // namespace detail

/// Per row. Templates and lists, so that g++ does not take var(x, {.correction = 0}) for axes too.
template <std::convertible_to<Axes> A = Axes>
Ragged var(const Ragged& x, const A& axes, double correction = 1, Keep keep = Keep::no,
           SourceLocation where = SourceLocation::current()) {
  return detail::row_variance(x, axes, correction, keep, false, where);
}
inline Ragged var(const Ragged& x, std::initializer_list<int> axes, double correction = 1, Keep keep = Keep::no,
                  SourceLocation where = SourceLocation::current()) {
  return detail::row_variance(x, axes, correction, keep, false, where);
}
template <std::convertible_to<Axes> A = Axes>
Ragged stddev(const Ragged& x, const A& axes, double correction = 1, Keep keep = Keep::no,
              SourceLocation where = SourceLocation::current()) {
  return detail::row_variance(x, axes, correction, keep, true, where);
}
inline Ragged stddev(const Ragged& x, std::initializer_list<int> axes, double correction = 1, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current()) {
  return detail::row_variance(x, axes, correction, keep, true, where);
}

}  // namespace reel
