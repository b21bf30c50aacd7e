#pragma once

#include <type_traits>

#include "reel/core/source_location.h"

namespace reel::detail {

/// F may be asked whether it takes the user's line behind its operands: a function, an object with one operator() that is no
/// template, or one whose class says so with kTakesLine, as modules do. The body of a generic lambda, which would have to
/// compile for a line, is left alone.
template <class F>
concept TakesLine = std::is_function_v<std::remove_pointer_t<std::remove_reference_t<F>>> || requires {
  &std::remove_cvref_t<F>::operator();
} || requires {
  std::remove_cvref_t<F>::kTakesLine;
};
template <class F, class... Xs>
concept CallableAt = TakesLine<F> && std::is_invocable_v<F, Xs..., SourceLocation>;

/// f takes these, with or without the user's line behind them.
template <class F, class... Xs>
inline constexpr bool kCallable = std::is_invocable_v<F, Xs...> || CallableAt<F, Xs...>;

/// f(xs...), with the user's line if f takes one, as ops and layers do: left to themselves they would name the line here.
template <class F, class... Xs>
decltype(auto) call_at(SourceLocation where, F&& f, const Xs&... xs) {
  if constexpr (CallableAt<F&, const Xs&...>) return f(xs..., where);
  else return f(xs...);
}

}  // namespace reel::detail
