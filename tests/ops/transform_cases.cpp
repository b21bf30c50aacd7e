#include "reel/ops/transforms.h"

#include <cmath>
#include <numbers>

#include "reel/ops/create.h"
#include "reel/ops/distributions.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

namespace d = distributions;
namespace t = transforms;
using Real = long double;
using std::log;

using Vector = std::vector<Real>;

// A transform of vectors (or of elements, as vectors of one) from its definition.
struct Definition {
  Vector y;
  Real log_det = 0;
};

Real sigmoid_of(Real x) { return 1 / (1 + std::exp(-x)); }

Definition ordered_of(const Vector& x) {
  Definition result{{x[0]}};
  for (std::size_t i = 1; i < x.size(); ++i) {
    result.y.push_back(result.y.back() + std::exp(x[i]));
    result.log_det += x[i];
  }
  return result;
}

Definition simplex_of(const Vector& x) {
  Definition result;
  Real rest = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real share = sigmoid_of(x[i] - log(static_cast<Real>(x.size() - i)));
    result.y.push_back(share * rest);
    result.log_det += log(share * (1 - share) * rest);
    rest *= 1 - share;
  }
  result.y.push_back(rest);
  return result;
}

Definition correlation_of(const Vector& x) {
  std::size_t size = 1, next = 0;
  while (size * (size - 1) / 2 < x.size()) ++size;
  Definition result{Vector(size * size)};
  for (std::size_t i = 0; i < size; ++i) {
    Real squares = 0;
    for (std::size_t j = 0; j < i; ++j) {
      const Real z = std::tanh(x[next++]), left = 1 - squares;
      result.y[i * size + j] = z * std::sqrt(left);
      result.log_det += log(left) / 2 + log(1 - z * z);
      squares += z * z * left;
    }
    result.y[i * size + i] = std::sqrt(1 - squares);
  }
  return result;
}

// The density beside a concentration that is a number, of factors l of 4 rows from 6 free numbers each.
OpCase lkj_row() {
  constexpr double kConcentration = 1.5;
  constexpr int kDim = 4;
  return {.name = "lkj_cholesky/number",
          .inputs =
              [](Maker& make, Size size) {
                return Tensors{make.uniform({extent_of(size).rows, kDim * (kDim - 1) / 2}, -1.5, 1.5)};
              },
          .call =
              [](const Tensors& in) {
                return d::LKJCholesky(kDim, kConcentration).log_prob(t::CorrelationCholesky().forward(in[0]));
              },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[0].shape[0]}, [&](const auto& r) {
                  Vector x;
                  for (std::int64_t k = 0; k < in[0].shape[1]; ++k) x.push_back(at(in[0], {r[0], k}));
                  const Vector l = correlation_of(x).y;
                  Real total = 0;
                  for (int i = 1; i < kDim; ++i) {
                    const Real half = Real(i) / 2, b = kConcentration + Real(kDim - 1 - i) / 2;
                    total += std::lgamma(b + half) - std::lgamma(b) - half * log(std::numbers::pi_v<Real>) +
                             (2 * b - 2) * log(l[static_cast<std::size_t>(i * kDim + i)]);
                  }
                  return static_cast<double>(total);
                });
              },
          .tolerance = 200,
          .bad = {{[] { d::LKJCholesky(0, 1); }, {"LKJCholesky: dim must be at least 1, got 0", "cases.cpp"}},
                  {[] { d::LKJCholesky(2, arange(3)); }, {"LKJCholesky: concentration must be f32 or f64, got i64"}},
                  {[] {
                     d::LKJCholesky(3, 1).log_prob(ones({2, 2}));
                   },
                   {"LKJCholesky: value must have shape [..., 3, 3]", "got [2, 2]", "cases.cpp"}}}};
}

// Rows of so many elements.
std::int64_t width_of(Size size, bool triangle) {
  const std::int64_t cols = extent_of(size).cols;
  if (!triangle) return cols;
  return size == Size::large ? 36 : size == Size::odd ? 28 : size == Size::one ? 1 : 6;
}

