#include "reel/ops/matmul.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/matrices.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::batch_of;
using detail::Gradients;
using detail::record_op;
using detail::taping;
using detail::with_matrix;

// The matrices in the last two axes of a tensor, as gemm wants them: rows without gaps inside, or columns (transposed).
struct Matrices {
  Tensor tensor;
  bool transposed = false;
  std::int64_t leading = 0;  // elements from row to row as stored

  explicit Matrices(const Tensor& x) : tensor(x) {
    const int r = x.rank();
    const std::int64_t rows = x.shape()[r - 2], cols = x.shape()[r - 1];
    const auto is_plain = [&](std::int64_t along, std::int64_t across, std::int64_t n) {
      return (along == 1 || n <= 1) && across >= n;
    };
    if (is_plain(x.stride(r - 1), x.stride(r - 2), cols) || rows == 1) {
      leading = rows == 1 ? cols : x.stride(r - 2);
      if (rows == 1 && cols > 1 && x.stride(r - 1) != 1) pack();
    } else if (is_plain(x.stride(r - 2), x.stride(r - 1), rows)) {
      transposed = true;
      leading = x.stride(r - 1);
    } else {
      pack();
    }
  }
  void pack() {
    tensor = detail::packed(tensor);
    transposed = false;
    leading = tensor.shape()[tensor.rank() - 1];
  }
};

// One stride from matrix to matrix over the batch `axes`, if there is one: all equal (0 for a tensor without batch).
bool uniform_stride(const Tensor& x, const Shape& batch, std::int64_t& stride) {
  const Shape own = batch_of(x.shape());
  if (own.size() == 1) {
    stride = 0;
    return true;
  }
  if (!(own == batch)) return false;
  std::int64_t expected = x.stride(own.rank() - 1);
  stride = expected;
  for (int i = own.rank() - 1; i >= 0; --i) {
    if (own[i] != 1 && x.stride(i) != expected) return false;
    expected = own[i] == 1 ? expected : expected * own[i];
  }
  return own.back() != 1;
}

Tensor batched(const Tensor& x, const Shape& batch, std::int64_t& stride) {
  if (uniform_stride(x, batch, stride)) return x;
  const int r = x.rank();
  const std::int64_t rows = x.shape()[r - 2], cols = x.shape()[r - 1];
  Tensor full = detail::copied(detail::broadcast_view(x, with_matrix(batch, rows, cols)), x.dtype());
  stride = rows * cols;
  return full;
}

// The product of two tensors of rank >= 2; unrecorded. Shapes are right.
Tensor multiplied(const Tensor& a, const Tensor& b, const Shape& batch) {
  const std::int64_t m = a.shape()[a.rank() - 2], k = a.shape()[a.rank() - 1], n = b.shape()[b.rank() - 1];
  Tensor c = empty(with_matrix(batch, m, n), a.options());
  Gemm gemm{.m = m, .n = n, .k = k, .batch = batch.size(), .dtype = a.dtype()};
  Matrices left(a), right(b);
  left.tensor = batched(left.tensor, batch, gemm.stride_a);
  right.tensor = batched(right.tensor, batch, gemm.stride_b);
  left = Matrices(left.tensor);
  right = Matrices(right.tensor);
  gemm.trans_a = left.transposed;
  gemm.trans_b = right.transposed;
  gemm.a = left.tensor.array().data;
  gemm.b = right.tensor.array().data;
  gemm.c = c.array().data;
  gemm.lda = left.leading;
  gemm.ldb = right.leading;
  gemm.ldc = n;
  gemm.stride_c = m * n;
  // One weight for a whole batch of rows is one larger product; rows do not depend on each other.
  if (gemm.batch > 1 && gemm.stride_b == 0 && !gemm.trans_a && gemm.stride_a == m * gemm.lda) {
    gemm.m *= gemm.batch;
    gemm.batch = 1;
  }
  backend(c.device()).gemm(gemm);
  return c;
}

// What the user gave, whose axes may have been added to or exchanged since.
struct Given {
  const Tensor &a, &b;
  MatmulOptions options = {};

  [[noreturn]] void refuse(const char* required, SourceLocation where) const {
    const auto text = [](const Tensor& x, bool transposed) {
      return x.shape().str() + (transposed ? " transposed" : "");
    };
    throw ShapeError(std::string("matmul: ") + required + ", got shapes " + text(a, options.transpose_a) + " and " +
                         text(b, options.transpose_b),
                     where);
  }
};

