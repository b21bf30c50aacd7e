#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "reel/core/ragged.h"
#include "reel/core/random.h"

namespace reel {

/// Tensors made from nothing. Each throws ShapeError for a negative size and OutOfMemory; dtype and device by options
/// (f32 on the CPU), so zeros({2, 3}, {.dtype = f64}). A number that is asked for is rounded to a floating dtype, where it may
/// be infinite, and cut off to an integer's, which must have it in its range: else Error. bool8: whether it is not 0.
REEL_API Tensor zeros(const Shape& shape, TensorOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor ones(const Shape& shape, TensorOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor full(const Shape& shape, Scalar value, TensorOptions options = {},
                     SourceLocation where = SourceLocation::current());
REEL_API Tensor zeros_like(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor ones_like(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor full_like(const Tensor& x, Scalar value, SourceLocation where = SourceLocation::current());
/// Sequences of x's lengths.
REEL_API Ragged zeros_like(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged ones_like(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged full_like(const Ragged& x, Scalar value, SourceLocation where = SourceLocation::current());

/// [0, 1, ..., count - 1]
REEL_API Tensor arange(std::int64_t count, TensorOptions options = {.dtype = i64},
                       SourceLocation where = SourceLocation::current());

/// start, start + step, ... up to but not with end; ceil((end - start) / step) numbers, each computed on its own. Throws Error
/// for a step of 0, NaN or away from end, for 2^62 numbers or more, and for numbers beyond the dtype's range; DTypeError for
/// bool8 and for a fraction in an integer's dtype.
REEL_API Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options = {.dtype = i64},
                       SourceLocation where = SourceLocation::current());

/// `count` numbers from start to end, both included, evenly apart; computed in f64, rounded once. One number is start. f32 or
/// f64. Throws DTypeError, and Error unless start and end are finite.
REEL_API Tensor linspace(double start, double end, std::int64_t count, TensorOptions options = {},
                         SourceLocation where = SourceLocation::current());
/// [rows, cols] with 1 on the main diagonal and 0 elsewhere; any dtype. One size: square.
REEL_API Tensor eye(std::int64_t rows, std::int64_t cols, TensorOptions options = {},
                    SourceLocation where = SourceLocation::current());
REEL_API Tensor eye(std::int64_t size, TensorOptions options = {}, SourceLocation where = SourceLocation::current());

// Random numbers come from the process's generator (manual_seed) unless one is given.

/// Uniform numbers in [0, 1); f32 or f64. The same for every backend and number of threads. Throws DTypeError.
REEL_API Tensor rand(const Shape& shape, TensorOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor rand(const Shape& shape, Generator& generator, TensorOptions options = {},
                     SourceLocation where = SourceLocation::current());
/// Numbers from the standard normal distribution; f32 or f64. Throws DTypeError.
REEL_API Tensor randn(const Shape& shape, TensorOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor randn(const Shape& shape, Generator& generator, TensorOptions options = {},
                      SourceLocation where = SourceLocation::current());
/// Integers in [low, high), i64 unless said otherwise; high - low <= 2^32. Throws Error unless low < high and
/// the dtype holds them all.
REEL_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options = {.dtype = i64},
                        SourceLocation where = SourceLocation::current());
REEL_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Generator& generator,
                        TensorOptions options = {.dtype = i64}, SourceLocation where = SourceLocation::current());
/// 1 with probability p and 0 otherwise: where the uniform number of an element is below p. Any dtype.
/// Throws Error unless p is in [0, 1].
REEL_API Tensor bernoulli(double p, const Shape& shape, TensorOptions options = {},
                          SourceLocation where = SourceLocation::current());
REEL_API Tensor bernoulli(double p, const Shape& shape, Generator& generator, TensorOptions options = {},
                          SourceLocation where = SourceLocation::current());
/// With a probability for each element: p's shape, dtype (f32 or f64) and device. A p outside of [0, 1], or NaN, counts as the
/// nearer bound, or 0: the numbers are not looked at.
REEL_API Tensor bernoulli(const Tensor& p, SourceLocation where = SourceLocation::current());
REEL_API Tensor bernoulli(const Tensor& p, Generator& generator, SourceLocation where = SourceLocation::current());
/// The numbers 0 .. count - 1 in random order, i64 on the CPU.
REEL_API Tensor permutation(std::int64_t count, SourceLocation where = SourceLocation::current());
REEL_API Tensor permutation(std::int64_t count, Generator& generator, SourceLocation where = SourceLocation::current());

/// A copy of `values` in row-major order. Throws ShapeError unless their number fits the shape.
template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape, SourceLocation where = SourceLocation::current());

/// A vector, or a tensor of `shape`, from a list: tensor({1, 2, 3}), tensor({1.5, 2, 3, 4}, {2, 2}, {.dtype = f64}). Numbers
/// as in full.
REEL_API Tensor tensor(std::initializer_list<double> values, TensorOptions options = {},
                       SourceLocation where = SourceLocation::current());
REEL_API Tensor tensor(std::initializer_list<double> values, const Shape& shape, TensorOptions options = {},
                       SourceLocation where = SourceLocation::current());
namespace detail {
REEL_API Tensor from_elements(const char* op, const void* values, std::int64_t count, DType dtype, const Shape& shape,
                              SourceLocation where);
}

template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape, SourceLocation where) {
  return detail::from_elements("from_span", values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>, shape,
                               where);
}

/// A vector of T's dtype, or a tensor of `shape`.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, SourceLocation where = SourceLocation::current()) {
  return detail::from_elements("from_vector", values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>,
                               shape, where);
}
template <class T>
Tensor from_vector(const std::vector<T>& values, SourceLocation where = SourceLocation::current()) {
  return from_vector(values, Shape{values.size()}, where);
}

}  // namespace reel
