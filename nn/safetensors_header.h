#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/nn/safetensors.h"

// The JSON header of a safetensors file, as text. Internal to nn/.
namespace reel::nn::safetensors {

struct Header {
  std::vector<Entry> entries;
  Metadata metadata;
};

/// The header that `text` says. Checked is what one entry says by itself: JSON, keys, dtype, rank, sizes, and that
/// end - begin is what dtype and shape need. Throws FileError with a text that does not yet name the file.
Header parse_header(const std::string& text);

/// The header of `tensors`, padded with spaces so that the data behind it start at a multiple of eight.
std::string format_header(const std::vector<Entry>& entries, const Metadata& metadata);

/// Bytes of a tensor of that type and shape; none if a size is negative or they cannot be counted in 63 bits.
std::optional<std::uint64_t> bytes_of(DType dtype, const Shape& shape);

/// Text from a file, fit for a message: in quotes, short, printable.
std::string shown(std::string_view text);

}  // namespace reel::nn::safetensors
