#pragma once

#include "reel/ops/gradcheck.h"

namespace reel {

struct AdjointOptions {
  double tolerance = 0;    // relative; 0: 1e-12 for f64, 1e-4 for f32
  std::uint64_t seed = 1;  // of the random vectors
};

/// What adjoint_check found. In a test: EXPECT_TRUE(report) << report;
struct AdjointReport {
  bool passed = true;
  double forward = 0;   // <A x, y>
  double backward = 0;  // <x, A^T y>
  double error = 0;     // their difference, relative to |A x| |y| + |x| |A^T y|
  std::string problem;  // what is wrong, if anything is
  explicit operator bool() const { return passed; }
};
REEL_API std::ostream& operator<<(std::ostream& out, const AdjointReport& report);

namespace detail {
// An undefined `transposed` stands for the tape.
REEL_API AdjointReport adjoint_check(const TensorsFunction& a, const TensorsFunction& transposed, const Tensors& like,
                                     const AdjointOptions& options, SourceLocation where);
}  // namespace detail

/// For a linear function A, whose derivative is A itself: compares <A x, y> with <x, A^T y>, where A^T is what the tape does
/// on the way back, for random x and y, and looks whether A is linear. Exact but for rounding, at any size, in f32 too, where
/// gradcheck has differences. `inputs` gives shapes, dtypes and devices; A takes and returns what gradcheck's f may, all
/// of it f32 or f64. Throws DTypeError, and what A and its callbacks throw.
template <class A>
AdjointReport adjoint_check(A&& a, const Tensors& inputs, const AdjointOptions& options = {},
                            SourceLocation where = SourceLocation::current()) {
  return detail::adjoint_check(
      [&](const Tensors& xs) {
        return detail::call_with({"adjoint_check", where}, a, xs);
      },
      {}, inputs, options, where);
}
template <class A, class X, class... Xs>
AdjointReport adjoint_check(A&& a, const std::tuple<X, Xs...>& inputs, const AdjointOptions& options = {},
                            SourceLocation where = SourceLocation::current()) {
  return detail::adjoint_check([&](const Tensors& xs) { return detail::call_with(where, a, xs, inputs); }, {},
                               detail::flat(inputs), options, where);
}
template <class A, detail::OneInput X>
AdjointReport adjoint_check(A&& a, const X& x, const AdjointOptions& options = {},
                            SourceLocation where = SourceLocation::current()) {
  return adjoint_check(std::forward<A>(a), detail::inputs_of(x), options, where);
}
/// The same for a pair of functions of Tensors, of which the second is said to be the first one's transpose.
template <class A, class B>
requires std::is_invocable_v<B&, const Tensor&> AdjointReport
adjoint_check(A&& a, B&& transposed, const Tensors& inputs, const AdjointOptions& options = {},
              SourceLocation where = SourceLocation::current()) {
  return detail::adjoint_check(
      [&](const Tensors& xs) {
        return detail::call_with({"adjoint_check", where}, a, xs);
      },
      [&](const Tensors& ys) {
        return detail::call_with({"adjoint_check", where}, transposed, ys);
      },
      inputs, options, where);
}
template <class A, class B, std::same_as<Tensor> X>
requires std::is_invocable_v<B&, const Tensor&> AdjointReport
adjoint_check(A&& a, B&& transposed, const X& x, const AdjointOptions& options = {},
              SourceLocation where = SourceLocation::current()) {
  return adjoint_check(std::forward<A>(a), std::forward<B>(transposed), Tensors{x}, options, where);
}

}  // namespace reel
