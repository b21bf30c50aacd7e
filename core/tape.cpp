#include "reel/core/tape.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/sweep.h"

namespace reel {

namespace {

using detail::NodeList;
using detail::thread_tape;

// The list of this thread, given back when the thread ends. What destructors record after that goes to another one, which is not.
NodeList* thread_list() {
  static thread_local constinit bool ended = false;
  struct Holder {
    NodeList* list = NodeList::acquire();
    ~Holder() {
      NodeList::give_back(list);
      thread_tape = {};
      ended = true;
    }
  };
  if (ended) return NodeList::acquire();
  thread_local Holder holder;
  return holder.list;
}

// While a tape sweeps, recording is on only if a tape outside it is alive.
class SweepScope {
 public:
  explicit SweepScope(bool outer_recording) : before_(thread_tape.recording) {
    thread_tape.recording = outer_recording;
  }
  ~SweepScope() { thread_tape.recording = before_ && thread_tape.list->live_tapes > 0; }
  SweepScope(const SweepScope&) = delete;
  SweepScope& operator=(const SweepScope&) = delete;

 private:
  bool before_;
};

Tensor ones_for(const char* call, const Tensor& y, SourceLocation where) {
  if (!y.defined()) throw Error(std::string(call) + ": y is undefined", where);
  if (y.size() != 1)
    throw ShapeError(std::string(call) + ": y must have one element, got shape " + y.shape().str() +
                         "; pass dy to start from another gradient",
                     where);
  Tensor dy = empty_like(y);
  backend(y.device()).fill(dy.array(), 1);
  return dy;
}

void require_usable(const char* call, const NodeList& list, SourceLocation where) {
  if (!list.belongs_to_this_thread())
    throw Error(std::string(call) + ": a tape must be used in the thread that made it, got another", where);
  if (list.ended_out_of_order)
    throw Error(std::string(call) +
                    ": tapes must end in the reverse order of their beginning, got one that ended before another "
                    "that began after it",
                where);
}

}  // namespace

Tape::Tape(TapeOptions options) : exceptions_(options.check_finite ? std::uncaught_exceptions() : 0) {
  if (thread_tape.list == nullptr) thread_tape.list = thread_list();
  NodeList& list = *thread_tape.list;
  detail::check_told_late();
  mark_ = {&list, list.node_count(), list.slot_end(), list.live_tapes++, thread_tape.recording, thread_tape.strict};
  thread_tape.recording = true;
  thread_tape.strict = thread_tape.strict || options.check_finite;
}

Tape::~Tape() {
  const bool last_strict = thread_tape.strict && !mark_.outer_strict;
  thread_tape.recording = mark_.outer_recording;
  thread_tape.strict = mark_.outer_strict;
  NodeList& list = *mark_.list;
  --list.live_tapes;
  if (list.live_tapes != mark_.depth) list.ended_out_of_order = true;
  if (list.live_tapes == 0) {
    thread_tape.recording = thread_tape.strict = list.ended_out_of_order = false;
    list.clear();
  }
  if (!last_strict) return;
  detail::end_unread(std::uncaught_exceptions() > exceptions_);
}

void Tape::watch(const Tensor& x, SourceLocation where) {
  require_usable("watch", *mark_.list, where);
  if (!x.defined()) throw Error("watch: the tensor is undefined", where);
  if (!is_floating(x.dtype()))
    throw DTypeError(std::string("watch: only f32 and f64 tensors have gradients, got ") + name_of(x.dtype()), where);
  detail::TensorState& state = *x.state();
  if (detail::is_trainable(state) || detail::slot_on(mark_.list, state, "watch", where) != detail::kConstant) return;
  const Tensor* output = &x;
  detail::Node& node = mark_.list->reserve(0, 0, 0, &output, 1);
  mark_.list->append(node, &output);
  node.op = "watch";
  node.where = where;
}

void Tape::backward(const Tensor& y, SweepOptions options, SourceLocation where) {
  backward(y, ones_for("backward", y, where), options, where);
}

void Tape::backward(const Tensor& y, const Tensor& dy, SweepOptions options, SourceLocation where) {
  require_usable("backward", *mark_.list, where);
  detail::now_running("backward", where);
  detail::check_start("backward", y, dy, where);
  const SweepScope scope(mark_.outer_recording);
  detail::Sweep sweep(mark_, "backward", y, nullptr, options, where);
  sweep.run(dy);
  sweep.commit();
}

Tensors Tape::gradient(const Tensor& y, const Tensors& xs, SweepOptions options, SourceLocation where) {
  return gradient(y, ones_for("gradient", y, where), xs, options, where);
}

Tensors Tape::gradient(const Tensor& y, const Tensor& dy, const Tensors& xs, SweepOptions options,
                       SourceLocation where) {
  require_usable("gradient", *mark_.list, where);
  detail::now_running("gradient", where);
  detail::check_start("gradient", y, dy, where);
  const SweepScope scope(mark_.outer_recording);
  detail::Sweep sweep(mark_, "gradient", y, &xs, options, where);
  sweep.run(dy);
  Tensors results;
  for (std::size_t i = 0; i < xs.size(); ++i) results.push_back(sweep.result(i));
  return results;
}

bool is_tracked(const Tensor& x) { return detail::would_record("is_tracked", x, {}); }

namespace detail {

bool would_record(const char* op, const Tensor& x, SourceLocation where) {
  if (!is_recording() || !x.defined()) return false;
  return is_trainable(*x.state()) || slot_on(thread_tape.list, *x.state(), op, where) != kConstant;
}

void check_start(const char* call, const Tensor& y, const Tensor& dy, SourceLocation where) {
  if (!y.defined() || !dy.defined()) throw Error(std::string(call) + ": y and dy must be defined", where);
  if (!(dy.shape() == y.shape()))
    throw ShapeError(std::string(call) + ": dy must have y's shape " + y.shape().str() + ", got " + dy.shape().str(),
                     where);
  if (dy.dtype() != y.dtype())
    throw DTypeError(std::string(call) + ": dy must be " + name_of(y.dtype()) + " like y, got " + name_of(dy.dtype()),
                     where);
  if (!(dy.device() == y.device()))
    throw DeviceError(std::string(call) + ": dy must be on " + y.device().name() + " like y, got " + dy.device().name(),
                      where);
}

namespace {

// How often a list has a tensor; quick for long lists, without an allocation for short ones.
class Sorted {
 public:
  explicit Sorted(const Tensors& list) : list_(list) {
    if (list.size() <= kFew) return;
    for (const Tensor& x : list) states_.push_back(x.state());
    std::sort(states_.begin(), states_.end(), std::less<>());
  }
  std::ptrdiff_t count(const Tensor& x) const {
    if (!states_.empty()) {
      const auto [begin, end] = std::equal_range(states_.begin(), states_.end(), x.state(), std::less<>());
      return end - begin;
    }
    std::ptrdiff_t equal = 0;
    for (const Tensor& other : list_) equal += x.is(other) ? 1 : 0;
    return equal;
  }

