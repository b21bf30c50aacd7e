#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "reel/core/ragged.h"
#include "reel/core/tape.h"

namespace reel {

namespace detail {

/// What a pullback's callback holds: a list of its own, or a range of the living tape.
class REEL_API PullbackRange {
 public:
  /// Begins recording, to a list of its own if no tape is alive.
  PullbackRange();
  ~PullbackRange();
  PullbackRange(const PullbackRange&) = delete;
  PullbackRange& operator=(const PullbackRange&) = delete;

  /// x under another identity, known to this range alone.
  Tensor watched(const Tensor& x, SourceLocation where);
  /// Ends recording to the own list.
  void close();
  /// Gradients of the watched tensors; those of trainable parameters are added to them.
  Tensors sweep(const Tensor& y, const Tensor& dy, const Tensors& watched, SourceLocation where) const;

 private:
  Mark mark_;
  bool own_ = false, open_ = false;
  NodeList* before_ = nullptr;
};

inline const Tensor& values_of(const Tensor& x) { return x; }
inline const Tensor& values_of(const Ragged& x) { return x.values(); }
inline Tensor with_values(const Tensor&, Tensor values) { return values; }
inline Ragged with_values(const Ragged& x, Tensor values) { return x.with(std::move(values)); }

}  // namespace detail

/// The callback of pullback(): gives the gradients of the inputs x... from that of the output y, and adds those of the
/// trainable parameters on the way to them. May be called several times. One input: its gradient; several: Tensors.
template <class Y, class... Xs>
class Pullback {
 public:
  Pullback(std::shared_ptr<detail::PullbackRange> range, Y y, Tensors watched, Xs... xs)
      : range_(std::move(range)), y_(std::move(y)), watched_(std::move(watched)), xs_(std::move(xs)...) {}

  /// dy: Tensor or Ragged like y. Throws ShapeError, DTypeError, DeviceError unless it is like y; Error if y was computed
  /// under a tape that has ended.
  auto operator()(const Y& dy, SourceLocation where = SourceLocation::current()) const {
    if (range_ == nullptr) detail::refuse_undefined("pullback", "callback", where);
    const Pullback self = *this;  // a callback inside may end this one
    const Tensors dx = self.range_->sweep(detail::values_of(self.y_), detail::values_of(dy), self.watched_, where);
    if constexpr (sizeof...(Xs) == 1) return detail::with_values(std::get<0>(self.xs_), dx[0]);
    else return dx;
  }

 private:
  std::shared_ptr<detail::PullbackRange> range_;
  Y y_;
  Tensors watched_;
  std::tuple<Xs...> xs_;
};

/// Calls f(x...) and gives its result with a callback that takes the result's gradient back to x... and to the parameters
/// on the way: auto [y, backprop] = pullback(layer, x); dx = backprop(dy). f and x... take and return Tensor or Ragged.
/// With no tape alive the recorded ops belong to the callback; with one alive they are a range of it, and the callback
/// throws once that tape has ended.
template <class F, class... Xs>
auto pullback(F&& f, const Xs&... xs) {
  auto range = std::make_shared<detail::PullbackRange>();
  const SourceLocation where;
  Tensors watched{range->watched(detail::values_of(xs), where)...};
  auto y = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::forward<F>(f)(detail::with_values(xs, watched[I])...);
  }
  (std::index_sequence_for<Xs...>());
  range->close();
  using Y = decltype(y);
  return std::pair<Y, Pullback<Y, std::decay_t<Xs>...>>(y, {range, y, watched, xs...});
}

}  // namespace reel
