#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "reel/core/names.h"
#include "reel/core/node.h"
#include "reel/core/tensors.h"

namespace reel {

struct TapeOptions {
  /// Throw at the first recorded op that makes a NaN or an infinity of what it was given, forward or backward. On a
  /// GPU nothing waits for that: it is told where the program waits anyway (item(), to_vector(), synchronize(), the end
  /// of a sweep). A tape that ends before anything did waits once; what it finds is thrown by the thread's next item(),
  /// to_vector(), synchronize() or Tape, as a destructor must not throw. While another exception passes nothing is kept.
  bool check_finite = false;
};

struct SweepOptions {
  /// Keep the callbacks and what they saved, so that the same ops can be swept again.
  bool keep = false;
};

/// While a Tape is alive, ops on what depends on trainable parameters or watched tensors are recorded in this thread. Tapes
/// nest: an op is recorded once, and an inner tape sees what was recorded since it began. Ends with its scope. For one
/// thread: in any other, watch, backward and gradient throw Error. They do so too once a tape has ended before one that
/// began after it (as std::optional<Tape> lets it), until all have ended.
class REEL_API Tape {
 public:
  /// Throws what a tape with check_finite has left to tell.
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  static void* operator new(std::size_t) =
      delete;  // tapes end in the reverse order of their beginning: only scopes do that

  /// Gradients with respect to x are wanted: from now on what depends on x is recorded. A trainable parameter is watched
  /// already. Throws DTypeError unless x is f32 or f64.
  void watch(const Tensor& x, SourceLocation where = SourceLocation::current());

  /// Adds d y / d p to the gradient of each parameter p that y depends on; y has one element. On an exception, from a
  /// callback too, every gradient is as it was before. Unless another tape is alive or options.keep is set, callbacks are
  /// released on the way, and a second sweep over the same ops throws.
  void backward(const Tensor& y, SweepOptions options = {}, SourceLocation where = SourceLocation::current());
  /// The same for sum(y * dy): dy, of y's shape, is the gradient to start from.
  void backward(const Tensor& y, const Tensor& dy, SweepOptions options = {},
                SourceLocation where = SourceLocation::current());

  /// d y / d x for each x, as values; y has one element; zeros where y does not depend on x. Each x must be a trainable
  /// parameter, a watched tensor or computed from one. Parameters' gradients are untouched. While a tape outside this one is
  /// alive the result is recorded, and can be differentiated again. What was computed before this tape began is a constant to
  /// it: if y depends on x only by way of that, Error is thrown. Gradients have any strides: `contiguous` before `data`.
  Tensors gradient(const Tensor& y, const Tensors& xs, SweepOptions options = {},
                   SourceLocation where = SourceLocation::current());
  /// The same for sum(y * dy).
  Tensors gradient(const Tensor& y, const Tensor& dy, const Tensors& xs, SweepOptions options = {},
                   SourceLocation where = SourceLocation::current());

 private:
  detail::Mark mark_;
  int exceptions_;  // that passed when it began
};

/// Calls f with recording paused; what it computes is constant to the tapes that are alive.
template <class F>
decltype(auto) untaped(F&& f) {
  const detail::Pause pause;
  return std::forward<F>(f)();
}

/// Which inputs need a gradient: needed[i] belongs to input i. A callback may take it as its second argument.
class Needed {
 public:
  explicit Needed(const detail::Gradients& gradients) : gradients_(gradients) {}
  bool operator[](int input) const { return gradients_.needs(input); }

