#include "reel/core/pullback.h"

#include "reel/core/error.h"
#include "reel/core/sweep.h"

namespace reel::detail {

PullbackRange::PullbackRange() {
  now_running_somewhere("pullback");
  before_ = thread_tape.list;
  if (!taping()) {
    own_ = open_ = true;
    NodeList* list = NodeList::acquire();
    list->live_tapes = 1;  // a Tape inside f is an inner one: its end must not empty the list
    thread_tape.list = list;
    thread_tape.recording = true;
    mark_ = {list, list->node_count(), list->slot_end(), 0, false, thread_tape.strict};
    return;
  }
  NodeList* list = thread_tape.list;
  mark_ = {list, list->node_count(), list->slot_end(), list->live_tapes, true, thread_tape.strict};
}

void PullbackRange::close() {
  if (!open_) return;
  open_ = false;
  thread_tape.list = before_;
  thread_tape.recording = false;
}

PullbackRange::~PullbackRange() {
  close();
  if (!own_) return;
  mark_.list->live_tapes = 0;
  NodeList::give_back(mark_.list);
}

Tensor PullbackRange::watched(const Tensor& x, SourceLocation where) {
  if (!x.defined()) throw Error("pullback: its inputs must be defined", where);
  Tensor alias = view(x, 0, x.shape(), x.array().strides);
  if (is_trainable(*x.state()) || is_tracked(x)) {
    record_op("pullback", where, {&x}, alias, {}, [](Gradients& g) { g.add(0, g.dy()); });
    return alias;
  }
  const Tensor* output = &alias;
  Node& node = mark_.list->append(0, 0, 0, &output, 1);
  node.op = "pullback";
  node.where = where;
  alias.state()->slot = node.slot;
  alias.state()->list.store(mark_.list, std::memory_order_relaxed);
  return alias;
}

Tensors PullbackRange::sweep(const Tensor& y, const Tensor& dy, const Tensors& watched, SourceLocation where) const {
  now_running("pullback", where);
  check_start("pullback", y, dy, where);
  if (!mark_.list->is_live(watched[0].state()->slot))
    throw Error("pullback: the tape under which y was computed has ended, and its recorded ops with it", where);
  if (!mark_.list->belongs_to_this_thread())
    throw Error("pullback: the callback must be called in the thread that made it", where);
  // A list of its own is swept with recording off; a range of a living tape is recorded by that tape.
  const bool recording = thread_tape.recording;
  struct Restore {
    bool recording;
    ~Restore() { thread_tape.recording = recording; }
  } restore{recording};
  if (own_) thread_tape.recording = false;
  Sweep sweep(mark_, "pullback", y, &watched, {.keep = true}, where);
  sweep.include_parameters();
  sweep.run(dy);
  sweep.commit();
  Tensors gradients;
  for (std::size_t i = 0; i < watched.size(); ++i) gradients.push_back(sweep.result(i));
  return gradients;
}

}  // namespace reel::detail
