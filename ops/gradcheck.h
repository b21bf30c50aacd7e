#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "reel/core/call_at.h"
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
  int holes = 0;     // how many of the failures lie where f itself jumps, or is not finite
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

// Who calls f, for errors.
struct CheckCall {
  const char* name;
  SourceLocation where;
};
inline constexpr std::size_t kMostTensors = 8;  // that f may take one by one
/// Throws Error: f takes other numbers of tensors than there are inputs.
[[noreturn]] REEL_API void refuse_count(CheckCall call, std::size_t inputs);

template <std::size_t>
using OneTensor = const Tensor&;
template <class F, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return kCallable<F&, OneTensor<I>...>;
}
// Calls f with `count` tensors, or with the first of the larger numbers that is there and that f takes.
template <std::size_t count, class F>
Tensors call_one_by_one(CheckCall call, F& f, const Tensors& xs) {
  using Indices = std::make_index_sequence<count>;
  if constexpr (takes<F>(Indices()))
    if (xs.size() == count) return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return flat(call_at(call.where, f, xs[I]...));
      }
  (Indices());
  if constexpr (count < kMostTensors) return call_one_by_one<count + 1>(call, f, xs);
  else refuse_count(call, xs.size());
}
template <class F, std::size_t... I>
constexpr bool takes_some(std::index_sequence<I...>) {
  return (takes<F>(std::make_index_sequence<I + 1>()) || ...);
}

// What may stand without braces. (No conversion: {x} is a list.)
template <class X>
concept OneInput = std::same_as<X, Tensor> || std::same_as<X, Ragged>;
inline Tensors inputs_of(const Tensor& x) { return {x}; }
inline std::tuple<Ragged> inputs_of(const Ragged& x) { return std::tuple(x); }

// f, which takes its tensors one by one or as a list. One that takes any number of them (const auto&... xs) gets as many as
// there are; a list only if that is all it takes, for the body of such an f does not compile for lists.
template <class F>
Tensors call_with(CheckCall call, F& f, const Tensors& xs) {
  if constexpr (takes_some<F>(std::make_index_sequence<kMostTensors>())) {
    return call_one_by_one<1>(call, f, xs);
  } else {
    static_assert(
        kCallable<F&, const Tensors&>,
        "f must take Tensors, or one to eight tensors one by one; for Ragged, give the inputs as a std::tuple");
    return flat(call_at(call.where, f, xs));
  }
}
// f, which takes what stands in the tuple, with other values.
template <class F, class... Xs>
Tensors call_with(SourceLocation where, F& f, const Tensors& values, const std::tuple<Xs...>& shells) {
  static_assert(kCallable<F&, decltype(with_values(std::declval<const Xs&>(), Tensor()))...>,
                "f must take what stands in the tuple, one by one: a Tensor or a Ragged each");
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return flat(call_at(where, f, with_values(std::get<I>(shells), values[I])...));
  }
  (std::index_sequence_for<Xs...>());
}

}  // namespace detail

/// Compares the derivatives that the tape gives for f with central differences, element by element, or in random directions
/// if there are more than 64. f takes the inputs one by one (up to eight) or as Tensors, and returns Tensor, Ragged, Tensors
/// or a std::tuple of these. A generic f of several (const auto&...) whose body does not compile for other numbers of tensors
/// needs its inputs as a std::tuple. It is called often and must be a function of the inputs alone, which is checked. The outputs'
/// gradients are random, since the sum of an output may be constant (softmax). Where f has a kink, as the differences to
/// both sides show, any slope between them is right, and the report says so; so it does of the second derivative, which has
/// then to be right on one side. The inputs are f64, on any device.
/// Throws DTypeError unless they are, Error if f takes another number of them, and whatever f and its callbacks throw.
template <class F>
GradcheckReport gradcheck(F&& f, const Tensors& inputs, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return detail::gradcheck(
      [&](const Tensors& xs) {
        return detail::call_with({"gradcheck", where}, f, xs);
      },
      inputs, options, where);
}
/// The same for inputs some of which are Ragged: gradcheck(f, std::tuple(ragged, weight)).
template <class F, class X, class... Xs>
GradcheckReport gradcheck(F&& f, const std::tuple<X, Xs...>& inputs, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return detail::gradcheck([&](const Tensors& xs) { return detail::call_with(where, f, xs, inputs); },
                           detail::flat(inputs), options, where);
}
/// The same for a single input, a Tensor or a Ragged: gradcheck(f, x).
template <class F, detail::OneInput X>
GradcheckReport gradcheck(F&& f, const X& x, const GradcheckOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
  return gradcheck(std::forward<F>(f), detail::inputs_of(x), options, where);
}

}  // namespace reel
