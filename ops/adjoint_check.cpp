#include "reel/ops/adjoint_check.h"

#include <cmath>
#include <ostream>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"

namespace reel {

namespace detail {

namespace {

// Products and sums in f64, whatever the elements are.
double inner(const Tensors& a, const Tensors& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (b[i].defined()) total += sum(cast(a[i], f64) * cast(b[i], f64)).item();
  return total;
}
double norm(const Tensors& a) { return std::sqrt(inner(a, a)); }

Tensors combined(const Tensors& a, double factor, const Tensors& b) {
  Tensors result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] + factor * b[i]);
  return result;
}

// The transpose by the tape: gradients at x of <f(x), ys>.
Tensors by_tape(const TensorsFunction& f, const Tensors& xs, const Tensors& ys) {
  Tape tape;
  for (const Tensor& x : xs) tape.watch(x);
  const Tensors results = f(xs);
  Tensor total;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor part = sum(results[i] * ys[i]);
    total = total.defined() ? total + part : part;
  }
  Tensors gradients;
  if (total.defined() && is_tracked(total)) return tape.gradient(total, xs);
  for (const Tensor& x : xs) gradients.push_back(zeros_like(x));
  return gradients;
}

std::string shapes_of(const Tensors& xs) {
  std::string text;
  for (const Tensor& x : xs) text += (text.empty() ? "" : " ") + (x.defined() ? x.shape().str() : "undefined");
  return text;
}

bool alike(const Tensors& a, const Tensors& b) { return a.size() == b.size() && shapes_of(a) == shapes_of(b); }

}  // namespace

AdjointReport adjoint_check(const TensorsFunction& a, const TensorsFunction& transposed, const Tensors& like,
                            const AdjointOptions& options, SourceLocation where) {
  bool single = false;
  for (const Tensor& x : like) {
    check::floating("adjoint_check", "each input", x, where);
    single = single || x.dtype() == f32;
  }
  const double tolerance = options.tolerance > 0 ? options.tolerance : single ? 1e-4 : 1e-12;
  Generator generator(options.seed, 2);
  const Tensors xs = random_like(like, generator), others = random_like(like, generator);

  AdjointReport report;
  const Pause pause;
  const Tensors results = a(xs), more = a(others);
  const auto refused = [&](const std::string& problem) {
    report.passed = false;
    report.problem = problem;
    return report;
  };
  for (const Tensor& y : results)
    if (!y.defined() || !is_floating(y.dtype())) return refused("A's results must be f32 or f64");
  if (!alike(results, a(combined(xs, 1, others)))) return refused("A's results change their shapes");

  // Affine functions fail here as well, for A(x + 2 y) has one constant and A x + 2 A y three.
  const Tensors mixed = a(combined(xs, 2, others)), expected = combined(results, 2, more);
  const double off = norm(combined(mixed, -1, expected)), size = norm(mixed) + norm(results) + 2 * norm(more);
  if (!(off <= tolerance * size) && size > 0)
    return refused("A is not linear: A(x + 2 x') differs from A x + 2 A x' by " + detail::number_text(off / size) +
                   " of its size");

  const Tensors ys = random_like(results, generator);
  const Tensors back = transposed ? transposed(ys) : by_tape(a, xs, ys);
  if (!alike(back, xs))
    return refused("A^T y must have the shapes of x, " + shapes_of(xs) + ", got " + shapes_of(back));
  report.forward = inner(results, ys);
  report.backward = inner(xs, back);
  const double scale = norm(results) * norm(ys) + norm(xs) * norm(back);
  report.error = scale > 0 ? std::abs(report.forward - report.backward) / scale : 0;
  if (!(report.error <= tolerance)) return refused("A^T y is not the transpose's");
  return report;
}

}  // namespace detail

std::ostream& operator<<(std::ostream& out, const AdjointReport& report) {
  out << "adjoint_check " << (report.passed ? "passed" : "failed: ") << report.problem
      << ": <A x, y> = " << report.forward << ", <x, A^T y> = " << report.backward << ", relative difference "
      << report.error;
  return out;
}

}  // namespace reel
