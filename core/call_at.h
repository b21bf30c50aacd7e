#pragma once

#include <type_traits>

#include "reel/core/source_location.h"

namespace reel::detail {

/// f takes these, with or without the user's line behind them.
template <class F, class... Xs>
inline constexpr bool kCallable = std::is_invocable_v<F, Xs...> || std::is_invocable_v<F, Xs..., SourceLocation>;

/// f(xs...), with the user's line if f takes one, as ops and layers do: left to themselves they would name the line here.
template <class F, class... Xs>
decltype(auto) call_at(SourceLocation where, F&& f, const Xs&... xs) {
  if constexpr (std::is_invocable_v<F&, const Xs&..., SourceLocation>) return f(xs..., where);
  else return f(xs...);
}

}  // namespace reel::detail
