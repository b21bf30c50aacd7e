#pragma once

#include <exception>
#include <string>

#include "reel/core/source_location.h"

namespace reel {

/// What Reel throws. The text is "op: what is required, got what (at file:line)".
class REEL_API Error : public std::exception {
 public:
  explicit Error(std::string text) : text_(std::move(text)) {}
  /// Adds " (at file:line)": `where`, or if that is not known the line that called the op which runs.
  Error(std::string text, SourceLocation where);
  ~Error() override;

  const char* what() const noexcept override { return text_.c_str(); }
  /// Puts "context: " in front, as when an error inside a backward callback is told with the op that recorded it.
  void prepend(const std::string& context) { text_ = context + ": " + text_; }

 private:
  std::string text_;
};

/// Sizes, ranks or axes that do not fit.
class REEL_API ShapeError : public Error {
 public:
  using Error::Error;
  ~ShapeError() override;
};
/// An element type that an op does not take.
class REEL_API DTypeError : public Error {
 public:
  using Error::Error;
  ~DTypeError() override;
};
/// An index outside its range.
class REEL_API IndexError : public Error {
 public:
  using Error::Error;
  ~IndexError() override;
};
/// A device that is missing, or operands on different devices.
class REEL_API DeviceError : public Error {
 public:
  using Error::Error;
  ~DeviceError() override;
};
/// Memory that could not be had; the text tells the op, the bytes requested, live and cached. Holds no tensors.
class REEL_API OutOfMemory : public Error {
 public:
  using Error::Error;
  ~OutOfMemory() override;
};
/// A file that cannot be read, written or believed.
class REEL_API FileError : public Error {
 public:
  using Error::Error;
  ~FileError() override;
};
/// A tensor that was written after an op saved it for backward, or a write that must not happen.
class REEL_API VersionError : public Error {
 public:
  using Error::Error;
  ~VersionError() override;
};

}  // namespace reel
