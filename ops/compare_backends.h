#pragma once

#include "reel/ops/gradcheck.h"

namespace reel {

struct CompareOptions {
  Device device = Device::cuda();  // what is compared with the CPU
  double tolerance = 0;            // of |a - b| / max(1, largest |a|) of a tensor; 0: 1e-5 for f32, 1e-12 for f64
  bool gradients = true;           // those of the inputs too, from random gradients of the results
  std::uint64_t seed = 1;          // of these
};

/// What compare_backends found. In a test: EXPECT_TRUE(report) << report; and, so that a machine without a GPU does not pass
/// in silence, before it: if (!report.ran) GTEST_SKIP() << report;
struct CompareReport {
  bool passed = true;
  bool ran = true;         // false: there is no such device, and nothing was compared
  int tensors = 0;         // compared
  double worst_error = 0;  // over all elements
  std::string worst;       // where, with both values; or why it did not run
  explicit operator bool() const { return passed; }
};
REEL_API std::ostream& operator<<(std::ostream& out, const CompareReport& report);

namespace detail {
REEL_API CompareReport compare_backends(const TensorsFunction& f, const Tensors& inputs, const CompareOptions& options,
                                        SourceLocation where);
}

/// Calls f with the inputs on the CPU and with copies of them on another device, and compares the results, element by
/// element, and the gradients of the floating inputs. Equal infinities and NaN on both sides are equal. f takes and returns
/// what gradcheck's f may, integers too; tensors that f captures must be where its inputs are: make them inside, or inputs.
/// Random numbers are the same on both. Throws what f and its callbacks throw.
template <class F>
CompareReport compare_backends(F&& f, const Tensors& inputs, const CompareOptions& options = {},
                               SourceLocation where = SourceLocation::current()) {
  return detail::compare_backends(
      [&](const Tensors& xs) {
        return detail::call_with({"compare_backends", where}, f, xs);
      },
      inputs, options, where);
}
template <class F, class X, class... Xs>
CompareReport compare_backends(F&& f, const std::tuple<X, Xs...>& inputs, const CompareOptions& options = {},
                               SourceLocation where = SourceLocation::current()) {
  return detail::compare_backends([&](const Tensors& xs) { return detail::call_with(where, f, xs, inputs); },
                                  detail::flat(inputs), options, where);
}
template <class F, detail::OneInput X>
CompareReport compare_backends(F&& f, const X& x, const CompareOptions& options = {},
                               SourceLocation where = SourceLocation::current()) {
  return compare_backends(std::forward<F>(f), detail::inputs_of(x), options, where);
}

}  // namespace reel
