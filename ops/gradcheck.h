#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "reel/core/checkpoint.h"
#include "reel/core/random.h"

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
  int checks = 0;    // derivatives compared
  int failures = 0;  // how many of them are wrong
  int kinks = 0;     // how many have no derivative: there the analytic value lies between the slopes of both sides
  double worst_error = 0;  // relative, over all checks
  std::string worst;       // where, with the analytic and the numeric value
  std::string kink;        // where the first one is, with the three values
  explicit operator bool() const { return passed; }
};
REEL_API std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

namespace detail {

/// Tensors to tensors; the shells of Ragged and of tuples are put on and taken off by the templates below.
using TensorsFunction = std::function<Tensors(const Tensors&)>;

/// A normal random tensor like each of those that are f32 or f64.
Tensors random_like(const Tensors& xs, Generator& generator);

REEL_API GradcheckReport gradcheck(const TensorsFunction& f, const Tensors& inputs, const GradcheckOptions& options,
                                   SourceLocation where);

template <class Result>
Tensors flat(const Result& result) {
  Tensors list;
  append_values(list, result);
  return list;
}

// Throws Error unless there are as many inputs as f takes.
REEL_API void require_inputs(const Tensors& xs, std::size_t count, SourceLocation where);

// f, which takes a list or its tensors one by one.
template <class F>
Tensors call_with(SourceLocation where, F& f, const Tensors& xs) {
  const auto call = [&]<std::size_t... I>(std::index_sequence<I...>) {
    require_inputs(xs, sizeof...(I), where);
    return flat(call_at(where, f, xs[I]...));
  };
  if constexpr (kCallable<F&, const Tensors&>) return flat(call_at(where, f, xs));
  else if constexpr (kCallable<F&, const Tensor&>) return call(std::make_index_sequence<1>());
  else if constexpr (kCallable<F&, const Tensor&, const Tensor&>) return call(std::make_index_sequence<2>());
  else if constexpr (kCallable<F&, const Tensor&, const Tensor&, const Tensor&>)
    return call(std::make_index_sequence<3>());
  else return call(std::make_index_sequence<4>());
}
// f, which takes what stands in the tuple, with other values.
template <class F, class... Xs>
Tensors call_with(SourceLocation where, F& f, const Tensors& values, const std::tuple<Xs...>& shells) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return flat(call_at(where, f, with_values(std::get<I>(shells), values[I])...));
  }
  (std::index_sequence_for<Xs...>());
}

}  // namespace detail

/// Compares the derivatives that the tape gives for f with central differences, element by element, or in random directions
/// if there are more than 64. f takes the inputs one by one (up to four) or as Tensors, and returns Tensor, Ragged, Tensors
/// or a std::tuple of these. It is called often and must be a function of the inputs alone, which is checked. The outputs'
/// gradients are random, since the sum of an output may be constant (softmax). Where f has a kink, as the differences to
/// both sides show, any slope between them is right, and the report says so. The inputs are f64, on any device.
/// Throws DTypeError unless they are, and whatever f and its callbacks throw.
template <class F>
GradcheckReport gradcheck(F&& f, const Tensors& inputs, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return detail::gradcheck([&](const Tensors& xs) { return detail::call_with(where, f, xs); }, inputs, options, where);
}
/// The same for inputs some of which are Ragged: gradcheck(f, std::tuple(ragged, weight)).
template <class F, class... Xs>
GradcheckReport gradcheck(F&& f, const std::tuple<Xs...>& inputs, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return detail::gradcheck([&](const Tensors& xs) { return detail::call_with(where, f, xs, inputs); },
                           detail::flat(inputs), options, where);
}
template <class F>
GradcheckReport gradcheck(F&& f, const Ragged& x, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return gradcheck(std::forward<F>(f), std::tuple(x), options, where);
}

}  // namespace reel
