#include "reel/core/error.h"

#include <utility>

namespace reel {

namespace {

std::string with_location(std::string text, SourceLocation where) {
  if (where.file == nullptr || *where.file == '\0') return text;
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
