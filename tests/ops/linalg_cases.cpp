#include "reel/ops/linalg.h"

#include <cmath>
#include <numeric>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Real = long double;

// One matrix, in more digits than the kernels have.
struct Matrix {
  std::int64_t rows, cols;
  std::vector<Real> v;
  Matrix(std::int64_t m, std::int64_t n) : rows(m), cols(n), v(static_cast<std::size_t>(m * n)) {}
  Real& at(std::int64_t i, std::int64_t j) { return v[static_cast<std::size_t>(i * cols + j)]; }
};

Matrix matrix_of(const Ref& x, std::int64_t batch) {
  const int r = x.shape.rank();
  Matrix m(x.shape[r - 2], x.shape[r - 1]);
  const auto size = static_cast<std::size_t>(m.rows * m.cols);
  const std::size_t first = static_cast<std::size_t>(batch) * size;
  for (std::size_t i = 0; i < size; ++i) m.v[i] = x.v[first + i];
  return m;
}

// f(matrix number) for a whole batch, one after the other.
template <class F>
Ref batched(const Shape& shape, std::int64_t batch, F&& f) {
  Ref y{shape, {}};
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::vector<Real> part = f(i);
    y.v.insert(y.v.end(), part.begin(), part.end());
  }
  return y;
}

std::vector<Real> cholesky_of(Matrix a) {
  Matrix l(a.rows, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      Real sum = a.at(i, j);
      for (std::int64_t k = 0; k < j; ++k) sum -= l.at(i, k) * l.at(j, k);
      l.at(i, j) = i == j ? std::sqrt(sum) : sum / l.at(j, j);
    }
  return l.v;
}

struct Eliminated {
  Matrix x;
  Real sign = 1, logdet = 0;
};

// Gauss' elimination with row pivots turns a x = b into x.
Eliminated eliminated(Matrix a, Matrix b) {
  Eliminated y{b};
  const std::int64_t n = a.rows;
  for (std::int64_t c = 0; c < n; ++c) {
    std::int64_t best = c;
    for (std::int64_t r = c; r < n; ++r)
      if (std::abs(a.at(r, c)) > std::abs(a.at(best, c))) best = r;
    if (best != c) y.sign = -y.sign;
    for (std::int64_t j = 0; j < n; ++j) std::swap(a.at(c, j), a.at(best, j));
    for (std::int64_t j = 0; j < b.cols; ++j) std::swap(y.x.at(c, j), y.x.at(best, j));
    const Real pivot = a.at(c, c);
    y.sign *= pivot < 0 ? -1 : 1;
    y.logdet += std::log(std::abs(pivot));
    for (std::int64_t r = 0; r < n; ++r) {
      const Real factor = r == c ? 0 : a.at(r, c) / pivot;
      for (std::int64_t j = c; j < n; ++j) a.at(r, j) -= factor * a.at(c, j);
      for (std::int64_t j = 0; j < b.cols; ++j) y.x.at(r, j) -= factor * y.x.at(c, j);
    }
    for (std::int64_t j = 0; j < n; ++j) a.at(c, j) /= pivot;
    for (std::int64_t j = 0; j < b.cols; ++j) y.x.at(c, j) /= pivot;
  }
  return y;
}

Matrix identity(std::int64_t n) {
  Matrix one(n, n);
  for (std::int64_t i = 0; i < n; ++i) one.at(i, i) = 1;
  return one;
}

// A few matrices of several blocks, or many small ones.
Shape matrices(Size size, bool many) {
  switch (size) {
    case Size::small:
      return {3, 4, 4};
    case Size::odd:
      return {2, 33, 33};
    case Size::empty:
      return {0, 4, 4};
    case Size::one:
      return {1, 1, 1};
    case Size::large:
      break;
  }
  return many ? Shape{1025, 6, 6} : Shape{3, 129, 129};
}

// Random with a heavy diagonal: well conditioned, and positive definite once it is made symmetric.
Tensor heavy(Maker& make, const Shape& shape, double off_diagonal = 1) {
  const std::int64_t n = shape.back();
  return make.uniform(shape, -off_diagonal, off_diagonal) +
         eye(n, {.dtype = make.dtype()}) * std::max(1.5, off_diagonal * static_cast<double>(n));
}

