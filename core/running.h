#pragma once

#include <cstdint>
#include <string>

#include "reel/core/macros.h"
#include "reel/core/source_location.h"

namespace reel::detail {

/// What this thread is about, for errors that arise where nobody has been told: memory that is not to be had, and in the ops
/// of which others are made.
struct Running {
  const char* op = nullptr;  // that the user called last; a string constant
  SourceLocation where;      // on this line
  SourceLocation forward;    // while a callback of a sweep runs: the line that recorded it
};
#define REEL_FAST_TLS __attribute__((tls_model("initial-exec")))
extern REEL_API thread_local constinit Running running REEL_FAST_TLS;

/// Every op begins with it. Ops that are called without the user's line are parts of what runs.
REEL_INLINE void now_running(const char* op, SourceLocation where) {
  if (!where.known()) return;
  running.op = op;
  running.where = where;
}
/// The same for calls that cannot know the user's line.
REEL_INLINE void now_running_somewhere(const char* op) {
  running.op = op;
  running.where = {};
}

/// The op that runs, for the beginning of an error's text.
REEL_API std::string running_op();
/// Throws Error "call: the <kind> is undefined".
[[noreturn]] REEL_API void refuse_undefined(const char* call, const char* kind, SourceLocation where);
/// Throws IndexError "call: the <kind> must be in [least, count), got index".
[[noreturn]] REEL_API void refuse_index(const char* call, const char* kind, std::int64_t least, std::int64_t count,
                                        std::int64_t index, SourceLocation where);

}  // namespace reel::detail
