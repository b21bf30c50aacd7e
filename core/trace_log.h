#pragma once

// Private to core/, the backends' entry and custom ops: what reports to a living Trace. Call these only while thread_tape.traced.

#include "reel/core/node.h"

namespace reel::detail {

/// An op begins here unless it has begun already.
REEL_API void trace_start();
/// Whatever has begun was no op.
void trace_settle();
void trace_created(TensorState* state, SourceLocation where);
void trace_destroyed(TensorState* state) noexcept;

/// A callback that runs; what it computes lies inside it.
class BackwardTrace {
 public:
  BackwardTrace(const Node& node, const Gradients& gradients) {
    if (thread_tape.traced) [[unlikely]]
      begin(node, gradients);
  }
  ~BackwardTrace() {
    if (began_) [[unlikely]]
      end();
  }
  BackwardTrace(const BackwardTrace&) = delete;
  BackwardTrace& operator=(const BackwardTrace&) = delete;

 private:
  void begin(const Node& node, const Gradients& gradients);
  void end();
  bool began_ = false;
};

}  // namespace reel::detail
