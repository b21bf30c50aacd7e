#pragma once

#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "reel/core/call_at.h"
#include "reel/core/parameter.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"

namespace reel {

namespace detail {

/// What a pullback's callback holds: a list of its own, or a range of the living tape.
class REEL_API PullbackRange {
 public:
  /// Begins recording, to a list of its own if no tape is alive.
  explicit PullbackRange(SourceLocation where);
  ~PullbackRange();
  PullbackRange(const PullbackRange&) = delete;
  PullbackRange& operator=(const PullbackRange&) = delete;

  /// x under another identity, known to this range alone; x itself unless it is f32 or f64.
  Tensor watched(const Tensor& x, SourceLocation where);
  /// What several outputs are swept from.
  void join(const Tensors& ys);
  /// Ends recording to the own list.
  void close();
  /// An output as the caller gets it: of an own list, under another identity, which a tape may watch.
  Tensor given(const Tensor& y) const;
  Ragged given(const Ragged& y) const { return y.with(given(y.values())); }
  Tensors given(const Tensors& ys) const;
  /// Gradients of the watched tensors, undefined for those of other dtypes; those of trainable parameters are added to
  /// them.
  Tensors sweep(const Tensor& y, const Tensor& dy, const Tensors& watched, SourceLocation where) const;
  /// From several outputs at once, which were joined.
  Tensors sweep(const Tensors& ys, const Tensors& dys, const Tensors& watched, SourceLocation where) const;

 private:
  Mark mark_;
  bool own_ = false, open_ = false;
  NodeList* before_ = nullptr;
  Tensor joined_;
  std::shared_ptr<Tensors> joined_gradients_;  // while a sweep from them runs
};

inline const Tensor& values_of(const Tensor& x) { return x; }
inline const Tensor& values_of(const Ragged& x) { return x.values(); }
inline Tensor with_values(const Tensor&, Tensor values) { return values; }
inline Ragged with_values(const Ragged& x, Tensor values) {
  return values.defined() ? x.with(std::move(values)) : Ragged();
}

}  // namespace detail

/// The callback of pullback(): gives the gradients of the inputs x... from that of the output y, and adds those of the
/// trainable parameters on the way to them. May be called several times. One input: its gradient; several: Tensors. An input
/// that is neither f32 nor f64 has none: it is undefined.
template <class Y, class... Xs>
class Pullback {
 public:
  Pullback(std::shared_ptr<detail::PullbackRange> range, Y y, Tensors watched, Xs... xs)
      : range_(std::move(range)), y_(std::move(y)), watched_(std::move(watched)), xs_(std::move(xs)...) {}

  /// dy: Tensor, Tensors or Ragged like y; of several tensors, one that is undefined has no gradient. Throws ShapeError,
  /// DTypeError, DeviceError unless it is like y; Error if y was computed under a tape that has ended.
  auto operator()(const Y& dy, SourceLocation where = SourceLocation::current()) const {
    if (range_ == nullptr) detail::refuse_undefined("pullback", "callback", where);
    const Pullback self = *this;  // a callback inside may end this one
    Tensors dx;
    if constexpr (std::is_same_v<Y, Tensors>) dx = self.range_->sweep(self.y_, dy, self.watched_, where);
    else dx = self.range_->sweep(detail::values_of(self.y_), detail::values_of(dy), self.watched_, where);
    if constexpr (sizeof...(Xs) == 1) return detail::with_values(std::get<0>(self.xs_), dx[0]);
    else return dx;
  }

 private:
  std::shared_ptr<detail::PullbackRange> range_;
  Y y_;
  Tensors watched_;
  std::tuple<Xs...> xs_;
};

/// Tensor, Ragged or Parameter.
template <class X>
concept TensorOrRagged = std::convertible_to<const X&, const Tensor&> || std::same_as<X, Ragged>;

namespace detail {
template <class F, class... Xs>
auto pullback_of(SourceLocation where, F& f, const Xs&... xs) {
  auto range = std::make_shared<PullbackRange>(where);
  Tensors watched{range->watched(values_of(xs), where)...};
  auto y = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return call_at(where, f, with_values(xs, watched[I])...);
  }
  (std::index_sequence_for<Xs...>());
  using Y = decltype(y);
  if constexpr (std::is_same_v<Y, Tensors>) range->join(y);
  range->close();
  return std::pair<Y, Pullback<Y, std::decay_t<Xs>...>>(range->given(y), {range, y, watched, xs...});
}
}  // namespace detail

/// Calls f(x...) and gives its result with a callback that takes the result's gradient back to x... and to the parameters
/// on the way: auto [y, backprop] = pullback(layer, x); dx = backprop(dy). x... are Tensor or Ragged; f returns Tensor, Ragged
/// or Tensors. With no tape alive the recorded ops belong to the callback; with one alive they are a range of it, and the
/// callback throws once that tape has ended. Throws Error if one of x... is undefined.
template <class F, TensorOrRagged X>
auto pullback(F&& f, const X& x, SourceLocation where = SourceLocation::current()) {
  return detail::pullback_of(where, f, x);
}
template <class F, TensorOrRagged X, TensorOrRagged Y>
auto pullback(F&& f, const X& x, const Y& y, SourceLocation where = SourceLocation::current()) {
  return detail::pullback_of(where, f, x, y);
}
template <class F, TensorOrRagged X, TensorOrRagged Y, TensorOrRagged Z>
auto pullback(F&& f, const X& x, const Y& y, const Z& z, SourceLocation where = SourceLocation::current()) {
  return detail::pullback_of(where, f, x, y, z);
}
/// The same for any number of them: the first one carries the caller's line.
template <class F, TensorOrRagged... Xs>
requires(sizeof...(Xs) > 2) auto pullback(F&& f, detail::TensorArg x, const Xs&... xs) {
  return detail::pullback_of(x.where, f, x.tensor, xs...);
}
template <class F, TensorOrRagged... Xs>
requires(sizeof...(Xs) > 2) auto pullback(F&& f, detail::RaggedArg x, const Xs&... xs) {
  return detail::pullback_of(x.where, f, x.ragged, xs...);
}

}  // namespace reel
