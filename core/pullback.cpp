#include "reel/core/pullback.h"

#include <string>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/sweep.h"

namespace reel::detail {

PullbackRange::PullbackRange(SourceLocation where) {
  if (where.known()) now_running("pullback", where);
  else now_running_somewhere("pullback");
  before_ = thread_tape.list;
  if (!thread_tape.recording) {
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
  if (!is_floating(x.dtype())) return x;
  Tensor alias = view(x, 0, x.shape(), x.array().strides);
  if (is_trainable(*x.state()) || is_tracked(x)) {
    record_op("pullback", where, {&x}, alias, {}, [](Gradients& g) { g.add(0, g.dy()); });
    return alias;
  }
  const Tensor* output = &alias;
  Node& node = mark_.list->reserve(0, 0, 0, &output, 1);
  mark_.list->append(node, &output);
  node.op = "pullback";
  node.where = where;
  alias.state()->slot = node.slot;
  alias.state()->list.store(mark_.list, std::memory_order_relaxed);
  return alias;
}

Tensor PullbackRange::given(const Tensor& y) const {
  return own_ && y.defined() ? view(y, 0, y.shape(), y.array().strides) : y;
}

Tensors PullbackRange::given(const Tensors& ys) const {
  Tensors result;
  for (const Tensor& y : ys) result.push_back(given(y));
  return result;
}

void PullbackRange::join(const Tensors& ys) {
  joined_gradients_ = std::make_shared<Tensors>();
  joined_ = empty({});
  backend(Device::cpu()).fill(joined_.array(), 0);
  record_list("pullback", SourceLocation{}, ys, {joined_}, {}, [from = joined_gradients_](Gradients& g) {
    for (std::size_t i = 0; i < from->size(); ++i) g.add(static_cast<int>(i), (*from)[i]);
  });
}

Tensors PullbackRange::sweep(const Tensors& ys, const Tensors& dys, const Tensors& watched,
                             SourceLocation where) const {
  if (dys.size() != ys.size())
    throw Error("pullback: one gradient per output is required, " + std::to_string(ys.size()) + ", got " +
                    std::to_string(dys.size()),
                where);
  for (std::size_t i = 0; i < ys.size(); ++i)
    if (dys[i].defined()) check_start("pullback", ys[i], dys[i], where);
  Tensors& from = *joined_gradients_;
  struct Reset {
    Tensors& tensors;
    ~Reset() { tensors = {}; }
  } reset{from};
  from = dys;
  return sweep(joined_, joined_, watched, where);
}

Tensors PullbackRange::sweep(const Tensor& y, const Tensor& dy, const Tensors& watched, SourceLocation where) const {
  now_running("pullback", where);
  check_start("pullback", y, dy, where);
  if (!mark_.list->is_live(mark_.slot))
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
  if (slot_on(mark_.list, *y.state(), "pullback", where) == kConstant)
    throw Error("pullback: f's result must depend on its inputs or on a trainable parameter, got a constant", where);
  Tensors wanted;
  for (const Tensor& x : watched)
    if (is_floating(x.dtype())) wanted.push_back(x);
  Sweep sweep(mark_, "pullback", y, &wanted, {.keep = true}, where);
  sweep.include_parameters();
  sweep.run(dy);
  sweep.commit();
  Tensors gradients;
  std::size_t next = 0;
  for (const Tensor& x : watched) gradients.push_back(is_floating(x.dtype()) ? sweep.result(next++) : Tensor());
  return gradients;
}

}  // namespace reel::detail