// The matrices of x, below each other.
[[gnu::cold]] Tensor stacked(const Tensor& x) {
  const std::int64_t cols = x.shape().back();
  return reshape(x, {x.size() / cols, cols});
}

// The same, side by side; x has `count` of them.
[[gnu::cold]] Tensor side_by_side(const Tensor& x, std::int64_t count) {
  const std::int64_t rows = x.shape()[x.rank() - 2], cols = x.shape().back();
  return reshape(transpose(reshape(x, {count, rows, cols}), 0, 1), {rows, count * cols});
}

// The gradient of a matrix that a whole batch shares is one product, with the batch along its inner axis: for b's no copies are
// needed; for a's they are, unless a sum over the batch is less (but it would round each product of bf16 and f16).
[[gnu::cold]] void gradients_of_product(Gradients& g, const Tensor& a, const Tensor& b) {
  const Tensor& dc = g.dy();
  const std::int64_t m = dc.shape()[dc.rank() - 2], n = dc.shape().back(), k = a.shape().back();
  const std::int64_t batch = batch_of(dc.shape()).size();
  const auto shared = [&](const Tensor& x) {
    return batch > 1 && dc.size() > 0 && k > 0 && batch_of(x.shape()).size() == 1;
  };
  if (g.needs(0)) {
    const bool one = shared(a) && (m * k >= (m + k) * n || is_half(a.dtype()));
    g.add(0, one ? reshape(matmul(side_by_side(dc, batch), stacked(transpose(b))), a.shape())
                 : detail::sum_to(matmul(dc, transpose(b)), a.shape()));
  }
  if (g.needs(1))
    g.add(1, shared(b) ? reshape(matmul(transpose(stacked(a)), stacked(dc)), b.shape())
                       : detail::sum_to(matmul(transpose(a), dc), b.shape()));
}

Tensor product(const Tensor& a, const Tensor& b, const Given& given, SourceLocation where) {
  if (a.shape()[a.rank() - 1] != b.shape()[b.rank() - 2])
    given.refuse(given.b.rank() == 1 ? "the last axis of a must be as long as b"
                                     : "the last axis of a must be as long as the last but one of b",
                 where);
  Shape batch;
  if (!check::broadcasts(batch_of(a.shape()), batch_of(b.shape()), batch))
    given.refuse("the axes before the last two must be equal or broadcast", where);
  Tensor c = multiplied(a, b, batch);
  if (taping())
    record_op("matmul", where, {&a, &b}, c, {&a, &b}, [a, b](Gradients& g) { gradients_of_product(g, a, b); });
  return c;
}

// Of any rank.
Tensor product_of(const Tensor& a, const Tensor& b, const Given& given, SourceLocation where) {
  check::floating_or_half("matmul", "a", a, where);
  check::like("matmul", "b", b, "a", a, where);
  if (a.rank() == 0 || b.rank() == 0) given.refuse("both operands must have at least one axis", where);
  if (a.rank() == 1) {
    const Tensor row = product_of(unsqueeze(a, 0), b, given, where);
    return squeeze(row, b.rank() == 1 ? 0 : -2);
  }
  if (b.rank() == 1) return squeeze(product_of(a, unsqueeze(b, 1), given, where), -1);
  return product(a, b, given, where);
}

// --- one matrix per sequence --------------------------------------------------------------------------------------------

// The matrix of each sequence in x [count, rows, cols].
const char* matrix_at(const Matrices& x, std::int64_t i) {
  const auto* data = static_cast<const char*>(x.tensor.array().data);
  return data + i * x.tensor.stride(0) * static_cast<std::int64_t>(size_of(x.tensor.dtype()));
}

const char* row_at(const Tensor& x, std::int64_t i) {
  const auto* data = static_cast<const char*>(x.array().data);
  return data + i * x.shape()[1] * static_cast<std::int64_t>(size_of(x.dtype()));
}

Tensor inner_products(const Tensor& x, const Tensor& y, const Offsets& offsets);

