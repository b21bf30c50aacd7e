#pragma once

// Private to core/: the list of recorded ops of a thread.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "reel/core/node.h"
#include "reel/core/parameter.h"

namespace reel::detail {

/// What a sweep must know of an output: its shape, for checks and for zeros.
struct SlotInfo {
  Node* node;
  const std::int64_t* dims;
  std::int8_t rank;
  DType dtype;
  Device device;

  Shape shape() const { return Shape::of(dims, rank); }
  bool has_shape(const Shape& shape) const {
    if (shape.rank() != rank) return false;
    for (int i = 0; i < rank; ++i)
      if (shape[i] != dims[i]) return false;
    return true;
  }
};

/// Recorded ops in execution order. Nodes lie in chunks that are reused and never move; outputs are numbered by slots that
/// are never reused, so that a tensor whose slot lies below `base` is known to be a constant. Lists are never freed: a
/// tensor may name one that has ended.
class NodeList {
 public:
  /// One for the calling thread, new or of a thread that has ended.
  static NodeList* acquire();
  /// Empties the list and makes it anyone's.
  static void give_back(NodeList* list);

  std::int64_t node_count() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::int64_t slot_end() const {
    return base_.load(std::memory_order_relaxed) + static_cast<std::int64_t>(slots_.size());
  }
  Node& node(std::int64_t i) const { return *nodes_[static_cast<std::size_t>(i)]; }
  const SlotInfo& slot(std::int64_t slot) const {
    return slots_[static_cast<std::size_t>(slot - base_.load(std::memory_order_relaxed))];
  }
  bool is_live(std::int64_t slot) const { return slot >= base_.load(std::memory_order_acquire); }
  bool belongs_to_this_thread() const;

  /// A node with room for everything, to be filled in; it is on the list once it is appended, and else forgotten.
  Node& reserve(std::size_t edges, std::size_t saved, std::size_t callback_bytes, const Tensor* const* outputs,
                std::size_t output_count);
  /// Appends the node that was reserved last: from now on these tensors are its outputs. Throws OutOfMemory, and has changed nothing.
  void append(Node& node, const Tensor* const* outputs);
  /// Keeps these tensors for the node's callback, and notes how often they were written.
  static void save(Node& node, const Tensor* const* saved);
  /// Drops what the callback and the node hold.
  static void release(Node& node);
  /// The same for all nodes from `begin` on, whose results were computed only to be computed again (checkpoint).
  void discard_from(std::int64_t begin);
  /// Releases all nodes, newest first, and forgets them; when the last sweep has ended, if there are some now.
  void clear();
  /// While a sweep reads the nodes they stay, even if a callback ends the tape.
  void begin_sweep() { ++sweeps_; }
  void end_sweep() {
    if (--sweeps_ > 0 || !ended_) return;
    ended_ = false;
    if (live_tapes == 0) clear();
  }
  /// A callback has ended the tape that is being swept.
  bool ended_in_sweep() const { return ended_; }
  bool is_sweeping() const { return sweeps_ > 0; }
  /// No sweep runs inside a callback of another.
  bool is_outermost_sweep() const { return sweeps_ == 1; }

  int live_tapes = 0;
  bool ended_out_of_order = false;  // a tape, before one that began after it; until all have ended

 private:
  NodeList() = default;
  void next_chunk(std::size_t bytes);

  struct Chunk {
    char* memory;
    std::size_t bytes;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;                  // the next one to use
  char *next_ = nullptr, *end_ = nullptr;  // what is left of the one before
  std::vector<Node*> nodes_;
  std::vector<SlotInfo> slots_;
  int sweeps_ = 0;
  bool ended_ = false;
  std::atomic<std::int64_t> base_{0};
  std::atomic<const void*> owner_{nullptr};
};

/// Throws Error if x is on the live tape of another thread.
void refuse_other_threads(const TensorState& x, const char* op, SourceLocation where);
/// The slot of x on `list`, kConstant if it has none there. Throws Error if x is on the live tape of another thread.
inline std::int64_t slot_on(const NodeList* list, const TensorState& x, const char* op, SourceLocation where) {
  const NodeList* on = x.list.load(std::memory_order_relaxed);
  if (on == nullptr) return kConstant;
  if (on == list) return list->is_live(x.slot) ? x.slot : kConstant;
  refuse_other_threads(x, op, where);
  return kConstant;
}

/// x is a trainable parameter's value.
inline bool is_trainable(const TensorState& x) { return x.parameter != nullptr && x.parameter->trainable; }

/// A tensor and what it is to an op.
struct NamedOperand {
  std::string name;
  Tensor tensor;
};
/// What was computed of what.
struct Computed {
  Tensor x;
  const char* op;
  std::string what;  // x is to the op
  std::vector<NamedOperand> operands;
  std::vector<double> numbers;  // that it was computed with as well
  SourceLocation where;
  bool backward = false;
  SourceLocation recorded = {};  // where the op whose callback computed it was
};
/// On the CPU: throws Error if x, a floating tensor, has a NaN, or an infinity although no operand has one. On a GPU that is
/// only noted, without waiting for it; x and the operands are kept until then.
void check_finite(Computed computed);
/// Waits for the GPU once if anything has been noted, and throws what has been first, if it is so. All is forgotten.
void check_unread();
/// The same where somebody has waited for the GPU anyway; but not inside a sweep, which has a word of its own at its end.
void check_unread_after_wait();
/// The tape ends: what there is to tell is kept for check_told_late and those above, or forgotten.
void end_unread(bool silently) noexcept;
/// Throws what a tape left when it ended; but not inside a sweep.
void check_told_late();
/// "op (recorded at file:line)"
std::string described(const char* op, SourceLocation recorded);
inline std::string described(const Node& node) { return described(node.op, node.where); }
/// The sign of the first infinity among the numbers that are given (core/given_numbers.h), 0 if there is none.
std::int8_t given_infinity();
/// check_finite for an op's results.
void check_results(const char* op, const Tensor* const* inputs, std::size_t input_count, const Tensor* const* outputs,
                   std::size_t output_count, SourceLocation where);

}  // namespace reel::detail
