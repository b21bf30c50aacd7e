#include "reel/nn/safetensors.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "reel/nn/safetensors_header.h"

namespace reel::nn::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

constexpr std::uint64_t kLengthBytes = 8;

// Indices 0, 1, ... of `entries`, sorted by `before`, equal ones in their old order.
template <class Before>
std::vector<std::uint32_t> sorted_indices(const std::vector<Entry>& entries, Before before) {
  std::vector<std::uint32_t> indices(entries.size());
  std::iota(indices.begin(), indices.end(), 0u);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return before(entries[a], entries[b]); });
  return indices;
}

// Sorted by name. Throws FileError if a name is there twice.
std::vector<std::uint32_t> indices_by_name(const std::vector<Entry>& entries) {
  auto indices = sorted_indices(entries, [](auto& a, auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < indices.size(); ++i)
    if (entries[indices[i]].name == entries[indices[i - 1]].name)
      throw FileError("each tensor needs a name of its own, got " + shown(entries[indices[i]].name) + " twice");
  return indices;
}

// Lays the tensors out one after another, large elements first, and returns them in that order.
std::vector<std::uint32_t> assign_ranges(std::vector<Entry>& entries) {
  auto order = sorted_indices(entries, [](auto& a, auto& b) { return size_of(a.dtype) > size_of(b.dtype); });
  std::uint64_t offset = 0;
  for (const std::uint32_t i : order) {
    Entry& entry = entries[i];
    const std::optional<std::uint64_t> bytes = bytes_of(entry.dtype, entry.shape);
    entry.begin = offset;
    if (!bytes || __builtin_add_overflow(offset, *bytes, &offset))
      throw FileError("tensor " + shown(entry.name) + " needs sizes that can be counted, got " + entry.shape.str());
    entry.end = offset;
  }
  return order;
}

std::string read_header(const InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes)
    file.fail("at least 8 bytes of header length are required, got " + std::to_string(file.size()));
  file.read(0, &length, kLengthBytes);
  if (length > kMaxHeaderBytes)
    file.fail("a header of at most 100,000,000 bytes is required, got " + std::to_string(length));
  if (length > file.size() - kLengthBytes)
    file.fail("a header of " + std::to_string(length) + " bytes is required, got the end of the file after " +
              std::to_string(file.size() - kLengthBytes));
  std::string text(length, '\0');
  file.read(kLengthBytes, text.data(), length);
  return text;
}

// The ranges cover [0, data_bytes) once: no overlap, no gap, no remainder.
void check_layout(const std::vector<Entry>& entries, std::uint64_t data_bytes) {
  const auto before = [](auto& a, auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; };
  std::uint64_t covered = 0;
  for (const std::uint32_t i : sorted_indices(entries, before)) {
    const Entry& entry = entries[i];
    if (entry.begin != covered)
      throw FileError("tensor " + shown(entry.name) + " needs to begin where the one before it ends, at byte " +
                      std::to_string(covered) + " of the data, got " + std::to_string(entry.begin));
    if (entry.end > data_bytes)
      throw FileError("tensor " + shown(entry.name) + " needs " + std::to_string(entry.end) +
                      " bytes of data, got a file with " + std::to_string(data_bytes));
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw FileError("the file needs to end where the last tensor does, at byte " + std::to_string(covered) +
                    " of the data, got " + std::to_string(data_bytes - covered) + " more");
}

}  // namespace

void write(const std::string& path, const std::vector<Source>& tensors, const Metadata& metadata,
           SourceLocation where) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (const Source& tensor : tensors) entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  std::vector<std::uint32_t> order;
  std::string header;
  try {
    order = assign_ranges(entries);
    indices_by_name(entries);
    header = format_header(entries, metadata);
    if (header.size() > kMaxHeaderBytes) throw FileError("the names need to fit into 100,000,000 bytes of header");
  } catch (const FileError& error) {
    throw FileError("'" + path + "': " + error.what(), where);
  }

  AtomicFile file(path, where);
  const std::uint64_t length = header.size();
  file.write(&length, kLengthBytes);
  file.write(header);
  for (const std::uint32_t i : order) file.write(tensors[i].data, entries[i].bytes());
  file.commit();
}

Reader::Reader(const std::string& path, SourceLocation where) : file_(path, where) {
  const std::string text = read_header(file_);
  data_offset_ = kLengthBytes + text.size();
  try {
    Header header = parse_header(text);
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
    by_name_ = indices_by_name(entries_);
    check_layout(entries_, file_.size() - data_offset_);
  } catch (const FileError& error) {
    file_.fail(error.what());
  }
}

const Entry* Reader::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::uint32_t i, std::string_view key) { return entries_[i].name < key; });
  return found != by_name_.end() && entries_[*found].name == name ? &entries_[*found] : nullptr;
}

void Reader::read(const Entry& entry, void* destination) const {
  file_.read(data_offset_ + entry.begin, destination, entry.bytes());
  if (entry.dtype != DType::bool8) return;
  const auto* bytes = static_cast<const std::uint8_t*>(destination);
  for (std::uint64_t i = 0; i < entry.bytes(); ++i)  // a C++ bool with any other value is undefined behaviour
    if (bytes[i] > 1)
      file_.fail("tensor " + shown(entry.name) + " needs bools of 0 or 1, got " + std::to_string(bytes[i]));
}

}  // namespace reel::nn::safetensors
