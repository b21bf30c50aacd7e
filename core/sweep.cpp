#include "reel/core/sweep.h"

#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "reel/core/dependence.h"
#include "reel/core/error.h"
#include "reel/core/given_numbers.h"
#include "reel/core/ops.h"
#include "reel/core/scratch.h"
#include "reel/core/tape.h"
#include "reel/core/trace_log.h"
#include "reel/core/with_context.h"

namespace reel::detail {

std::string described(const char* op, SourceLocation recorded) {
  if (!recorded.known()) return op;
  return std::string(op) + " (recorded at " + recorded.file + ":" + std::to_string(recorded.line) + ")";
}

namespace {

std::string backward_of(const Node& node) { return "backward of " + described(node); }

// While a callback runs, errors are told with its op, and what it records belongs to the line that recorded it; but the
// memory of parameters' gradients to that of the sweep.
class RunningScope {
 public:
  explicit RunningScope(const Running& now) : before_(running) { running = now; }
  ~RunningScope() { running = before_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  Running before_;
};

// What the callback records was computed with the number too that the op was given.
REEL_INLINE void run_callback(const Node& node, Gradients& gradients) {
  if (node.infinity == 0) [[likely]]
    return node.run(node.callback, gradients);
  const Scalar infinity = node.infinity * INFINITY;
  const GivenNumbers given(&infinity, 1);
  node.run(node.callback, gradients);
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (is_half(a.dtype())) {
    const Tensor sum = copied(a, a.dtype());
    accumulate(b, sum);
    return sum;
  }
  Tensor sum = empty_like(a);
  backend(a.device()).binary(BinaryOp::add, {.array = &a.array()}, {.array = &b.array()}, sum.array());
  return sum;
}

// Gradients that meet while an outer tape records: their sum is recorded too.
Tensor recorded_sum(const Tensor& a, const Tensor& b) {
  Tensor sum = sum_of(a, b);
  record_op("sum of gradients", SourceLocation{}, {&a, &b}, sum, {}, [](Gradients& g) {
    g.add(0, g.dy());
    g.add(1, g.dy());
  });
  return sum;
}

// A slot's gradient and its flags.
constexpr std::size_t kSlotBytes = sizeof(Tensor) + sizeof(std::uint8_t);

}  // namespace

Sweep::Sweep(const Mark& mark, const char* call, const Tensor& y, const Tensors* wanted, SweepOptions options,
             SourceLocation where)
    : list_(*mark.list), wanted_(wanted), call_(call), where_(where), begin_(mark.slot) {
  const std::int64_t y_slot = y_slot_ = slot_on(&list_, *y.state(), call, where);
  if (y_slot == kConstant)
    throw Error(
        std::string(call) +
            ": y must depend on a trainable parameter or a watched tensor while the tape is alive; this one is a "
            "constant to the tape",
        where);
  if (y_slot < begin_) throw Error(std::string(call) + ": y was computed before this tape began", where);
  const Node* last = list_.slot(y_slot).node;
  end_ = last->slot + last->output_count;

  first_node_ = mark.node;
  std::int64_t low = first_node_, high = list_.node_count();
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (list_.node(middle).slot <= y_slot ? low : high) = middle;
  }
  last_node_ = low;
  parameters_ = wanted == nullptr;
  releasing_ = list_.live_tapes <= 1 && !options.keep;

