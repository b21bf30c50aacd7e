#include "reel/core/error.h"

#include <utility>

#include "reel/core/running.h"

namespace reel {

namespace detail {

thread_local constinit Running running;

std::string running_op() { return running.op != nullptr ? running.op : "memory"; }

void refuse_undefined(const char* call, const char* kind, SourceLocation where) {
  throw Error(std::string(call) + ": the " + kind + " is undefined", where);
}

void refuse_index(const char* call, const char* kind, std::int64_t least, std::int64_t count, std::int64_t index,
                  SourceLocation where) {
  throw IndexError(std::string(call) + ": the " + kind + " must be in [" + std::to_string(least) + ", " +
                       std::to_string(count) + "), got " + std::to_string(index),
                   where);
}

}  // namespace detail

namespace {

std::string with_location(std::string text, SourceLocation where) {
  if (!where.known()) where = detail::running.where;
  if (!where.known()) return text;
  return std::move(text) + " (at " + where.file + ":" + std::to_string(where.line) + ")";
}

}  // namespace

Error::Error(std::string text, SourceLocation where) : text_(with_location(std::move(text), where)) {}

// Out of line, so that each type's RTTI lives in this library alone and can be caught across its boundary.
Error::~Error() = default;
ShapeError::~ShapeError() = default;
DTypeError::~DTypeError() = default;
IndexError::~IndexError() = default;
DeviceError::~DeviceError() = default;
OutOfMemory::~OutOfMemory() = default;
FileError::~FileError() = default;
VersionError::~VersionError() = default;

}  // namespace reel
