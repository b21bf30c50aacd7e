#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "reel/core/error.h"
#include "reel/core/macros.h"

namespace reel::nn {

/// A file that appears under its name whole or not at all. Bytes go to a temporary file in the same folder; commit() makes
/// them durable and gives them the name, replacing what was there. Without commit() the old file stays as it was and the
/// temporary one is removed.
///
/// An existing file keeps its permissions, and a symbolic link keeps pointing where it did: its target is replaced.
/// Every function throws FileError that names the file and what the system said.
class REEL_API AtomicFile {
 public:
  /// Throws FileError if the folder cannot be written, or if something other than a regular file has that name.
  explicit AtomicFile(const std::string& path, SourceLocation where = SourceLocation::current());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes.
  void write(const void* bytes, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Flushes to the disk, renames, and flushes the folder. Call once, last. If only the folder could not be flushed, the
  /// new file is in place when this throws.
  void commit();

 private:
  [[noreturn]] void fail(const char* action, int error) const;

  std::string path_;       // as given, for messages
  std::string target_;     // with symbolic links resolved
  std::string temporary_;  // empty once it is gone
  SourceLocation where_;
  int descriptor_ = -1;
};

/// A regular file opened for reading, at any offset and from any thread.
class REEL_API InputFile {
 public:
  /// Throws FileError if there is no such file, or if it is something other than a regular file.
  explicit InputFile(const std::string& path, SourceLocation where = SourceLocation::current());
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// In bytes, when it was opened.
  std::uint64_t size() const { return size_; }
  /// Reads exactly `size` bytes. Throws FileError if the file ends before.
  void read(std::uint64_t offset, void* destination, std::uint64_t size) const;
  /// Throws a FileError that names the file and the line that opened it.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string path_;
  SourceLocation where_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// Writes `text` as the whole content of the file, by AtomicFile.
REEL_API void write_file(const std::string& path, std::string_view text,
                         SourceLocation where = SourceLocation::current());

}  // namespace reel::nn
