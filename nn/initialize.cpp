#include "reel/nn/initialize.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/number_text.h"
#include "reel/core/tape.h"
#include "reel/nn/layer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"

namespace reel::nn::init {

namespace {

// What each of them begins with.
void begin(const char* call, const Parameter& parameter, SourceLocation where) {
  reel::detail::now_running(call, where);
  if (!parameter.defined()) reel::detail::refuse_undefined(call, "parameter", where);
}

void require(bool good, const char* call, const char* what, std::initializer_list<double> got, SourceLocation where) {
  std::string text;
  for (const double number : got) text += (text.empty() ? "" : " and ") + reel::detail::number_text(number);
  detail::require(good, call, what, text, where);
}

void write(const char* call, const Parameter& parameter, const Tensor& value, SourceLocation where) {
  reel::detail::overwrite(call, parameter.state()->value, value, where);
}

void fill(const char* call, const Parameter& parameter, double value, SourceLocation where) {
  begin(call, parameter, where);
  write(call, parameter, full(parameter.shape(), value, parameter.options()), where);
}

// Uniform in [0, 1) or normal numbers, times `scale`, plus `shift`.
using Numbers = Tensor (Source::*)(const Shape&, TensorOptions) const;
void draw(const char* call, const Parameter& parameter, Numbers numbers, double scale, double shift, Source source,
          SourceLocation where) {
  untaped([&] {
    write(call, parameter, (source.*numbers)(parameter.shape(), parameter.options()) * scale + shift, where);
  });
}

struct Fans {
  double in, out;
};

Fans fans_of(const char* call, const Parameter& weight, SourceLocation where) {
  begin(call, weight, where);
  const Shape& shape = weight.shape();
  if (shape.rank() < 2)
    throw ShapeError(std::string(call) + ": a weight must have shape [out, in, ...], got " + shape.str(), where);
  double kernel = 1;
  for (int i = 2; i < shape.rank(); ++i) kernel *= static_cast<double>(shape[i]);
  return {static_cast<double>(shape[1]) * kernel, static_cast<double>(shape[0]) * kernel};
}

// A uniform distribution within b has variance b^2 / 3.
void uniform_of_variance(const char* call, const Parameter& weight, double variance, Source source,
                         SourceLocation where) {
  const double bound = std::sqrt(3 * variance);
  draw(call, weight, &Source::uniform, 2 * bound, -bound, source, where);
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Gram and Schmidt, each row twice, which is enough for orthogonality to rounding (Giraud et al. 2005). Norms are positive,
// so that rows of normal numbers become uniformly distributed.
void orthonormalise(std::vector<double>& rows, std::int64_t count, std::int64_t width) {
  for (std::int64_t i = 0; i < count; ++i) {
    double* row = rows.data() + i * width;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double* other = rows.data() + j * width;
        const double along = dot(row, other, width);
        for (std::int64_t k = 0; k < width; ++k) row[k] -= along * other[k];
      }
      const double norm = std::sqrt(dot(row, row, width));
      for (std::int64_t k = 0; k < width; ++k) row[k] /= norm;
    }
  }
}

}  // namespace

Tensor Source::uniform(const Shape& shape, TensorOptions options) const {
  return generator_ != nullptr ? rand(shape, *generator_, options) : rand(shape, options);
}
Tensor Source::normal(const Shape& shape, TensorOptions options) const {
  return generator_ != nullptr ? randn(shape, *generator_, options) : randn(shape, options);
}

void zeros(Parameter parameter, SourceLocation where) { fill("init::zeros", parameter, 0, where); }

void constant(Parameter parameter, double value, SourceLocation where) {
  fill("init::constant", parameter, value, where);
}

void uniform(Parameter parameter, double low, double high, Source source, SourceLocation where) {
  begin("init::uniform", parameter, where);
  require(low <= high && std::isfinite(high - low), "init::uniform", "low <= high, both finite,", {low, high}, where);
  draw("init::uniform", parameter, &Source::uniform, high - low, low, source, where);
}

void normal(Parameter parameter, double mean, double deviation, Source source, SourceLocation where) {
  begin("init::normal", parameter, where);
  require(std::isfinite(mean) && deviation >= 0 && std::isfinite(deviation), "init::normal",
          "a finite mean and a finite deviation >= 0", {mean, deviation}, where);
  draw("init::normal", parameter, &Source::normal, deviation, mean, source, where);
}

void lecun_uniform(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::lecun_uniform", weight, where);
  uniform_of_variance("init::lecun_uniform", weight, 1 / fans.in, source, where);
}
void lecun_normal(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::lecun_normal", weight, where);
  draw("init::lecun_normal", weight, &Source::normal, std::sqrt(1 / fans.in), 0, source, where);
}

void he_uniform(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::he_uniform", weight, where);
  uniform_of_variance("init::he_uniform", weight, 2 / fans.in, source, where);
}
void he_normal(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::he_normal", weight, where);
  draw("init::he_normal", weight, &Source::normal, std::sqrt(2 / fans.in), 0, source, where);
}

void glorot_uniform(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::glorot_uniform", weight, where);
  uniform_of_variance("init::glorot_uniform", weight, 2 / (fans.in + fans.out), source, where);
}
void glorot_normal(Parameter weight, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::glorot_normal", weight, where);
  draw("init::glorot_normal", weight, &Source::normal, std::sqrt(2 / (fans.in + fans.out)), 0, source, where);
}

void kaiming_uniform(Parameter weight, double a, Source source, SourceLocation where) {
  const Fans fans = fans_of("init::kaiming_uniform", weight, where);
  require(std::isfinite(a), "init::kaiming_uniform", "a finite a", {a}, where);
  uniform_of_variance("init::kaiming_uniform", weight, 2 / ((1 + a * a) * fans.in), source, where);
}

void orthogonal(Parameter weight, double gain, Source source, SourceLocation where) {
  fans_of("init::orthogonal", weight, where);  // checks the rank
  require(std::isfinite(gain), "init::orthogonal", "a finite gain", {gain}, where);
  const Shape shape = weight.shape();
  const std::int64_t out = shape[0], in = out == 0 ? 0 : shape.size() / out;
  const bool wide = out <= in;
  const std::int64_t count = wide ? out : in, width = wide ? in : out;
  std::vector<double> rows = source.normal({count, width}, {.dtype = f64}).to_vector<double>();
  orthonormalise(rows, count, width);

  std::vector<double> values(rows.size());
  for (std::int64_t i = 0; i < out; ++i)
    for (std::int64_t j = 0; j < in; ++j) values[i * in + j] = gain * rows[wide ? i * width + j : j * width + i];
  write("init::orthogonal", weight, from_vector(values, shape), where);
}

double layer_bound(const Parameter& weight, SourceLocation where) {
  return 1 / std::sqrt(fans_of("init::layer_bound", weight, where).in);
}

}  // namespace reel::nn::init