Tensor symmetric(const Tensor& a) { return 0.5 * (a + transpose(a)); }

OpCase on_matrices(const std::string& name, bool many, Tensor (*prepare)(const Tensor&)) {
  return {.name = name + (many ? "/many" : ""),
          .inputs =
              [=](Maker& make, Size size) {
                const Tensor a = heavy(make, matrices(size, many));
                return Tensors{prepare == nullptr ? a : prepare(a)};
              },
          .call = {},
          .reference = {},
          .tolerance = 60};
}

OpCase cholesky_row(bool many) {
  OpCase row = on_matrices("cholesky", many, symmetric);
  // Made symmetric once more, for differences move one side alone.
  row.call = [](const Tensors& in) { return cholesky(symmetric(in[0])); };
  row.reference = [](const std::vector<Ref>& in) {
    return batched(in[0].shape, in[0].shape[0], [&](std::int64_t i) { return cholesky_of(matrix_of(in[0], i)); });
  };
  row.bad = {{[] {
                cholesky(ones({2, 3}));
              },
              {"cholesky", "a must have shape [..., n, n], got [2, 3]", "cases.cpp"}},
             {[] { cholesky(arange(4)); }, {"cholesky", "a must be f32 or f64, got i64"}},
             {[] { cholesky(0 - eye(3)); }, {"positive definite, got a matrix whose leading minor of order 1"}},
             {[] {
                cholesky(stack({stack({eye(2), eye(2)}), stack({tensor({1, 2, 2, 1}, {2, 2}), eye(2)})}));
              },
              {"cholesky", "matrix [1, 0] whose leading minor of order 2"}}};
  return row;
}

OpCase inverse_row(bool many) {
  OpCase row = on_matrices("inverse", many, nullptr);
  row.call = [](const Tensors& in) { return inverse(in[0]); };
  row.reference = [](const std::vector<Ref>& in) {
    const std::int64_t n = in[0].shape[2];
    return batched(in[0].shape, in[0].shape[0],
                   [&](std::int64_t i) { return eliminated(matrix_of(in[0], i), identity(n)).x.v; });
  };
  row.bad = {{[] { inverse(ones({3})); }, {"inverse", "a must have shape [..., n, n], got [3]", "cases.cpp"}},
             {[] {
                inverse(stack({eye(3), ones({3, 3})}));
              },
              {"inverse", "a must be invertible, got matrix [1] that is singular"}},
             {[] {
                inverse(zeros({2, 2}));
              },
              {"got a matrix that is singular"}}};
  return row;
}

// The first row turned round: a negative determinant.
Tensor negated_row(const Tensor& a) {
  const std::int64_t n = a.shape().back();
  const Tensor side = cast(unsqueeze(1 - 2 * cast(arange(n) == 0, i64), 1), a.dtype());
  return a * side;
}

OpCase logdet_row(bool sign) {
  OpCase row = on_matrices(sign ? "slogdet" : "logdet", false, sign ? negated_row : nullptr);
  row.call = [sign](const Tensors& in) { return sign ? slogdet(in[0]).logdet : logdet(in[0]); };
  row.reference = [](const std::vector<Ref>& in) {
    const std::int64_t n = in[0].shape[2];
    return batched({in[0].shape[0]}, in[0].shape[0], [&](std::int64_t i) {
      return std::vector<Real>{eliminated(matrix_of(in[0], i), Matrix(n, 1)).logdet};
    });
  };
  const std::string name = sign ? "slogdet" : "logdet";
  row.bad = {{[sign] {
                sign ? slogdet(ones({2, 3})).sign : logdet(ones({2, 3}));
              },
              {name + ": a must have shape [..., n, n]", "cases.cpp"}}};
  return row;
}

Matrix form_of(Matrix a, TriangularSolveOptions options) {
  Matrix y(a.rows, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.rows; ++j) {
      const bool read = options.upper ? j >= i : j <= i;
      const Real value = i == j && options.unit_diagonal ? 1 : read ? a.at(i, j) : 0;
      (options.transpose ? y.at(j, i) : y.at(i, j)) = value;
    }
  return y;
}

