#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "reel/core/macros.h"
#include "reel/core/source_location.h"

namespace reel {

namespace detail {
struct TraceLog;
}

/// One op that ran.
struct TraceEvent {
  std::string op = {};
  bool backward = false;
  SourceLocation where = {};  // of the forward call
  double start = 0;           // microseconds since the Trace began
  double duration = 0;        // microseconds
  double inside = 0;          // the part of it that belongs to events inside this one
  std::int64_t bytes = 0;     // of its inputs and outputs
  std::string shapes = {};    // "[64, 3] [3] -> [64]"
};

/// While a Trace is alive, the ops that run in its thread are noted, recorded or not, forward and backward, with their times;
/// not views, which compute nothing.
/// The innermost of several Traces notes. Without one an op pays for a flag that it looks at.
///
/// An op lasts from its first use of a backend to its end; a callback that is made of other ops contains them. A GPU works
/// on behind the caller: there the times are what the calls took, not what the kernels did.
class REEL_API Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// In the order in which they ended.
  const std::vector<TraceEvent>& events() const;
  /// A table by op, shapes and source line, the longest times first; at most `rows` of them.
  std::string table(int rows = 30) const;
  /// The tensors made since the Trace began that are still there, by the op and the line that made them, most bytes first:
  /// what grows from step to step is what is never let go.
  std::string live_tensors(int rows = 30) const;
  /// Writes the events for chrome://tracing or https://ui.perfetto.dev (JSON). Throws FileError.
  void write_chrome(const std::string& path, SourceLocation where = SourceLocation::current()) const;

 private:
  std::unique_ptr<detail::TraceLog> log_;
};

/// table()
REEL_API std::ostream& operator<<(std::ostream& out, const Trace& trace);

}  // namespace reel
