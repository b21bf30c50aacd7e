#include "reel/ops/create.h"

#include <cmath>
#include <string>

#include "reel/core/fits.h"
#include "reel/core/number_text.h"
#include "reel/ops/check.h"

namespace reel {

namespace {

using detail::new_tensor;

Tensor filled(const char* op, const Shape& shape, Scalar value, TensorOptions options, SourceLocation where) {
  detail::check_fits(op, value, options.dtype, where);
  Tensor y = new_tensor(op, shape, options, where);
  backend(y.device()).fill(y.array(), value);
  detail::ran(op, where, {}, y);
  return y;
}

// 0, 1, ...
Tensor counted(const char* op, std::int64_t count, TensorOptions options, SourceLocation where) {
  if (options.dtype == bool8) throw DTypeError(std::string(op) + ": the dtype must be a number's, got bool8", where);
  if (count > 0) detail::check_fits(op, count - 1, options.dtype, where);
  Tensor y = new_tensor(op, {count}, options, where);
  backend(y.device()).arange(y.array(), 0, 1);
  detail::ran(op, where, {}, y);
  return y;
}

// Of so many random numbers, from the process's generator unless one is given.
PhiloxState place(Generator* generator, std::int64_t count, DType dtype) {
  return generator != nullptr ? generator->take(count, dtype) : detail::take_random(count, dtype);
}

Tensor random(const char* op, RandomOp kind, const Shape& shape, Generator* generator, TensorOptions options,
              SourceLocation where) {
  if (!is_floating(options.dtype) || is_half(options.dtype))
    throw DTypeError(std::string(op) + ": the dtype must be f32 or f64, got " + name_of(options.dtype), where);
  Tensor y = new_tensor(op, shape, options, where);
  backend(y.device()).random(kind, y.array(), place(generator, y.size(), y.dtype()));
  detail::ran(op, where, {}, y);
  return y;
}

Tensor integers(std::int64_t low, std::int64_t high, const Shape& shape, Generator* generator, TensorOptions options,
                SourceLocation where) {
  if (low >= high || static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) > (std::uint64_t{1} << 32))
    throw Error(
        "randint: low must be below high, by at most 2^32, got " + std::to_string(low) + " and " + std::to_string(high),
        where);
  if (is_floating(options.dtype) || options.dtype == bool8)
    throw DTypeError(std::string("randint: the dtype must be an integer's, got ") + name_of(options.dtype), where);
  if ((options.dtype == u8 && (low < 0 || high > 256)) ||
      (options.dtype == i32 && (low < -(std::int64_t{1} << 31) || high > std::int64_t{1} << 31)))
    throw Error(std::string("randint: the numbers must fit ") + name_of(options.dtype) + ", got " +
                    std::to_string(low) + " and " + std::to_string(high),
                where);
  // low + floor(u range), u in [0, 1) of 53 bits: every number's probability is right to 1 part in 2^53 / range. The product
  // never rounds up to the range, which is above it by more than half a step of double.
  const auto range = static_cast<double>(static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low));
  Tensor product = new_tensor("randint", shape, {.dtype = f64, .device = options.device}, where);
  Ops& ops = backend(product.device());
  ops.random(RandomOp::uniform, product.array(), place(generator, product.size(), f64));
  ops.binary(BinaryOp::mul, {.array = &product.array()}, {.scalar = range}, product.array());
  Tensor y = detail::copied(product, i64);
  product = {};
  ops.binary(BinaryOp::add, {.array = &y.array()}, {.scalar = low}, y.array());
  if (options.dtype != i64) y = detail::copied(y, options.dtype);
  detail::ran("randint", where, {}, y);
  return y;
}

// 1 where the uniform number is below p.
Tensor below(const Tensor& uniform, const Operand& p, DType dtype) {
  const Tensor hit = empty(uniform.shape(), {.dtype = bool8, .device = uniform.device()});
  backend(uniform.device()).binary(BinaryOp::less, {.array = &uniform.array()}, p, hit.array());
  return dtype == bool8 ? hit : detail::copied(hit, dtype);
}

Tensor hits(double p, const Shape& shape, Generator* generator, TensorOptions options, SourceLocation where) {
  if (!(p >= 0 && p <= 1)) throw Error("bernoulli: p must be in [0, 1], got " + detail::number_text(p), where);
  const TensorOptions numbers{.dtype = options.dtype == f64 ? f64 : f32, .device = options.device};
  return below(random("bernoulli", RandomOp::uniform, shape, generator, numbers, where), {.scalar = p}, options.dtype);
}

