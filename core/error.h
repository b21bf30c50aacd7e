#pragma once

#include <stdexcept>
#include <string>

#include "reel/core/source_location.h"

namespace reel {

/// What Reel throws. The text is "op: what is required, got what (at file:line)".
class REEL_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
  /// Adds " (at file:line)" if `where` is known.
  Error(const std::string& text, SourceLocation where);
};

/// Sizes, ranks or axes that do not fit.
class REEL_API ShapeError : public Error {
 public:
  using Error::Error;
};
/// An element type that an op does not take.
class REEL_API DTypeError : public Error {
 public:
  using Error::Error;
};
/// An index outside its range.
class REEL_API IndexError : public Error {
 public:
  using Error::Error;
};
/// A device that is missing, or operands on different devices.
class REEL_API DeviceError : public Error {
 public:
  using Error::Error;
};
class REEL_API OutOfMemory : public Error {
 public:
  using Error::Error;
};
/// A file that cannot be read, written or believed.
class REEL_API FileError : public Error {
 public:
  using Error::Error;
};
/// A tensor that was written after an op saved it for backward.
class REEL_API VersionError : public Error {
 public:
  using Error::Error;
};

}  // namespace reel
