#include "reel/core/node_list.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/thread_cache.h"

namespace reel::detail {

thread_local constinit ThreadTape thread_tape;

namespace {

constexpr std::size_t kChunkBytes = 256 << 10;

struct Pool {
  std::mutex mutex;
  std::vector<NodeList*> lists;
  std::size_t made = 0;  // here and in use: there is room for all of them
};
Pool& pool() {
  static Pool* const instance = new Pool;  // never destroyed: threads may end after static objects
  return *instance;
}

// An address that is this thread's alone.
const void* thread_identity() { return &thread_tape; }

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

REEL_INLINE void count_node(std::int64_t difference) {
  if (this_thread != nullptr) [[likely]]
    this_thread->nodes.add(difference);
  else count_nodes(difference);
}

[[noreturn]] void throw_no_room() {
  throw OutOfMemory(running_op() + ": no memory on the tape for recorded ops; " + memory_stats().str(), {});
}

}  // namespace

NodeList* NodeList::acquire() {
  NodeList* list = nullptr;
  {
    const std::lock_guard lock(pool().mutex);
    if (!pool().lists.empty()) {
      list = pool().lists.back();
      pool().lists.pop_back();
    } else {
      pool().lists.reserve(pool().made + 1);  // what gives it back is a destructor, which must not throw
      ++pool().made;
    }
  }
  if (list == nullptr) list = new NodeList;
  list->owner_.store(thread_identity(), std::memory_order_relaxed);
  return list;
}

void NodeList::give_back(NodeList* list) {
  list->clear();
  list->ended_out_of_order = false;
  list->owner_.store(nullptr, std::memory_order_relaxed);
  const std::lock_guard lock(pool().mutex);
  pool().lists.push_back(list);
}

bool NodeList::belongs_to_this_thread() const { return owner_.load(std::memory_order_relaxed) == thread_identity(); }

void NodeList::next_chunk(std::size_t bytes) {
  while (chunk_ < chunks_.size() && bytes > chunks_[chunk_].bytes) ++chunk_;
  if (chunk_ == chunks_.size()) {
    const std::size_t size = bytes > kChunkBytes ? bytes : kChunkBytes;
    try {
      chunks_.push_back({nullptr, size});
    } catch (const std::bad_alloc&) {
      throw_no_room();
    }
    char*& memory = chunks_.back().memory;
    memory = static_cast<char*>(std::malloc(size));
    if (memory == nullptr) {
      chunks_.pop_back();
      throw_no_room();
    }
  }
  next_ = chunks_[chunk_].memory;
  end_ = next_ + chunks_[chunk_].bytes;
  ++chunk_;
}

Node& NodeList::reserve(std::size_t edges, std::size_t saved, std::size_t callback_bytes, const Tensor* const* outputs,
                        std::size_t output_count) {
  std::size_t dims = 0;
  for (std::size_t i = 0; i < output_count; ++i) dims += static_cast<std::size_t>(outputs[i]->rank());
  constexpr std::size_t at_callback = rounded(sizeof(Node));
  const std::size_t at_edges = at_callback + rounded(callback_bytes);
  const std::size_t at_saved = at_edges + edges * sizeof(Edge);
  const std::size_t at_dims = at_saved + saved * sizeof(SavedVersion);
  const std::size_t bytes = rounded(at_dims + dims * sizeof(std::int64_t));
  if (static_cast<std::size_t>(end_ - next_) < bytes) [[unlikely]]
    next_chunk(bytes);
  char* const memory = next_;
  return *new (memory) Node{.op = nullptr,
                            .where = {},
                            .run = nullptr,
                            .destroy = nullptr,
                            .see = nullptr,
                            .callback = memory + at_callback,
                            .edges = reinterpret_cast<Edge*>(memory + at_edges),
                            .saved = reinterpret_cast<SavedVersion*>(memory + at_saved),
                            .slot = slot_end(),
                            .edge_count = static_cast<std::int32_t>(edges),
                            .saved_count = static_cast<std::int32_t>(saved),
                            .output_count = static_cast<std::int32_t>(output_count),
                            .released = false};
}

void NodeList::append(Node& node, const Tensor* const* outputs) {
  auto* dim = reinterpret_cast<std::int64_t*>(node.saved + node.saved_count);
  const std::size_t before = slots_.size();
  try {
    for (int i = 0; i < node.output_count; ++i) {
      const Array& array = outputs[i]->array();
      slots_.push_back({&node, dim, static_cast<std::int8_t>(array.rank()), array.dtype, array.device});
      for (const std::int64_t size : array.shape) *dim++ = size;
    }
    nodes_.push_back(&node);
  } catch (const std::bad_alloc&) {
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(before), slots_.end());
    throw_no_room();
  }
  for (int i = 0; i < node.output_count; ++i) {
    TensorState& state = *outputs[i]->state();
    if (!is_floating(state.array.dtype)) continue;  // indices and the like stay constants
    state.slot = node.slot + i;
    state.list.store(this, std::memory_order_relaxed);
  }
  next_ += rounded(static_cast<std::size_t>(reinterpret_cast<char*>(dim) - next_));
  count_node(1);
}

