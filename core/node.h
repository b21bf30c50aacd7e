#pragma once

// The tape's inside, as far as templates need it: nodes, and how ops put callbacks on them.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

#include "reel/core/source_location.h"
#include "reel/core/tensors.h"

namespace reel::detail {

class NodeList;
class Sweep;
struct Node;

/// What a callback sees of the sweep: the gradients of its op's outputs, and where those of its inputs go.
class REEL_API Gradients {
 public:
  /// The gradient of output i. With several outputs it is undefined where an output was not used.
  const Tensor& dy(int i = 0) const;
  /// All of them.
  Tensors dys() const;
  /// dy(), for its last use in a callback: the tensor may go on without a copy, as somebody else's gradient.
  Tensor take_dy();
  /// False: nobody wants the gradient of this input.
  bool needs(int input) const;
  /// The shape of an input that needs a gradient, which is also that gradient's.
  Shape shape(int input) const;
  bool has_shape(int input, const Shape& shape) const;
  DType dtype(int input) const;
  /// Adds dx to the gradient of an input. Undefined: nothing. Throws ShapeError, DTypeError, DeviceError.
  void add(int input, Tensor dx);
  /// Memory of the input's gradient for a kernel to work in. If `fresh`, its contents are undefined and must be overwritten,
  /// else the kernel must add to it. Not while `recording()`.
  struct Destination {
    Tensor dx;
    bool fresh;
  };
  Destination destination(int input) { return destination(input, nullptr); }
  /// For kernels that take any strides: where it is fresh and no parameter's, its axes lie in memory in that order.
  Destination destination(int input, const AxisOrder& order) { return destination(input, &order); }
  /// For the first gradient of an input that is a view (x[i], permute, ...): its place in the gradient of what it is a view of, any
  /// strides. The kernel must write all of it, and nothing is added then. Undefined: there is no such place.
  Tensor place(int input);
  /// `destination` for a kernel that takes several, some of which may be one tensor's: it must write the one asked for first before
  /// it adds to the others, and all before anything else is added. Empty if nobody wants it.
  GradientSink sink(int input);
  /// The callback must compute with recorded ops: a tape outside wants to differentiate it.
  bool recording() const;
  /// Throws Error unless the op has `count` inputs.
  void check_count(std::size_t count) const;

