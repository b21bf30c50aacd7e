#include "reel/core/index_error.h"

#include <string>

#include "reel/core/error.h"

namespace reel {

void throw_index_error(const char* op, std::int64_t limit, std::int64_t value, std::int64_t position,
                       SourceLocation where) {
  const std::string range =
      limit == kOfSequences ? "count rows of their sequences" : "be in [0, " + std::to_string(limit) + ")";
  throw IndexError(std::string(op) + ": indices must " + range + ", got " + std::to_string(value) + " at position " +
                       std::to_string(position),
                   where);
}

}  // namespace reel
