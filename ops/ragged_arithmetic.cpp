#include "reel/ops/ragged.h"

#include <algorithm>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/views.h"

// Two operands, of which one at least is a Ragged, brought to shapes that broadcast as tensors do.

namespace reel {

namespace {

void check_offsets(const char* op, const Ragged& a, const Ragged& b, SourceLocation where) {
  if (!(a.offsets() == b.offsets()))
    throw ShapeError(std::string(op) + ": both Ragged operands must have the same lengths, got " +
                         std::to_string(a.count()) + " sequences of " + std::to_string(a.total()) + " rows and " +
                         std::to_string(b.count()) + " of " + std::to_string(b.total()) +
                         (a.count() == b.count() && a.total() == b.total() ? ", cut differently" : ""),
                     where);
}

// A tensor beside `x`, ready to broadcast against values of `rank` axes.
Tensor beside(const char* op, const Ragged& x, int rank, const Tensor& other, SourceLocation where) {
  check::defined(op, "the operand beside the Ragged", other, where);
  if (other.rank() < rank) return other;
  if (other.rank() > rank || other.shape()[0] != x.count())
    throw ShapeError(std::string(op) + ": a tensor beside a Ragged of " + std::to_string(x.count()) +
                         " sequences and values " + x.values().shape().str() + " must have one row per sequence, [" +
                         std::to_string(x.count()) + ", ...], or lower rank, got " + other.shape().str(),
                     where);
  return repeat_rows(other, x.offsets()).values();
}

// Values with axes of size 1 behind the rows', so that rows of lower rank broadcast by their own axes.
Tensor of_rank(const Tensor& values, int rank) {
  if (values.rank() == rank) return values;
  Shape shape{values.shape()[0]};
  while (shape.rank() < rank - values.rank() + 1) shape.push_back(1);
  for (int i = 1; i < values.rank(); ++i) shape.push_back(values.shape()[i]);
  return reshape(values, shape);
}

using Binary = Tensor (*)(const Arg&, const Arg&);

// Rows must not be broadcast away: the result has the Ragged's rows.
Ragged checked(const char* op, const Ragged& x, int rank, Tensor values, SourceLocation where) {
  if (values.rank() != rank || values.shape()[0] != x.total())
    throw ShapeError(std::string(op) + ": rows of shapes that broadcast are needed, got a result of shape " +
                         values.shape().str() + " for " + std::to_string(x.total()) + " rows",
                     where);
  return x.with(std::move(values));
}

Ragged both(const char* op, Binary f, const Ragged& a, const Ragged& b, SourceLocation where) {
  for (const Ragged* x : {&a, &b}) check::defined(op, "each operand", x->values(), where);
  check_offsets(op, a, b, where);
  const int rank = std::max(a.values().rank(), b.values().rank());
  const Tensor left = of_rank(a.values(), rank), right = of_rank(b.values(), rank);
  return a.with(f(Arg(left, where), Arg(right, where)));
}
Ragged left(const char* op, Binary f, const Ragged& a, const Arg& b) {
  const SourceLocation where = b.where();
  check::defined(op, "the Ragged", a.values(), where);
  if (!b.is_tensor()) return a.with(f(Arg(a.values(), where), b));
  const Tensor other = beside(op, a, a.values().rank(), b.tensor(), where);
  return checked(op, a, a.values().rank(), f(Arg(a.values(), where), Arg(other, where)), where);
}
Ragged right(const char* op, Binary f, const Arg& a, const Ragged& b) {
  const SourceLocation where = a.where();
  check::defined(op, "the Ragged", b.values(), where);
  if (!a.is_tensor()) return b.with(f(a, Arg(b.values(), where)));
  const Tensor other = beside(op, b, b.values().rank(), a.tensor(), where);
  return checked(op, b, b.values().rank(), f(Arg(other, where), Arg(b.values(), where)), where);
}

}  // namespace

Ragged add(const Ragged& a, const Ragged& b, SourceLocation where) { return both("add", add, a, b, where); }
Ragged sub(const Ragged& a, const Ragged& b, SourceLocation where) { return both("sub", sub, a, b, where); }
Ragged mul(const Ragged& a, const Ragged& b, SourceLocation where) { return both("mul", mul, a, b, where); }
Ragged div(const Ragged& a, const Ragged& b, SourceLocation where) { return both("div", div, a, b, where); }
Ragged maximum(const Ragged& a, const Ragged& b, SourceLocation where) { return both("maximum", maximum, a, b, where); }
Ragged minimum(const Ragged& a, const Ragged& b, SourceLocation where) { return both("minimum", minimum, a, b, where); }
Ragged pow(const Ragged& a, const Ragged& b, SourceLocation where) { return both("pow", pow, a, b, where); }
Ragged add(const Ragged& a, const Arg& b) { return left("add", add, a, b); }
Ragged sub(const Ragged& a, const Arg& b) { return left("sub", sub, a, b); }
Ragged mul(const Ragged& a, const Arg& b) { return left("mul", mul, a, b); }
Ragged div(const Ragged& a, const Arg& b) { return left("div", div, a, b); }
Ragged maximum(const Ragged& a, const Arg& b) { return left("maximum", maximum, a, b); }
Ragged minimum(const Ragged& a, const Arg& b) { return left("minimum", minimum, a, b); }
Ragged pow(const Ragged& a, const Arg& b) { return left("pow", pow, a, b); }
Ragged add(const Arg& a, const Ragged& b) { return right("add", add, a, b); }
Ragged sub(const Arg& a, const Ragged& b) { return right("sub", sub, a, b); }
Ragged mul(const Arg& a, const Ragged& b) { return right("mul", mul, a, b); }
Ragged div(const Arg& a, const Ragged& b) { return right("div", div, a, b); }
Ragged maximum(const Arg& a, const Ragged& b) { return right("maximum", maximum, a, b); }
Ragged minimum(const Arg& a, const Ragged& b) { return right("minimum", minimum, a, b); }
Ragged pow(const Arg& a, const Ragged& b) { return right("pow", pow, a, b); }

namespace detail {

Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Ragged& b, SourceLocation where) {
  return both(op, f, a, b, where);
}
Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Arg& b) { return left(op, f, a, b); }
Ragged broadcast(const char* op, BinaryFunction f, const Arg& a, const Ragged& b) { return right(op, f, a, b); }

Ragged broadcast(const char* op, TernaryFunction f, const RaggedOperand& a, const RaggedOperand& b,
                 const RaggedOperand& c, SourceLocation where) {
  const RaggedOperand* const all[] = {&a, &b, &c};
  const Ragged* rows = nullptr;
  int rank = 0;
  for (const RaggedOperand* x : all) {
    if (!x->is_ragged()) continue;
    check::defined(op, "each operand", x->ragged().values(), where);
    if (rows == nullptr) rows = &x->ragged();
    check_offsets(op, *rows, x->ragged(), where);
    rank = std::max(rank, x->ragged().values().rank());
  }
  const auto tensor = [&](const RaggedOperand& x) {
    if (x.is_ragged()) return of_rank(x.ragged().values(), rank);
    return x.arg().is_tensor() ? beside(op, *rows, rank, x.arg().tensor(), where) : Tensor();
  };
  const Tensor tensors[] = {tensor(a), tensor(b), tensor(c)};
  const auto arg = [&](int i) { return tensors[i].defined() ? Arg(tensors[i], where) : all[i]->arg(); };
  return checked(op, *rows, rank, f(arg(0), arg(1), arg(2), where), where);
}

}  // namespace detail

}  // namespace reel
