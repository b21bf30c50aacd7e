#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reel/core/dtype.h"
#include "reel/core/error.h"
#include "reel/core/macros.h"
#include "reel/core/shape.h"
#include "reel/nn/file.h"

/// The safetensors file format (github.com/huggingface/safetensors): eight bytes of little-endian header length, a JSON
/// header, then the elements. The header maps each tensor's name to its dtype, shape and range of bytes, counted from the
/// end of the header; "__metadata__" in it maps strings to strings.
namespace reel::nn::safetensors {

/// A header longer than this is refused, whatever the file's size; the format's own limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

using Metadata = std::map<std::string, std::string>;

/// What a file says of one tensor. Its bytes are [begin, end) of the data after the header.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

/// A tensor to be written: row-major elements in host memory, `size_of(dtype) * shape.size()` bytes of them.
struct Source {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const void* data = nullptr;
};

/// Writes a file whole or not at all (see AtomicFile). The header lists the tensors in the order given; their elements lie
/// sorted by element size, large ones first, so that every tensor is aligned. Equal arguments give equal bytes.
/// Throws FileError for names that are twice there, not UTF-8 or "__metadata__", and when the file cannot be written.
REEL_API void write(const std::string& path, const std::vector<Source>& tensors, const Metadata& metadata = {},
                    SourceLocation where = SourceLocation::current());

/// A file opened for reading. Nothing in it is believed: the constructor checks the whole header against the file's size
/// before anything of a tensor's size is allocated or read.
class REEL_API Reader {
 public:
  /// Throws FileError, which names the file and what is wrong, unless the file is a complete safetensors file: the header
  /// within bounds, valid JSON with each key once and only known ones, known dtypes, at most kMaxRank axes, sizes without
  /// overflow, ranges that fit dtype and shape and cover the data without overlap, gap or remainder.
  explicit Reader(const std::string& path, SourceLocation where = SourceLocation::current());

  /// In the order of the header.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The entry of that name, or nullptr.
  const Entry* find(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }

  /// Reads the elements of one of `entries()` straight into the caller's `entry.bytes()` bytes. May be called from several
  /// threads. Throws FileError if the file has become shorter, or if a bool is neither 0 nor 1.
  void read(const Entry& entry, void* destination) const;

 private:
  InputFile file_;
  std::uint64_t data_offset_ = 0;  // where in the file the elements begin
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices into entries_
  Metadata metadata_;
};

}  // namespace reel::nn::safetensors