Tensor hits(const Tensor& p, Generator* generator, SourceLocation where) {
  check::floating("bernoulli", "p", p, where);
  const TensorOptions numbers = p.options();
  const Tensor uniform = random("bernoulli", RandomOp::uniform, p.shape(), generator, numbers, where);
  return below(uniform, {.array = &p.array()}, p.dtype());
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, TensorOptions options, SourceLocation where) {
  return filled("full", shape, value, options, where);
}
Tensor zeros(const Shape& shape, TensorOptions options, SourceLocation where) {
  return filled("zeros", shape, 0, options, where);
}
Tensor ones(const Shape& shape, TensorOptions options, SourceLocation where) {
  return filled("ones", shape, 1, options, where);
}

Tensor zeros_like(const Tensor& x, SourceLocation where) {
  check::defined("zeros_like", "x", x, where);
  return filled("zeros_like", x.shape(), 0, x.options(), where);
}
Tensor ones_like(const Tensor& x, SourceLocation where) {
  check::defined("ones_like", "x", x, where);
  return filled("ones_like", x.shape(), 1, x.options(), where);
}
Tensor full_like(const Tensor& x, Scalar value, SourceLocation where) {
  check::defined("full_like", "x", x, where);
  return filled("full_like", x.shape(), value, x.options(), where);
}

Ragged zeros_like(const Ragged& x, SourceLocation where) { return x.with(zeros_like(x.values(), where)); }
Ragged ones_like(const Ragged& x, SourceLocation where) { return x.with(ones_like(x.values(), where)); }
Ragged full_like(const Ragged& x, Scalar value, SourceLocation where) {
  return x.with(full_like(x.values(), value, where));
}

Tensor linspace(double start, double end, std::int64_t count, TensorOptions options, SourceLocation where) {
  if (!is_floating(options.dtype) || is_half(options.dtype))
    throw DTypeError(std::string("linspace: the dtype must be f32 or f64, got ") + name_of(options.dtype), where);
  if (!std::isfinite(start) || !std::isfinite(end))
    throw Error("linspace: start and end must be finite, got " + detail::number_text(start) + " and " +
                    detail::number_text(end),
                where);
  Tensor y = new_tensor("linspace", {count}, {.dtype = f64}, where);
  auto* values = y.array().as<double>();
  const auto gaps = static_cast<double>(count > 1 ? count - 1 : 1);
  const double step = std::isfinite(end - start) ? (end - start) / gaps : end / gaps - start / gaps;
  // From both ends, so that both are exact and the numbers lie evenly about the middle.
  const std::int64_t half = (count + 1) / 2;
  double steps = 0;  // counted along: each conversion would wait for the one before
  for (std::int64_t i = 0; i < half; ++i, ++steps) values[i] = start + step * steps;
  steps = 0;
  for (std::int64_t i = count - 1; i >= half; --i, ++steps) values[i] = end - step * steps;
  return detail::transferred(options.dtype == f64 ? y : detail::copied(y, options.dtype), options.device);
}

Tensor eye(std::int64_t rows, std::int64_t cols, TensorOptions options, SourceLocation where) {
  Tensor y = filled("eye", {rows, cols}, 0, options, where);
  if (y.size() == 0) return y;
  const std::int64_t stride = cols + 1, size = rows < cols ? rows : cols;
  const Tensor diagonal = detail::view(y, 0, {size}, &stride);
  backend(y.device()).fill(diagonal.array(), 1);
  return y;
}

Tensor eye(std::int64_t size, TensorOptions options, SourceLocation where) { return eye(size, size, options, where); }