// y[r, :] = x[r, :] w[s] for each row r of sequence s; x [total, k], w [count, k, n].
Tensor rows_times(const Tensor& x, const Tensor& w, const Offsets& offsets, SourceLocation where) {
  const std::int64_t k = w.shape()[1], n = w.shape()[2];
  Tensor y = empty({offsets.total(), n}, x.options());
  const Tensor rows = detail::packed(x);
  const Matrices right(w);
  for (std::int64_t s = 0; s < offsets.count(); ++s) {
    const std::int64_t first = offsets.span()[static_cast<std::size_t>(s)];
    backend(x.device())
        .gemm({.m = offsets.length(s),
               .n = n,
               .k = k,
               .dtype = x.dtype(),
               .trans_b = right.transposed,
               .a = row_at(rows, first),
               .b = matrix_at(right, s),
               .c = const_cast<char*>(row_at(y, first)),
               .lda = k,
               .ldb = right.leading,
               .ldc = n});
  }
  if (taping())
    record_op("matmul", where, {&x, &w}, y, {&x, &w}, [x, w, offsets](Gradients& g) {
      if (g.needs(0)) g.add(0, rows_times(g.dy(), transpose(w), offsets, SourceLocation{}));
      if (g.needs(1)) g.add(1, inner_products(x, g.dy(), offsets));
    });
  return y;
}

// z[s] = x_s^T y_s: the gradient of each sequence's matrix; x [total, k], y [total, n], z [count, k, n].
Tensor inner_products(const Tensor& x, const Tensor& y, const Offsets& offsets) {
  const std::int64_t k = x.shape()[1], n = y.shape()[1];
  Tensor z = empty({offsets.count(), k, n}, x.options());
  const Tensor left = detail::packed(x), right = detail::packed(y);
  const Matrices to(z);
  for (std::int64_t s = 0; s < offsets.count(); ++s) {
    const std::int64_t first = offsets.span()[static_cast<std::size_t>(s)];
    backend(x.device())
        .gemm({.m = k,
               .n = n,
               .k = offsets.length(s),
               .dtype = x.dtype(),
               .trans_a = true,
               .a = row_at(left, first),
               .b = row_at(right, first),
               .c = const_cast<char*>(matrix_at(to, s)),
               .lda = k,
               .ldb = n,
               .ldc = n});
  }
  if (taping())
    record_op("matmul_backward", SourceLocation{}, {&x, &y}, z, {&x, &y}, [x, y, offsets](Gradients& g) {
      if (g.needs(0)) g.add(0, rows_times(y, transpose(g.dy()), offsets, SourceLocation{}));
      if (g.needs(1)) g.add(1, rows_times(x, g.dy(), offsets, SourceLocation{}));
    });
  return z;
}

// dweight (+)= dz^T x, with dz [rows, out] and x [rows, in].
void weight_gradient(const Tensor& dz, const Tensor& x, const Gradients::Destination& to) {
  Gemm gemm{.m = dz.shape()[1], .n = x.shape()[1], .k = x.shape()[0], .dtype = x.dtype(), .trans_a = true};
  gemm.a = dz.array().data;
  gemm.b = x.array().data;
  gemm.c = to.dx.array().data;
  gemm.lda = gemm.m;
  gemm.ldb = gemm.ldc = gemm.n;
  gemm.accumulate = !to.fresh;
  backend(x.device()).gemm(gemm);
}

// dbias (+)= the sum of dz's rows.
void bias_gradient(const Tensor& dz, const Gradients::Destination& to) {
  if (!to.fresh) return backend(dz.device()).accumulate(sum(dz, 0).array(), to.dx.array());
  Array row = to.dx.array();
  row.shape = {1, row.size};
  row.strides[0] = row.size;
  row.strides[1] = 1;
  backend(dz.device()).reduce(ReduceOp::sum, dz.array(), row, nullptr);
}

// x [..., n] as [rows, n].
Tensor in_rows(const Tensor& x, std::int64_t rows) { return x.rank() == 2 ? x : reshape(x, {rows, x.shape().back()}); }

// The fused backward of linear on rows; in recorded ops while an outer tape watches.
void linear_backward(Gradients& g, const Tensor& rows, const Tensor& weight, const Tensor& result) {
  const std::int64_t count = rows.shape()[0];
  Tensor dz = in_rows(g.dy(), count);
  if (result.defined()) dz = detail::relu_mask(dz, stop_gradient(in_rows(result, count)));
  if (g.needs(0)) {
    const Tensor dx = matmul(dz, weight);
    g.add(0, g.has_shape(0, dx.shape()) ? dx : reshape(dx, g.shape(0)));
  }
  if (g.recording() || is_half(dz.dtype())) {
    if (g.needs(2)) g.add(2, detail::sum_to(dz, {dz.shape()[1]}));
    if (g.needs(1)) g.add(1, matmul(transpose(dz), rows));
  } else {
    if (g.needs(2)) bias_gradient(dz, g.destination(2));
    if (g.needs(1)) weight_gradient(detail::packed(dz), detail::packed(rows), g.destination(1));
  }
}

