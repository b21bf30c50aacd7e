#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "reel/core/tensors.h"

namespace reel {

struct GradcheckOptions {
  int order = 2;            // 1: first derivatives; 2: second ones too
  double step = 1e-5;       // of the central differences, times max(1, |x|)
  double tolerance = 1e-6;  // of |analytic - numeric| / max(1, |analytic|, |numeric|); 100 times that for second order
  int directions = 8;       // random directions, where there are more than 64 input elements
  std::uint64_t seed = 1;   // of the random output gradient and the directions
};

/// What gradcheck found. In a test: EXPECT_TRUE(report) << report;
struct GradcheckReport {
  bool passed = true;
  int checks = 0;          // derivatives compared
  double worst_error = 0;  // relative, over all checks
  std::string worst;       // where, with the analytic and the numeric value
  explicit operator bool() const { return passed; }
};
REEL_API std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

/// Compares the derivatives that the tape gives for f with central differences. The inputs are f64; f is called often and must
/// be a function of them alone. The output's gradient is random, since the sum of an output may be constant (softmax).
/// Throws DTypeError unless all inputs are f64, and whatever f throws.
REEL_API GradcheckReport gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                                   const GradcheckOptions& options = {},
                                   SourceLocation where = SourceLocation::current());

/// The same for functions that take their tensors one by one.
template <class F>
requires(std::is_invocable_v<F, const Tensor&> && !std::is_invocable_v<F, const Tensors&>) GradcheckReport
    gradcheck(F&& f, const Tensors& inputs, const GradcheckOptions& options = {},
              SourceLocation where = SourceLocation::current()) {
  return gradcheck(std::function<Tensor(const Tensors&)>([&f](const Tensors& xs) { return f(xs[0]); }), inputs, options,
                   where);
}
template <class F>
requires(std::is_invocable_v<F, const Tensor&, const Tensor&>) GradcheckReport
    gradcheck(F&& f, const Tensors& inputs, const GradcheckOptions& options = {},
              SourceLocation where = SourceLocation::current()) {
  return gradcheck(std::function<Tensor(const Tensors&)>([&f](const Tensors& xs) { return f(xs[0], xs[1]); }), inputs,
                   options, where);
}
template <class F>
requires(std::is_invocable_v<F, const Tensor&, const Tensor&, const Tensor&>) GradcheckReport
    gradcheck(F&& f, const Tensors& inputs, const GradcheckOptions& options = {},
              SourceLocation where = SourceLocation::current()) {
  return gradcheck(std::function<Tensor(const Tensors&)>([&f](const Tensors& xs) { return f(xs[0], xs[1], xs[2]); }),
                   inputs, options, where);
}

}  // namespace reel
