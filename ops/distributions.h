#pragma once

#include "reel/core/random.h"
#include "reel/ops/arg.h"

/// Probability distributions: the logarithm of the density (or probability) of values, and random samples. Parameters are
/// tensors, Parameters or numbers, f32 or f64 (a number alone is f64); they broadcast with each other and with values.
///
/// log_prob(value) has the shape to which value and parameters broadcast, is made of recorded ops and so has gradients of any
/// order in value and parameters, where the density has them. Counts may be integers. Throws ShapeError, DTypeError,
/// DeviceError.
///
/// sample(shape) gives shape + the parameters' common shape, drawn in f64 and rounded to the parameters' dtype: a constant to
/// tapes, from the process's generator unless one is given, the same for any number of threads.
///
/// Parameters and values are not looked at: outside of their domain log_prob is NaN or means nothing, as in PyTorch with
/// validate_args=False. With tiny shapes samples underflow to 0.
namespace reel::distributions {

/// exp(-z^2 / 2) / (scale sqrt(2 pi)), z = (x - loc) / scale.
struct REEL_API Normal {
  Normal(const Arg& loc, const Arg& scale);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  /// loc + scale times a standard normal number: recorded, with gradients of loc and scale.
  Tensor rsample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor loc, scale;
};

/// Student's t: Gamma((df + 1) / 2) / (Gamma(df / 2) sqrt(pi df) scale) (1 + z^2 / df)^(-(df + 1) / 2), z = (x - loc) / scale.
struct REEL_API StudentT {
  explicit StudentT(const Arg& df, const Arg& loc = 0.0, const Arg& scale = 1.0);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor df, loc, scale;
};

/// rate^a x^(a - 1) exp(-rate x) / Gamma(a) for x > 0, a = concentration.
struct REEL_API Gamma {
  Gamma(const Arg& concentration, const Arg& rate);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor concentration, rate;
};

/// x^(a - 1) (1 - x)^(b - 1) Gamma(a + b) / (Gamma(a) Gamma(b)) for 0 < x < 1. Samples come from the logarithms of gamma numbers,
/// so that small a and b do not give 0 / 0.
struct REEL_API Beta {
  Beta(const Arg& a, const Arg& b);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor a, b;
};

/// rate^k exp(-rate) / k! for k = 0, 1, ...; rate 0 is legal.
struct REEL_API Poisson {
  explicit Poisson(const Arg& rate);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor rate;
};

/// Successes k before failure number r = total_count (> 0, not necessarily whole) where a success has probability
/// p = sigmoid(logits), as in PyTorch: Gamma(r + k) / (k! Gamma(r)) (1 - p)^r p^k.
struct REEL_API NegativeBinomial {
  NegativeBinomial(const Arg& total_count, const Arg& logits);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor total_count, logits;
};

/// 1 with probability sigmoid(logits), else 0. log_prob is accurate where it is tiny; values other than 0 and 1 mean nothing.
struct REEL_API Bernoulli {
  explicit Bernoulli(const Arg& logits);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor logits;
};

/// Class i of the last axis of logits [..., classes] with probability softmax(logits)[i]. Values are indices (i32 or i64) that
/// broadcast with [...]; IndexError if one is not a class. Samples are i64, by the largest of logits + Gumbel numbers.
struct REEL_API Categorical {
  explicit Categorical(const Tensor& logits, SourceLocation where = SourceLocation::current());
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor logits;
};

/// 2 / (pi scale (1 + (x / scale)^2)) for x >= 0, else 0.
struct REEL_API HalfCauchy {
  explicit HalfCauchy(const Arg& scale);
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  Tensor scale;
};

/// Cholesky factors l [..., dim, dim] of correlation matrices with density proportional to det(l l^T)^(concentration - 1)
/// (Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion method", 2009),
/// as a density of l's elements below the diagonal. Row i = 1, ..., dim - 1 is sqrt(y) times a random direction, y from
/// Beta(i / 2, b_i), b_i = concentration + (dim - 1 - i) / 2, whose density is
/// Gamma(b_i + i / 2) / (Gamma(b_i) pi^(i / 2)) l_ii^(2 b_i - 2). Values have concentration's shape, or broadcast with it,
/// before their two axes. Throws ShapeError unless dim >= 1.
struct REEL_API LKJCholesky {
  LKJCholesky(std::int64_t dim, const Arg& concentration, SourceLocation where = SourceLocation::current());
  Tensor log_prob(const Tensor& value, SourceLocation where = SourceLocation::current()) const;
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  std::int64_t dim;
  Tensor concentration;
};

}  // namespace reel::distributions