// ShapeError for the values [total] of a Ragged, which a product would take for one row.
void check_rows(const char* op, const char* name, const Ragged& x, const char* form, SourceLocation where) {
  check::defined(op, name, x.values(), where);
  if (x.values().rank() < 2)
    throw ShapeError(
        std::string(op) + ": the values of " + name + " must have shape " + form + ", got " + x.values().shape().str(),
        where);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, SourceLocation where) { return product_of(a, b, {a, b}, where); }

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options, SourceLocation where) {
  const auto seen = [&](const char* name, const Tensor& x, bool transposed) {
    check::defined("matmul", name, x, where);
    if (transposed && x.rank() < 2)
      throw ShapeError(std::string("matmul: ") + name + " to be transposed must have at least two axes, got shape " +
                           x.shape().str(),
                       where);
    return transposed ? transpose(x) : x;
  };
  const Tensor left = seen("a", a, options.transpose_a), right = seen("b", b, options.transpose_b);
  return product_of(left, right, {a, b, options}, where);
}

Ragged matmul(const Ragged& a, const Tensor& b, SourceLocation where) {
  check::defined("matmul", "b", b, where);
  if (b.rank() < 3) {
    check_rows("matmul", "a", a, "[total, ..., k]", where);
    return a.with(matmul(a.values(), b, where));
  }
  check::floating_or_half("matmul", "a", a.values(), where);
  check::like("matmul", "b", b, "a", a.values(), where);
  check::rank("matmul", "the values of a", a.values(), 2, "[total, k]", where);
  const std::int64_t k = a.values().shape()[1];
  check::shape("matmul", "b", b, {a.count(), k, b.shape().back()}, where);
  return a.with(rows_times(a.values(), b, a.offsets(), where));
}

Tensor outer(const Tensor& a, const Tensor& b, SourceLocation where) {
  check::rank("outer", "a", a, 1, "[m]", where);
  check::rank("outer", "b", b, 1, "[n]", where);
  if (!(a.device() == b.device()))
    throw DeviceError("outer: b must be on " + a.device().name() + " like a, got " + b.device().name(), where);
  return unsqueeze(a, 1) * b;
}

Tensor dot(const Tensor& a, const Tensor& b, SourceLocation where) {
  check::rank("dot", "a", a, 1, "[n]", where);
  check::rank("dot", "b", b, 1, "[n]", where);
  check::floating("dot", "a", a, where);
  check::like("dot", "b", b, "a", a, where);
  check::shape("dot", "b", b, a.shape(), where);
  // Not as a product, whose chain of additions would lose the digits of a long sum.
  return sum(mul(a, b));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, SourceLocation where) {
  check::floating_or_half("linear", "x", x, where);
  check::rank("linear", "weight", weight, 2, "[out, in]", where);
  check::like("linear", "weight", weight, "x", x, where);
  const std::int64_t out = weight.shape()[0], in = weight.shape()[1];
  if (x.rank() < 1 || x.shape().back() != in)
    throw ShapeError("linear: x must have shape [..., " + std::to_string(in) + "] for a weight of shape " +
                         weight.shape().str() + ", got " + x.shape().str(),
                     where);
  if (bias.defined()) {
    check::like("linear", "bias", bias, "x", x, where);
    check::shape("linear", "bias", bias, {out}, where);
  }
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  Tensor y = empty(shape, x.options());
  std::int64_t count = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) count *= x.shape()[i];
  const Tensor rows = detail::packed(x), matrix = detail::packed(weight);
  const Tensor shift = bias.defined() ? detail::packed(bias) : bias;
  backend(x.device())
      .gemm({.m = count,
             .n = out,
             .k = in,
             .dtype = x.dtype(),
             .trans_b = true,
             .a = rows.array().data,
             .b = matrix.array().data,
             .c = y.array().data,
             .lda = in,
             .ldb = in,
             .ldc = out,
             .bias = shift.defined() ? shift.array().data : nullptr,
             .epilogue = epilogue});
  if (taping()) {
    const Tensor result = epilogue == Epilogue::relu ? y : Tensor();
    record_op("linear", where, {&x, &weight, &bias}, y, {&x, &weight, &result},
              [x, weight, result, count](Gradients& g) { linear_backward(g, in_rows(x, count), weight, result); });
  }
  return y;
}

Ragged linear(const Ragged& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue, SourceLocation where) {
  check_rows("linear", "x", x, "[total, ..., in]", where);
  return x.with(linear(x.values(), weight, bias, epilogue, where));
}

}  // namespace reel