 private:
  const detail::Gradients& gradients_;
};

/// Names the tensors whose writing would make a recorded callback wrong, in place of all inputs and outputs.
struct Saved {
  Tensors tensors;
};
/// record(name, inputs, y, saved(x), callback): only x is checked for writes (and kept) until the sweep.
template <class... Ts>
Saved saved(const Ts&... tensors) {
  return {Tensors{static_cast<const Tensor&>(tensors)...}};
}

namespace detail {

// The forms that a user's callback may have, from one gradient or a list to one gradient or a list.
template <class F, class Dy>
void call_user(F& f, Gradients& g, const Dy& dy) {
  const auto give = [&g](auto&& result) {
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, Tensor>) {
      g.check_count(1);
      g.add(0, std::forward<decltype(result)>(result));
    } else {
      g.check_count(result.size());
      for (std::size_t i = 0; i < result.size(); ++i) g.add(static_cast<int>(i), result[i]);
    }
  };
  if constexpr (std::is_invocable_v<F&, const Dy&, Needed>) give(f(dy, Needed(g)));
  else give(f(dy));
}

template <class F>
struct UserCallback {
  static constexpr bool kTakesOne =
      std::is_invocable_v<F&, const Tensor&> || std::is_invocable_v<F&, const Tensor&, Needed>;
  F f;
  void operator()(Gradients& g) {
    if constexpr (kTakesOne) call_user(f, g, g.dy());
    else call_user(f, g, g.dys());
  }
};

/// takes_one: the callback takes one gradient, not a list.
REEL_API void check_record(const char* op, const Tensors& inputs, const Tensors& outputs, bool takes_one,
                           SourceLocation where);

/// is_tracked(x), asked by an op.
REEL_API bool would_record(const char* op, const Tensor& x, SourceLocation where);

}  // namespace detail

/// Puts a computation of the caller's own on the tape: `outputs` were computed from `inputs` (inside untaped(), or by any
/// other means), and callback(dy) gives the gradients of the inputs, in their order; an undefined Tensor means none.
///
/// callback is one of
///   Tensor or Tensors (const Tensor& dy)              for one output
///   Tensor or Tensors (const Tensor& dy, Needed)      ... that asks which inputs need a gradient
///   the same with const Tensors& dys                  for several; undefined where an output was not used
///
/// Until the sweep, a write to any input or output is noticed, and the sweep throws VersionError; saved(...) narrows that.
/// Nothing is recorded if no tape is alive or no input is on it. Throws Error if an output is on a tape already, or is
/// one of the inputs or another output, or if a callback for one output is given with several.
template <class F>
Tensors record(std::string_view op, const Tensors& inputs, const Tensors& outputs, const Saved& saved, F&& callback,
               SourceLocation where = SourceLocation::current()) {
  using Callback = detail::UserCallback<std::decay_t<F>>;
  Callback wrapped{std::forward<F>(callback)};
  if (!detail::taping()) return outputs;
  const char* const name = detail::interned(op);
  detail::check_record(name, inputs, outputs, Callback::kTakesOne, where);
  detail::record_list(name, where, inputs, outputs, saved.tensors, std::move(wrapped));
  return outputs;
}
template <class F>
Tensors record(std::string_view op, const Tensors& inputs, const Tensors& outputs, F&& callback,
               SourceLocation where = SourceLocation::current()) {
  Saved all{inputs};
  for (const Tensor& output : outputs) all.tensors.push_back(output);
  return record(op, inputs, outputs, all, std::forward<F>(callback), where);
}
template <class F>
Tensor record(std::string_view op, const Tensors& inputs, const Tensor& output, F&& callback,
              SourceLocation where = SourceLocation::current()) {
  record(op, inputs, Tensors{output}, std::forward<F>(callback), where);
  return output;
}
template <class F>
Tensor record(std::string_view op, const Tensors& inputs, const Tensor& output, const Saved& saved, F&& callback,
              SourceLocation where = SourceLocation::current()) {
  record(op, inputs, Tensors{output}, saved, std::forward<F>(callback), where);
  return output;
}

/// True while ops on tracked tensors are recorded in this thread.
inline bool is_recording() { return detail::thread_tape.recording; }
/// True if this thread's tape would record an op on x.
REEL_API bool is_tracked(const Tensor& x);

}  // namespace reel