Tensor arange(std::int64_t count, TensorOptions options, SourceLocation where) {
  return counted("arange", count, options, where);
}

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options, SourceLocation where) {
  if (options.dtype == bool8) throw DTypeError("arange: the dtype must be a number's, got bool8", where);
  if (!is_floating(options.dtype) && !(start.integral && step.integral))
    throw DTypeError(std::string("arange: start and step must be integers for ") + name_of(options.dtype) + ", got " +
                         detail::number_text(start.real) + " and " + detail::number_text(step.real),
                     where);
  const bool whole = start.integral && end.integral && step.integral;
  double count = std::ceil((end.real - start.real) / step.real);
  bool away = step.real < 0 ? end.real > start.real : end.real < start.real;
  if (whole && step.integer != 0 && std::abs(end.real - start.real) < 0x1p62) {  // beyond 2^53 doubles are too coarse
    const std::int64_t gap = end.integer - start.integer, rest = gap % step.integer;
    count = static_cast<double>(gap / step.integer + (rest != 0 && (rest < 0) == (step.integer < 0)));
    away = gap != 0 && (gap < 0) != (step.integer < 0);
  }
  const auto refuse = [&](const char* reason) {
    throw Error(std::string("arange: ") + reason + ", got start " + detail::number_text(start.real) + ", end " +
                    detail::number_text(end.real) + " and step " + detail::number_text(step.real),
                where);
  };
  if (away || !(count >= 0)) refuse("step must lead from start towards end");
  if (!(count < 0x1p62)) refuse("there must be fewer than 2^62 numbers");
  if (count > 0) {
    const auto steps = static_cast<std::int64_t>(count) - 1;
    detail::check_fits("arange", start, options.dtype, where);
    detail::check_fits("arange",
                       whole ? Scalar(start.integer + steps * step.integer) : start.real + step.real * (count - 1),
                       options.dtype, where);
  }
  Tensor y = new_tensor("arange", {static_cast<std::int64_t>(count)}, options, where);
  backend(y.device()).arange(y.array(), start, step);
  detail::ran("arange", where, {}, y);
  return y;
}

Tensor rand(const Shape& shape, TensorOptions options, SourceLocation where) {
  return random("rand", RandomOp::uniform, shape, nullptr, options, where);
}
Tensor rand(const Shape& shape, Generator& generator, TensorOptions options, SourceLocation where) {
  return random("rand", RandomOp::uniform, shape, &generator, options, where);
}
Tensor randn(const Shape& shape, TensorOptions options, SourceLocation where) {
  return random("randn", RandomOp::normal, shape, nullptr, options, where);
}
Tensor randn(const Shape& shape, Generator& generator, TensorOptions options, SourceLocation where) {
  return random("randn", RandomOp::normal, shape, &generator, options, where);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options, SourceLocation where) {
  return integers(low, high, shape, nullptr, options, where);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Generator& generator, TensorOptions options,
               SourceLocation where) {
  return integers(low, high, shape, &generator, options, where);
}

Tensor bernoulli(double p, const Shape& shape, TensorOptions options, SourceLocation where) {
  return hits(p, shape, nullptr, options, where);
}
Tensor bernoulli(double p, const Shape& shape, Generator& generator, TensorOptions options, SourceLocation where) {
  return hits(p, shape, &generator, options, where);
}
Tensor bernoulli(const Tensor& p, SourceLocation where) { return hits(p, nullptr, where); }
Tensor bernoulli(const Tensor& p, Generator& generator, SourceLocation where) { return hits(p, &generator, where); }

Tensor permutation(std::int64_t count, Generator& generator, SourceLocation where) {
  Tensor y = counted("permutation", count, {.dtype = i64}, where);
  auto* values = y.array().as<std::int64_t>();
  for (std::int64_t i = count - 1; i > 0; --i) {  // Fisher and Yates
    const std::int64_t j = generator.below(i + 1);
    const std::int64_t kept = values[i];
    values[i] = values[j];
    values[j] = kept;
  }
  return y;
}
Tensor permutation(std::int64_t count, SourceLocation where) {
  // A block for each number: that one is refused and another is drawn happens once in 2^64 / count.
  Generator generator(detail::take_random(count > 1 ? 4 * (count - 1) : 0, f32));
  return permutation(count, generator, where);
}

Tensor tensor(std::initializer_list<double> values, const Shape& shape, TensorOptions options, SourceLocation where) {
  const Tensor y =
      detail::from_elements("tensor", values.begin(), static_cast<std::int64_t>(values.size()), f64, shape, where);
  for (const double value : values) detail::check_fits("tensor", value, options.dtype, where);
  return detail::transferred(options.dtype == f64 ? y : detail::copied(y, options.dtype), options.device);
}

Tensor tensor(std::initializer_list<double> values, TensorOptions options, SourceLocation where) {
  return tensor(values, {values.size()}, options, where);
}

namespace detail {

Tensor from_elements(const char* op, const void* values, std::int64_t count, DType dtype, const Shape& shape,
                     SourceLocation where) {
  const std::int64_t size = check::elements(op, shape, where);
  if (size != count)
    throw ShapeError(std::string(op) + ": shape " + shape.str() + " has " + std::to_string(size) + " elements, got " +
                         std::to_string(count) + " values",
                     where);
  Tensor y = new_tensor(op, shape, {.dtype = dtype}, where);
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  if (count > 0) backend(y.device()).from_host(values, y.array().data, bytes);
  return y;
}

}  // namespace detail

}  // namespace reel