  const auto slots = static_cast<std::size_t>(end_ - begin_);
  // One block for both: nothing is left behind if there is no memory for it.
  gradients_ = static_cast<Tensor*>(host_allocate(slots * kSlotBytes));
  for (std::size_t i = 0; i < slots; ++i) new (&gradients_[i]) Tensor();
  flags_ = reinterpret_cast<std::uint8_t*>(gradients_ + slots);
  std::memset(flags_, 0, slots);
  list_.begin_sweep();
}

Sweep::~Sweep() {
  if (thread_tape.traced) trace_settle();
  const auto slots = static_cast<std::size_t>(end_ - begin_);
  for (std::size_t i = 0; i < slots; ++i) gradients_[i].~Tensor();
  host_free(gradients_, slots * kSlotBytes);
  while (SinkLink* link = sinks_) {
    sinks_ = link->next;
    link->~SinkLink();
    host_free(link, sizeof(SinkLink));
  }
  list_.end_sweep();
}

REEL_INLINE bool Sweep::needs(const Edge& edge) const {
  if (edge.slot >= begin_) return (flags(edge.slot) & kNeeded) != 0;
  return edge.slot != kConstant && needs_outside(edge);
}

bool Sweep::needs_outside(const Edge& edge) const {
  if (edge.slot == kParameter && parameters_ && (edge.tensor == nullptr || is_trainable(*edge.tensor)))
    return true;  // null: of a node that was released, as run_node will say
  for (const Outside& outside : outside_)
    if (outside.slot == edge.slot && outside.parameter == edge.tensor) return true;
  return false;
}

// Where the gradient of an edge is summed; null for a parameter that keeps its own.
REEL_INLINE Tensor* Sweep::sum_at(const Edge& edge) {
  if (edge.slot >= begin_) {
    if (flags(edge.slot) & kOpen) [[unlikely]]
      close();
    return &gradient(edge.slot);
  }
  for (Outside& outside : outside_)
    if (outside.slot == edge.slot && outside.parameter == edge.tensor) return &outside.gradient;
  return nullptr;
}

void Sweep::mark() {
  if (wanted_ != nullptr) {
    for (std::size_t i = 0; i < wanted_->size(); ++i) {
      const Tensor& x = (*wanted_)[i];
      if (!x.defined())
        throw Error(std::string(call_) + ": wanted tensor " + std::to_string(i) + " is undefined", where_);
      const std::int64_t slot = slot_on(&list_, *x.state(), call_, where_);
      if (slot >= end_) continue;  // newer than y, which cannot depend on it
      if (slot >= begin_) {
        flags(slot) = kNeeded | kWanted;
      } else if (slot != kConstant) {
        outside_.push_back({slot, nullptr, {}});
      } else if (is_trainable(*x.state())) {
        outside_.push_back({kParameter, x.state(), {}});
      } else {
        throw Error(std::string(call_) + ": wanted tensor " + std::to_string(i) + ", of shape " + x.shape().str() +
                        ", was not watched: call watch(x) on a living tape before computing with x",
                    where_);
      }
    }
  }
  for (std::int64_t i = first_node_; i <= last_node_; ++i) {
    const Node& node = list_.node(i);
    bool needed = false;
    for (int e = 0; e < node.edge_count && !needed; ++e) needed = needs(node.edges[e]);
    if (needed)
      for (int o = 0; o < node.output_count; ++o) flags(node.slot + o) |= kNeeded | kRuns;
  }
}

void Sweep::run(Tensor dy) {
  mark();
  if (thread_tape.strict) check_finite({dy, call_, "dy", {}, {}, where_});
  gradient(y_slot_) = std::move(dy);
  for (std::int64_t i = last_node_; i >= first_node_; --i) {
    const Node& node = list_.node(i);
    if (node.output_count == 0 || (flags(node.slot) & kRuns) == 0) continue;
    bool reached = false;
    for (int o = 0; o < node.output_count; ++o) {
      if ((flags(node.slot + o) & kOpen) != 0) close();
      reached = reached || gradient(node.slot + o).defined();
    }
    if (reached) run_node(node);
  }
  close();
  if (thread_tape.strict && list_.is_outermost_sweep()) check_unread();
}

void Sweep::run_node(const Node& node) {
  if (node.run == nullptr)
    throw Error(std::string(call_) +
                    ": what is computed inside checkpoint has no callbacks: use what it returns, got " +
                    described(node),
                where_);
  if (node.released)
    throw Error(std::string(call_) + ": this tape has been swept before, and " + described(node) +
                    " has released its callback; pass {.keep = true} to the earlier sweep to sweep several times",
                where_);
  check_versions(node);
  if (flags(node.slot) & kPlaced) {  // it is where it belongs
    gradient(node.slot) = Tensor();
    if (releasing_) NodeList::release(const_cast<Node&>(node));
    return;
  }
  Gradients gradients(*this, node);
  const RunningScope scope({node.op, {}, node.where});
  with_context(
      [&] {
        const BackwardTrace trace(node, gradients);
        run_callback(node, gradients);
        if (list_.ended_in_sweep())
          throw Error("the callback must leave the tape that is being swept alive, got one that ended it");
        if (thread_tape.strict) check_gradients(node);
      },
      [&](Error& error) { error.prepend(backward_of(node)); },
      [&](const char* text) { return backward_of(node) + ": " + text; });
  for (int o = 0; o < node.output_count; ++o)
    if ((flags(node.slot + o) & kWanted) == 0) gradient(node.slot + o) = Tensor();
  if (releasing_) NodeList::release(const_cast<Node&>(node));
}

void Sweep::check_versions(const Node& node) const {
  for (int i = 0; i < node.saved_count; ++i) {
    const SavedVersion& saved = node.saved[i];
    if (saved.tensor == nullptr) continue;
    const TensorState& root = saved.tensor->version_root();
    if (root.version.load(std::memory_order_relaxed) == saved.version) continue;
    throw VersionError(backward_of(node) + ": a tensor of shape " + saved.tensor->array.shape.str() +
                           " that it saved was written since, by " + root.writer,
                       root.written_at);
  }
}

void Sweep::check_gradients(const Node& node) {
  std::vector<NamedOperand> operands;
  for (int o = 0; o < node.output_count; ++o) operands.push_back({"dy", gradient(node.slot + o)});
  for (int i = 0; i < node.saved_count; ++i) {
    TensorState* const saved = node.saved[i].tensor;
    if (saved == nullptr) continue;
    retain(saved);
    operands.push_back({"saved", Tensor(saved)});
  }
  std::vector<double> numbers;
  if (node.infinity != 0) numbers.push_back(node.infinity * INFINITY);
  for (int e = 0; e < node.edge_count; ++e) {
    if (!needs(node.edges[e])) continue;
    Tensor dx;
    if (Tensor* sum = sum_at(node.edges[e])) {
      dx = *sum;
    } else {
      dx = sink(*node.edges[e].tensor->parameter).destination(*node.edges[e].tensor->parameter).dx;
    }
    if (!dx.defined()) continue;
    check_finite({dx, node.op, "the gradient of input " + std::to_string(e), operands, numbers, {}, true, node.where});
  }
}

// What the gradient of an edge looks like.
REEL_INLINE SlotInfo Sweep::info(const Edge& edge) const {
  if (edge.slot != kParameter) return list_.slot(edge.slot);
  const Array& array = edge.tensor->array;
  return {nullptr, array.shape.begin(), static_cast<std::int8_t>(array.rank()), array.dtype, array.device};
}

REEL_INLINE void Sweep::check_gradient(const Node& node, int input, const Tensor& dx) const {
  const SlotInfo required = info(node.edges[input]);
  if (!required.has_shape(dx.shape()) || required.dtype != dx.dtype() || !(required.device == dx.device())) [[unlikely]]
    refuse_gradient(required, input, dx);
}

void Sweep::refuse_gradient(const SlotInfo& required, int input, const Tensor& dx) const {
  const auto refuse = [&](const std::string& what, const std::string& should, const std::string& got) {
    return "the gradient of input " + std::to_string(input) + " must " + what + " " + should + ", got " + got;
  };
  if (!required.has_shape(dx.shape())) throw ShapeError(refuse("have shape", required.shape().str(), dx.shape().str()));
  if (dx.dtype() != required.dtype) throw DTypeError(refuse("be", name_of(required.dtype), name_of(dx.dtype())));
  throw DeviceError(refuse("be on", required.device.name(), dx.device().name()));
}

void Sweep::accumulate(Tensor& sum, const Tensor& dx) {
  if (thread_tape.recording) sum = recorded_sum(sum, dx);
  else if (sole_owner(sum)) detail::accumulate(dx, sum);
  else sum = sum_of(sum, dx);
}

void Sweep::add_to_parameter(ParameterState& parameter, const Tensor& dx) {
  const auto [to, fresh] = sink(parameter).destination(parameter);
  if (fresh) backend(to.device()).copy(dx.array(), to.array());
  else backend(to.device()).accumulate(dx.array(), to.array());
}

ParameterSink& Sweep::sink(ParameterState& parameter) {
  home_of(parameter);
  for (SinkLink* link = sinks_; link != nullptr; link = link->next)
    if (link->sink.serves(parameter)) return link->sink;
  const RunningScope scope({call_, where_, {}});
  void* const room = host_allocate(sizeof(SinkLink));
  try {
    sinks_ = new (room) SinkLink{ParameterSink(parameter.home), sinks_};
  } catch (...) {  // there may be no memory for the gradients
    host_free(room, sizeof(SinkLink));
    throw;
  }
  return sinks_->sink;
}

void Sweep::commit() {
  bool hooks = false;
  for (SinkLink* link = sinks_; link != nullptr; link = link->next) hooks = hooks || link->sink.has_hooks();
  for (SinkLink* link = sinks_; hooks && link != nullptr; link = link->next) link->sink.remember();
  for (SinkLink* link = sinks_; link != nullptr; link = link->next) link->sink.commit();
  if (!hooks) return;
  try {
    for (SinkLink* link = sinks_; link != nullptr; link = link->next) link->sink.call_hooks();
  } catch (...) {
    for (SinkLink* link = sinks_; link != nullptr; link = link->next) link->sink.restore();
    throw;
  }
}

Tensor Sweep::result(std::size_t i) const {
  const Tensor& x = (*wanted_)[i];
  const std::int64_t slot = slot_on(&list_, *x.state(), call_, where_);
  Tensor dx;
  if (slot >= begin_ && slot < end_) dx = gradient(slot);
  for (const Outside& outside : outside_)
    if (slot == kConstant ? outside.parameter == x.state() : outside.slot == slot) dx = outside.gradient;
  if (!dx.defined()) {
    if (const Node* link = slot < begin_ ? link_before(list_, first_node_, last_node_, y_slot_, *x.state()) : nullptr)
      throw Error(std::string(call_) + ": y depends on wanted tensor " + std::to_string(i) + " by way of " +
                      described(*link) +
                      ", which was computed before this tape began and is a constant to it: begin the tape before, or "
                      "ask the one outside",
                  where_);
    dx = empty_like(x);
    backend(x.device()).fill(dx.array(), 0);
  }
  return dx;
}

// --- what a callback sees ---------------------------------------------------------------------------------------------

const Tensor& Gradients::dy(int i) const { return sweep_.gradient(node_.slot + i); }

Tensors Gradients::dys() const {
  Tensors all;
  for (int i = 0; i < node_.output_count; ++i) all.push_back(dy(i));
  return all;
}

bool Gradients::needs(int input) const {
  return input >= 0 && input < node_.edge_count && sweep_.needs(node_.edges[input]);
}

Shape Gradients::shape(int input) const { return sweep_.info(node_.edges[input]).shape(); }

bool Gradients::has_shape(int input, const Shape& shape) const {
  return sweep_.info(node_.edges[input]).has_shape(shape);
}

DType Gradients::dtype(int input) const { return sweep_.info(node_.edges[input]).dtype; }

Tensor Gradients::take_dy() {
  const bool last = node_.output_count == 1 && !thread_tape.strict && (sweep_.flags(node_.slot) & Sweep::kWanted) == 0;
  Tensor& dy = sweep_.gradient(node_.slot);
  return last ? std::move(dy) : dy;
}

bool Gradients::recording() const { return thread_tape.recording; }

void Gradients::check_count(std::size_t count) const {
  if (count != static_cast<std::size_t>(node_.edge_count))
    throw Error("the callback must return one gradient per input, " + std::to_string(node_.edge_count) + ", got " +
                std::to_string(count));
}

void Gradients::add(int input, Tensor dx) {
  if (!dx.defined() || !needs(input)) return;
  sweep_.check_gradient(node_, input, dx);
  const Edge& edge = node_.edges[input];
  Tensor* const sum = sweep_.sum_at(edge);
  if (sum == nullptr) sweep_.add_to_parameter(*edge.tensor->parameter, dx);
  else if (!sum->defined()) *sum = std::move(dx);
  else if (sweep_.is_in_places(edge)) detail::accumulate(dx, *sum);
  else sweep_.accumulate(*sum, dx);
}

Gradients::Destination Gradients::destination(int input, const AxisOrder* order) {
  const Edge& edge = node_.edges[input];
  Tensor* sum = sweep_.sum_at(edge);
  if (sum == nullptr) return sweep_.sink(*edge.tensor->parameter).destination(*edge.tensor->parameter);
  if (sum->defined()) {
    const bool fits = order != nullptr || sum->is_contiguous();
    if (sweep_.is_in_places(edge)) {
      if (!fits) sweep_.leave_place(edge.slot);
    } else if (!fits || !sole_owner(*sum)) {
      *sum = copied(*sum, sum->dtype());
    }
    return {*sum, false};
  }
  const SlotInfo info = sweep_.info(edge);
  const TensorOptions options{.dtype = info.dtype, .device = info.device};
  *sum = order != nullptr ? empty_in_order(info.shape(), *order, options) : empty(info.shape(), options);
  return {*sum, true};
}

GradientSink Gradients::sink(int input) {
  if (!needs(input)) return {};
  const auto [dx, fresh] = destination(input);
  return {dx.array(), !fresh};
}

}  // namespace reel::detail
