#pragma once

// Private to core/: one reverse pass over a range of a list.

#include <cstdint>
#include <memory>
#include <vector>

#include "reel/core/node_list.h"
#include "reel/core/parameter_sink.h"
#include "reel/core/tape.h"

namespace reel::detail {

/// Marks what depends on the wanted tensors, then runs callbacks from newest to oldest. Gradient slots belong to the sweep,
/// so that sweeps may run inside callbacks.
class Sweep {
 public:
  /// Without `wanted`, the gradients of all trainable parameters are wanted and go to them.
  Sweep(const Mark& mark, const char* call, const Tensor& y, const Tensors* wanted, SweepOptions options,
        SourceLocation where);
  ~Sweep();
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  /// Gradients go to the trainable parameters too, although others are wanted.
  void include_parameters() { parameters_ = true; }
  /// The gradient of this edge, which leads out of the range, is wanted; taken(i) gives it for the i-th one, or an undefined
  /// tensor if none arrived.
  void want(const Edge& edge) { outside_.push_back({edge.slot, edge.tensor, {}}); }
  const Tensor& taken(std::size_t i) const { return outside_[i].gradient; }
  void run(Tensor dy);
  /// Parameters' gradients take effect.
  void commit();
  /// The gradient of wanted tensor i; zeros if none arrived.
  Tensor result(std::size_t i) const;

 private:
  friend class Gradients;
  friend struct Recompute;
  // Of an output: its gradient is needed; and wanted by the caller; its op's callback must run.
  static constexpr std::uint8_t kNeeded = 1, kWanted = 2, kRuns = 4;
  // Of an output's gradient: it is a part of that of the op's input; others are parts of it; some of it may not be written yet.
  static constexpr std::uint8_t kPlaced = 8, kHasPlaces = 16, kOpen = 32;
  struct SinkLink {  // from the tensors' cache, as a vector's elements would not be
    ParameterSink sink;
    SinkLink* next;
  };
  struct Outside {  // wanted, but not an output in this range
    std::int64_t slot;
    TensorState* parameter;
    Tensor gradient;
  };

  // A gradient in which places were given to views, from `begin` to `end` of `axis`: what lies beside them has no value yet.
  struct Open {
    std::int64_t slot, begin, end;
    int axis;
  };

  void mark();
  void run_node(const Node& node);
  void check_versions(const Node& node) const;
  void check_gradients(const Node& node);
  bool needs(const Edge& edge) const;
  bool needs_outside(const Edge& edge) const;
  Tensor* sum_at(const Edge& edge);
  Tensor give_place(std::int64_t slot, int depth);
  bool take_part(std::int64_t whole, const Seen& seen, bool fresh);
  void set_open(std::int64_t slot, bool open);
  void close();
  void leave_place(std::int64_t slot);
  bool is_in_places(const Edge& edge) const {
    return edge.slot >= begin_ && (flags(edge.slot) & (kPlaced | kHasPlaces));
  }
  SlotInfo info(const Edge& edge) const;
  void check_gradient(const Node& node, int input, const Tensor& dx) const;
  [[noreturn]] void refuse_gradient(const SlotInfo& required, int input, const Tensor& dx) const;
  void accumulate(Tensor& sum, const Tensor& dx);
  void add_to_parameter(ParameterState& parameter, const Tensor& dx);
  ParameterSink& sink(ParameterState& parameter);
  std::uint8_t& flags(std::int64_t slot) const { return flags_[slot - begin_]; }
  Tensor& gradient(std::int64_t slot) const { return gradients_[slot - begin_]; }

  static constexpr int kMostOpen = 4;
  Open open_[kMostOpen];
  int open_count_ = 0;
  NodeList& list_;
  const Tensors* wanted_;
  const char* call_;
  SourceLocation where_;
  std::int64_t begin_, end_, y_slot_;  // slots
  std::int64_t first_node_, last_node_;
  bool releasing_;
  bool parameters_;
  Tensor* gradients_ = nullptr;    // [end - begin]
  std::uint8_t* flags_ = nullptr;  // [end - begin]
  std::vector<Outside> outside_;
  SinkLink* sinks_ = nullptr;
};

/// Throws unless dy can start a sweep from y.
void check_start(const char* call, const Tensor& y, const Tensor& dy, SourceLocation where);

}  // namespace reel::detail