// One matrix for all right sides, which are the batch.
OpCase triangular_row(const std::string& variant, TriangularSolveOptions options) {
  return {.name = "triangular_solve" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Shape shape = matrices(size, false);
                const Tensor b = make.uniform({shape[0], shape[1], 5}, -1, 1);
                return Tensors{b, heavy(make, {shape[1], shape[1]}, 0.2)};
              },
          .call = [options](const Tensors& in) { return triangular_solve(in[1], in[0], options); },
          .reference =
              [options](const std::vector<Ref>& in) {
                return batched(in[0].shape, in[0].shape[0], [&](std::int64_t i) {
                  return eliminated(form_of(matrix_of(in[1], 0), options), matrix_of(in[0], i)).x.v;
                });
              },
          .differentiable = {0, 1},
          .tolerance = 100,
          .bad = {{[] {
                     triangular_solve(ones({3, 2}), ones({3, 2}));
                   },
                   {"triangular_solve", "a must have shape [..., n, n]", "cases.cpp"}},
                  {[] {
                     triangular_solve(eye(3), ones({2, 3}));
                   },
                   {"triangular_solve", "b must have shape [..., 3, k]", "got [2, 3]"}},
                  {[] {
                     triangular_solve(eye(3), ones({3, 3}, {.dtype = f64}));
                   },
                   {"triangular_solve", "b must be f32 like a, got f64"}},
                  {[] {
                     triangular_solve(ones({2, 3, 3}), ones({4, 3, 3}));
                   },
                   {"triangular_solve", "the axes before the last two must", "got [2, 3, 3] and [4, 3, 3]"}}}};
}

OpCase solve_row(const std::string& variant, bool vector, bool one_matrix = false) {
  return {.name = "solve" + variant,
          .inputs =
              [=](Maker& make, Size size) {
                const Shape shape = matrices(size, false);
                if (one_matrix)
                  return Tensors{heavy(make, {1, shape[1], shape[1]}), make.uniform({shape[0], shape[1], 3})};
                const Tensor a = heavy(make, shape);
                return Tensors{a, vector ? make.uniform({shape[1]}) : make.uniform({shape[1], 3})};
              },
          .call = [](const Tensors& in) { return solve(in[0], in[1]); },
          .reference =
              [=](const std::vector<Ref>& in) {
                const std::int64_t batch = in[one_matrix ? 1 : 0].shape[0], n = in[0].shape[1];
                Ref b = in[1];
                if (vector) b.shape.push_back(1);
                Shape shape{batch, n};
                if (!vector) shape.push_back(3);
                return batched(shape, batch, [&](std::int64_t i) {
                  return eliminated(matrix_of(in[0], one_matrix ? 0 : i), matrix_of(b, one_matrix ? i : 0)).x.v;
                });
              },
          .differentiable = {0, 1},
          .tolerance = 20,
          .bad = {{[] {
                     solve(eye(3), ones({2, 1}));
                   },
                   {"solve", "b must have shape [..., 3, k]", "cases.cpp"}},
                  {[] {
                     solve(ones({2, 2}), ones({2}));
                   },
                   {"solve", "a must be invertible, got a matrix that is singular"}}}};
}

}  // namespace

std::vector<OpCase> linalg_cases() {
  return {cholesky_row(false),
          cholesky_row(true),
          inverse_row(false),
          inverse_row(true),
          logdet_row(false),
          logdet_row(true),
          triangular_row("", {}),
          triangular_row("/upper", {.upper = true}),
          triangular_row("/transpose", {.transpose = true}),
          triangular_row("/upper_transpose", {.upper = true, .transpose = true}),
          triangular_row("/unit", {.unit_diagonal = true}),
          triangular_row("/upper_transpose_unit", {.upper = true, .transpose = true, .unit_diagonal = true}),
          solve_row("", false),
          solve_row("/vector", true),
          solve_row("/one_matrix", false, true)};
}

}  // namespace reel::test