 private:
  friend class Sweep;
  friend struct Recompute;
  Gradients(Sweep& sweep, const Node& node) : sweep_(sweep), node_(node) {}
  Destination destination(int input, const AxisOrder* order);
  Sweep& sweep_;
  const Node& node_;
};

/// Where an input's gradient goes: to an earlier output on the list, to a parameter, or nowhere.
struct Edge {
  std::int64_t slot;    // >= 0: that output; kConstant or kParameter
  TensorState* tensor;  // the parameter's value; one reference
};
inline constexpr std::int64_t kConstant = -1;
inline constexpr std::int64_t kParameter = -2;

struct SavedVersion {
  TensorState* tensor;  // one reference
  std::uint32_t version;
};

/// What a view shows of a tensor: all of it, or along `axis` what lies in [begin, end). Undefined: it can't be said.
struct Seen {
  Tensor part = {};
  int axis = -1;
  std::int64_t begin = 0, end = 0;
};

/// One recorded op. Lives in the list's arena, followed by its edges, saved versions, output shapes and callback.
struct Node {
  const char* op;
  SourceLocation where;
  void (*run)(void* callback, Gradients& gradients);  // null for a watched tensor
  void (*destroy)(void* callback);
  Seen (*see)(const void* callback, const Tensor& whole, const Shape& shape);  // null unless the op is a view
  void* callback;
  Edge* edges;
  SavedVersion* saved;
  std::int64_t slot;                                   // of its first output
  std::int32_t edge_count, saved_count, output_count;  // a stack of a million tensors is one op
  bool released;
  std::int8_t infinity = 0;  // 1 or -1: it was computed with this one, given as a number (check_finite)
};

/// Where in its list a tape began.
struct Mark {
  NodeList* list = nullptr;
  std::int64_t node = 0, slot = 0;
  int depth = 0;  // 0 for the outermost
  bool outer_recording = false, outer_strict = false;
};

// Plain thread-local data, reached without a call.
struct ThreadTape {
  bool recording = false;    // a tape is alive, not paused
  bool traced = false;       // a Trace is alive
  bool strict = false;       // check_finite
  NodeList* list = nullptr;  // what is recorded to
};
extern REEL_API thread_local constinit ThreadTape thread_tape REEL_FAST_TLS;

/// Somebody wants to know of each op: the tape or a Trace.
inline bool taping() { return thread_tape.recording | thread_tape.traced; }

class Pause {
 public:
  Pause() : before_(thread_tape.recording) { thread_tape.recording = false; }
  ~Pause() { thread_tape.recording = before_; }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  bool before_;
};

/// Tells the living Trace that an op has ended; it began with the first use of a backend since the last one.
REEL_API void trace_op(const char* op, SourceLocation where, const Tensor* const* inputs, std::size_t input_count,
                       const Tensor* const* outputs, std::size_t output_count);
/// The same for ops that have no gradient and are never recorded.
inline void ran(const char* op, SourceLocation where, std::initializer_list<const Tensor*> inputs, const Tensor& y) {
  const Tensor* output = &y;
  if (thread_tape.traced) [[unlikely]]
    trace_op(op, where, inputs.begin(), inputs.size(), &output, 1);
}

/// Begins a node if one of the inputs is tracked, else returns null; the callback is then constructed at node->callback.
REEL_API Node* begin_node(const char* op, SourceLocation where, const Tensor* const* inputs, std::size_t input_count,
                          const Tensor* const* outputs, std::size_t output_count, const Tensor* const* saved,
                          std::size_t saved_count, std::size_t callback_bytes);

template <class F>
void fill_node(Node* node, F&& callback) {
  using Callback = std::decay_t<F>;
  static_assert(alignof(Callback) <= 16);
  new (node->callback) Callback(std::forward<F>(callback));
  node->run = [](void* memory, Gradients& gradients) { (*static_cast<Callback*>(memory))(gradients); };
  if constexpr (requires(const Callback& view, const Tensor& whole, const Shape& shape) { view.see(whole, shape); })
    node->see = [](const void* memory, const Tensor& whole, const Shape& shape) {
      return static_cast<const Callback*>(memory)->see(whole, shape);
    };
  if constexpr (!std::is_trivially_destructible_v<Callback>)
    node->destroy = [](void* memory) { static_cast<Callback*>(memory)->~Callback(); };
}

/// For Reel's own ops, after `if (taping())`: y was computed from the inputs; callback(Gradients&) is the backward; writes
/// to the `saved` tensors, which the callback reads, are noticed. The callback of a view may have see(whole, shape) too, which shows
/// of the gradient of what it is a view of the part that is its own, of the view's shape.
template <class F>
void record_op(const char* op, SourceLocation where, std::initializer_list<const Tensor*> inputs, const Tensor& y,
               std::initializer_list<const Tensor*> saved, F&& callback) {
  const Tensor* output = &y;
  Node* node = begin_node(op, where, inputs.begin(), inputs.size(), &output, 1, saved.begin(), saved.size(),
                          sizeof(std::decay_t<F>));
  if (node != nullptr) fill_node(node, std::forward<F>(callback));
}

/// Addresses of a list's tensors; the first few without an allocation.
class Pointers {
 public:
  explicit Pointers(const Tensors& tensors) : size_(tensors.size()) {
    if (size_ > kFew) many_.resize(size_);
    for (std::size_t i = 0; i < size_; ++i) (size_ > kFew ? many_.data() : few_)[i] = &tensors[i];
  }
  const Tensor* const* data() const { return size_ > kFew ? many_.data() : few_; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kFew = 8;
  std::size_t size_;
  const Tensor* few_[kFew];
  std::vector<const Tensor*> many_;
};

/// The same for lists.
template <class F>
void record_list(const char* op, SourceLocation where, const Tensors& inputs, const Tensors& outputs,
                 const Tensors& saved, F&& callback) {
  const Pointers in(inputs), out(outputs), keep(saved);
  Node* node = begin_node(op, where, in.data(), in.size(), out.data(), out.size(), keep.data(), keep.size(),
                          sizeof(std::decay_t<F>));
  if (node != nullptr) fill_node(node, std::forward<F>(callback));
}

/// Throws VersionError if a live tape of any thread knows x or what x is a view of.
REEL_API void refuse_if_taped(const Tensor& x, const char* call, SourceLocation where);

}  // namespace reel::detail
