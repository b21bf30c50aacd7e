#pragma once

#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "reel/core/pullback.h"

namespace reel {

namespace detail {

// Results of a user's function as a flat list of tensors, and back.
inline void append_values(Tensors& list, const Tensor& x) { list.push_back(x); }
inline void append_values(Tensors& list, const Ragged& x) { list.push_back(x.values()); }
inline void append_values(Tensors& list, const Tensors& xs) {
  for (const Tensor& x : xs) list.push_back(x);
}
template <class... Parts>
void append_values(Tensors& list, const std::tuple<Parts...>& parts) {
  std::apply([&](const auto&... part) { (append_values(list, part), ...); }, parts);
}
inline void replace_values(Tensor& x, const Tensors& list, std::size_t& next) { x = list[next++]; }
inline void replace_values(Ragged& x, const Tensors& list, std::size_t& next) { x = x.with(list[next++]); }
inline void replace_values(Tensors& xs, const Tensors& list, std::size_t& next) {
  for (Tensor& x : xs) x = list[next++];
}
template <class... Parts>
void replace_values(std::tuple<Parts...>& parts, const Tensors& list, std::size_t& next) {
  std::apply([&](auto&... part) { (replace_values(part, list, next), ...); }, parts);
}

// first: f's results, which it gives when it is called for the first time; null later.
using Recomputed = std::function<Tensors(const Tensors& xs, void* first)>;
REEL_API Tensors checkpointed(const Recomputed& f, const Tensors& xs, void* first, SourceLocation where);

template <class F, class... Xs>
auto checkpoint_of(SourceLocation where, F f, const Xs&... xs) {
  using Result = std::decay_t<decltype(call_at(where, f, with_values(xs, Tensor())...))>;
  Recomputed flat = [where, f = std::move(f), xs...](const Tensors& values, void* first) mutable {
    Result result = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return call_at(where, f, with_values(xs, values[I])...);
    }
    (std::index_sequence_for<Xs...>());
    Tensors list;
    append_values(list, result);
    if (first != nullptr) *static_cast<std::optional<Result>*>(first) = std::move(result);
    return list;
  };
  std::optional<Result> result;
  const Tensors values = checkpointed(flat, {values_of(xs)...}, &result, where);
  std::size_t next = 0;
  replace_values(*result, values, next);
  return std::move(*result);
}

}  // namespace detail

/// f(x...), which keeps nothing for backward: a sweep calls f again. Memory for time: of a net cut into k checkpointed parts
/// only the parts' inputs stay, and the inside of one part at a time.
///
/// f takes and returns Tensor or Ragged; it may also return Tensors or a std::tuple of these. Trainable parameters and
/// recorded tensors that f captures get their gradients too. Checkpoints may be nested, and differentiated any number of
/// times. The second call draws the same random numbers from the process's generator (dropout), whatever was drawn meanwhile;
/// it must do the same in all else: a generator of one's own belongs inside f, running statistics are updated twice.
/// Results have the bits of f(x...) itself; gradients too, but that those of a tensor which f uses several times are summed
/// up for each call first. backward throws Error if f's second call gives other shapes.
template <class F, TensorOrRagged X>
auto checkpoint(F f, const X& x, SourceLocation where = SourceLocation::current()) {
  return detail::checkpoint_of(where, std::move(f), x);
}
template <class F, TensorOrRagged X, TensorOrRagged Y>
auto checkpoint(F f, const X& x, const Y& y, SourceLocation where = SourceLocation::current()) {
  return detail::checkpoint_of(where, std::move(f), x, y);
}
template <class F, TensorOrRagged X, TensorOrRagged Y, TensorOrRagged Z>
auto checkpoint(F f, const X& x, const Y& y, const Z& z, SourceLocation where = SourceLocation::current()) {
  return detail::checkpoint_of(where, std::move(f), x, y, z);
}
/// The same for any number of them: the first one carries the caller's line.
template <class F, TensorOrRagged... Xs>
requires(sizeof...(Xs) > 2) auto checkpoint(F f, detail::TensorArg x, const Xs&... xs) {
  return detail::checkpoint_of(x.where, std::move(f), x.tensor, xs...);
}
template <class F, TensorOrRagged... Xs>
requires(sizeof...(Xs) > 2) auto checkpoint(F f, detail::RaggedArg x, const Xs&... xs) {
  return detail::checkpoint_of(x.where, std::move(f), x.ragged, xs...);
}

/// x under another identity, whose gradient passes through hook(dy) on its way to x: once in a sweep, when it is complete.
/// hook returns what takes its place (like dy; an undefined Tensor stops it), or nothing. Under an outer tape its ops are
/// recorded. A constant is returned as it is. Use the result in place of x: what x itself goes into is not seen. dy has any
/// strides: `contiguous` before `data`.
template <class F>
Tensor gradient_hook(const Tensor& x, F hook, SourceLocation where = SourceLocation::current()) {
  if (!is_tracked(x)) return x;
  const Tensor y = detail::view(x, 0, x.shape(), x.array().strides);
  return record(
      "gradient_hook", {x}, y, Saved{},
      [hook = std::move(hook)](const Tensor& dy) mutable -> Tensor {
        if constexpr (std::is_void_v<std::invoke_result_t<F&, const Tensor&>>) {
          hook(dy);
          return dy;
        } else {
          return hook(dy);
        }
      },
      where);
}
/// The same; hook(dy) takes and returns a Ragged like x.
template <class F>
Ragged gradient_hook(const Ragged& x, F hook, SourceLocation where = SourceLocation::current()) {
  return x.with(gradient_hook(
                    x.values(),
                    [hook = std::move(hook), offsets = x.offsets()](const Tensor& dy) mutable -> Tensor {
                      if constexpr (std::is_void_v<std::invoke_result_t<F&, const Ragged&>>) {
                        hook(Ragged(dy, offsets));
                        return dy;
                      } else {
                        return hook(Ragged(dy, offsets)).values();
                      }
                    },
                    where),
                where);
}

}  // namespace reel