 private:
  static constexpr std::size_t kFew = 16;
  const Tensors& list_;
  std::vector<const TensorState*> states_;
};

}  // namespace

void check_record(const char* op, const Tensors& inputs, const Tensors& outputs, bool takes_one, SourceLocation where) {
  if (*op == '\0') throw Error("record: the op must have a name for errors to tell, got an empty one", where);
  if (takes_one && outputs.size() != 1)
    throw Error(std::string(op) + ": record of " + std::to_string(outputs.size()) +
                    " outputs needs a callback that takes their gradients, const Tensors& dys, got one for a single dy",
                where);
  const Sorted known_inputs(inputs), known_outputs(outputs);
  for (const Tensor& output : outputs) {
    if (!output.defined()) throw Error(std::string(op) + ": record needs outputs that are defined", where);
    if (known_inputs.count(output) > 0)
      throw Error(std::string(op) + ": record needs outputs that are not inputs; give a copy or a view", where);
    if (known_outputs.count(output) > 1)
      throw Error(std::string(op) + ": record needs outputs that differ, got one twice; give a copy or a view", where);
    if (is_tracked(output))
      throw Error(std::string(op) + ": record needs outputs that are not on a tape yet; compute them inside untaped()",
                  where);
  }
}

}  // namespace detail

}  // namespace reel