template <class Transform>
std::vector<OpCase> vector_rows(const std::string& name, Transform transform, Definition (*define)(const Vector&),
                                bool triangle, const std::vector<BadCall>& bad) {
  const auto inputs = [=](Maker& make, Size size) {
    return Tensors{make.uniform({extent_of(size).rows, width_of(size, triangle)}, -1.5, 1.5)};
  };
  const auto reference = [=](const std::vector<Ref>& in, bool log_det) {
    const std::int64_t rows = in[0].shape[0], cols = in[0].shape[1];
    const std::int64_t width = static_cast<std::int64_t>(define(Vector(static_cast<std::size_t>(cols))).y.size());
    std::int64_t side = 1;
    while (side * side < width) ++side;
    Ref y{log_det ? Shape{rows} : triangle ? Shape{rows, side, side} : Shape{rows, width}, {}};
    for (std::int64_t r = 0; r < rows; ++r) {
      const Definition row = define(Vector(in[0].v.begin() + r * cols, in[0].v.begin() + (r + 1) * cols));
      if (log_det) y.v.push_back(static_cast<double>(row.log_det));
      else y.v.insert(y.v.end(), row.y.begin(), row.y.end());
    }
    return y;
  };
  OpCase forward{.name = name,
                 .inputs = inputs,
                 .call = [=](const Tensors& in) { return transform.forward(in[0]); },
                 .reference = [=](const std::vector<Ref>& in) { return reference(in, false); },
                 .tolerance = 200,
                 .bad = bad};
  OpCase determinant = forward, inverse = forward;
  determinant.name += "/log_det";
  determinant.call = [=](const Tensors& in) { return transform.log_abs_det_jacobian(in[0]); };
  determinant.reference = [=](const std::vector<Ref>& in) { return reference(in, true); };
  inverse.name += "/inverse";
  inverse.call = [=](const Tensors& in) { return transform.inverse(transform.forward(in[0])); };
  inverse.reference = [](const std::vector<Ref>& in) { return in[0]; };
  inverse.tolerance = 20000;  // of small differences of numbers near 1
  if (!triangle) inverse.skip = {Size::large};
  determinant.bad = inverse.bad = {};
  return {forward, determinant, inverse};
}

template <class Transform>
std::vector<OpCase> element_rows(const std::string& name, Transform transform, Real (*f)(Real), Real (*log_slope)(Real),
                                 const std::vector<BadCall>& bad) {
  OpCase forward{.name = name,
                 .inputs =
                     [](Maker& make, Size size) {
                       const Extent n = extent_of(size);
                       return Tensors{make.uniform({n.rows, n.cols}, -3, 3)};
                     },
                 .call = [=](const Tensors& in) { return transform.forward(in[0]); },
                 .reference =
                     [=](const std::vector<Ref>& in) {
                       Ref y = in[0];
                       for (double& v : y.v) v = static_cast<double>(f(v));
                       return y;
                     },
                 .bad = bad};
  OpCase determinant = forward, inverse = forward;
  determinant.name += "/log_det";
  determinant.call = [=](const Tensors& in) { return transform.log_abs_det_jacobian(in[0]); };
  determinant.reference = [=](const std::vector<Ref>& in) {
    Ref y = in[0];
    for (double& v : y.v) v = static_cast<double>(log_slope(v));
    return y;
  };
  inverse.name += "/inverse";
  inverse.call = [=](const Tensors& in) { return transform.inverse(transform.forward(in[0])); };
  inverse.reference = [](const std::vector<Ref>& in) { return in[0]; };
  inverse.tolerance = 100;
  determinant.bad = inverse.bad = {};
  return {forward, determinant, inverse};
}

}  // namespace

std::vector<OpCase> transform_cases() {
  std::vector<OpCase> rows{lkj_row()};
  const auto append = [&](const std::vector<OpCase>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  append(element_rows(
      "exp_transform", t::Exp(), [](Real x) { return std::exp(x); }, [](Real x) { return x; },
      {{[] { t::Exp().forward(Tensor()); }, {"exp: x must be defined", "cases.cpp"}},
       {[] { t::Exp().log_abs_det_jacobian(arange(3)); }, {"Exp: x must be f32 or f64, got i64", "cases.cpp"}}}));
  append(element_rows(
      "affine_transform", t::Affine(0.5, -3), [](Real x) { return 0.5L - 3 * x; },
      [](Real) { return std::log(Real(3)); },
      {{[] { t::Affine(arange(3), 1); }, {"Affine: loc must be f32 or f64, got i64", "cases.cpp"}},
       {[] { t::Affine(ones({2}), 1).forward(ones({3})); },
        {"Affine: shapes must be equal or broadcast, got [3], [2] and []"}},
       {[] { t::Affine(0, ones({2})).log_abs_det_jacobian(arange(3)); }, {"Affine: x must be f32 or f64, got i64"}}}));
  append(element_rows(
      "interval_transform", t::Interval(-1, 3), [](Real x) { return -1 + 4 * sigmoid_of(x); },
      [](Real x) { return log(4 * sigmoid_of(x) * sigmoid_of(-x)); },
      {{[] { t::Interval(2, 2); }, {"Interval: low must be below high", "cases.cpp"}},
       {[] { t::Interval(2, INFINITY); }, {"both finite"}}}));
  append(vector_rows("ordered_transform", t::Ordered(), ordered_of, false,
                     {{[] { t::Ordered().forward(ones({})); }, {"Ordered: vectors", "got shape []", "cases.cpp"}}}));
  append(vector_rows("simplex_transform", t::Simplex(), simplex_of, false,
                     {{[] {
                         t::Simplex().inverse(ones({2, 0}));
                       },
                       {"Simplex: vectors", "at least 1", "cases.cpp"}}}));
  append(vector_rows("correlation_cholesky_transform", t::CorrelationCholesky(), correlation_of, true,
                     {{[] { t::CorrelationCholesky().forward(ones({4})); }, {"d (d - 1) / 2], got [4]", "cases.cpp"}},
                      {[] { t::CorrelationCholesky().inverse(ones({4})); }, {"y must have shape [..., d, d]"}}}));
  return rows;
}

}  // namespace reel::test