void NodeList::save(Node& node, const Tensor* const* saved) {
  for (int i = 0; i < node.saved_count; ++i) {
    TensorState* state = saved[i]->state();
    node.saved[i] = {state, 0};
    if (state == nullptr) continue;
    retain(state);
    node.saved[i].version = state->version_root().version.load(std::memory_order_relaxed);
  }
}

void NodeList::release(Node& node) {
  if (node.released) return;
  node.released = true;
  if (node.destroy != nullptr) node.destroy(node.callback);
  for (int i = 0; i < node.edge_count; ++i)
    if (node.edges[i].tensor != nullptr) detail::release(std::exchange(node.edges[i].tensor, nullptr));
  for (int i = 0; i < node.saved_count; ++i)
    if (node.saved[i].tensor != nullptr) detail::release(node.saved[i].tensor);
  count_node(-1);
}

void NodeList::discard_from(std::int64_t begin) {
  for (std::int64_t i = node_count() - 1; i >= begin; --i) {
    release(node(i));
    node(i).run = nullptr;
  }
}

void NodeList::clear() {
  ended_ = sweeps_ > 0;
  if (ended_) return;
  const std::int64_t end = slot_end();
  for (std::size_t i = nodes_.size(); i-- > 0;) release(*nodes_[i]);
  nodes_.clear();
  slots_.clear();
  chunk_ = 0;
  next_ = end_ = nullptr;
  base_.store(end, std::memory_order_release);
}

void refuse_other_threads(const TensorState& x, const char* op, SourceLocation where) {
  const NodeList* on = x.list.load(std::memory_order_relaxed);
  if (!on->belongs_to_this_thread() && on->is_live(x.slot))
    throw Error(
        std::string(op) +
            ": an input is on the live tape of another thread, where its gradient would have to go; pass it as a "
            "constant, computed with untaped or after that tape has ended",
        where);
}

Node* begin_node(const char* op, SourceLocation where, const Tensor* const* inputs, std::size_t input_count,
                 const Tensor* const* outputs, std::size_t output_count, const Tensor* const* saved,
                 std::size_t saved_count, std::size_t callback_bytes) {
  if (thread_tape.traced) [[unlikely]]
    trace_op(op, where, inputs, input_count, outputs, output_count);
  if (!thread_tape.recording) return nullptr;
  NodeList* list = thread_tape.list;
  if (!where.known()) {  // a part of what the user called
    where = running.where.known() ? running.where : running.forward;
    if (running.op != nullptr) op = running.op;
  }
  if (thread_tape.strict) check_results(op, inputs, input_count, outputs, output_count, where);

  Node& node = list->reserve(input_count, saved_count, callback_bytes, outputs, output_count);
  bool tracked = false;
  for (std::size_t i = 0; i < input_count; ++i) {
    Edge& edge = node.edges[i];
    edge = {kConstant, nullptr};
    if (!inputs[i]->defined()) continue;  // an optional input that was left out
    TensorState* state = inputs[i]->state();
    edge.slot = slot_on(list, *state, op, where);
    if (edge.slot == kConstant && is_trainable(*state)) edge = {kParameter, state};
    tracked |= edge.slot != kConstant;
  }
  if (!tracked) return nullptr;

  list->append(node, outputs);
  node.op = op;
  node.where = where;
  if (thread_tape.strict) node.infinity = given_infinity();
  for (std::size_t i = 0; i < input_count; ++i)
    if (node.edges[i].tensor != nullptr) retain(node.edges[i].tensor);
  NodeList::save(node, saved);
  return &node;
}

void refuse_if_taped(const Tensor& x, const char* call, SourceLocation where) {
  const auto refuse = [&](const TensorState& state) {
    const NodeList* list = state.list.load(std::memory_order_relaxed);
    if (list != nullptr && list->is_live(state.slot))
      throw VersionError(std::string(call) +
                             ": the tensor is on a live tape, and values on a tape do not change; write to a "
                             "clone, or outside the tape's scope",
                         where);
  };
  refuse(*x.state());
  refuse(x.state()->version_root());
}

}  // namespace reel::detail
