#include "reel/nn/safetensors_header.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace reel::nn::safetensors {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

constexpr std::pair<const char*, DType> kDTypes[] = {{"F32", DType::f32}, {"F64", DType::f64},   {"BF16", DType::bf16},
                                                     {"F16", DType::f16}, {"I32", DType::i32},   {"I64", DType::i64},
                                                     {"U8", DType::u8},   {"BOOL", DType::bool8}};

const char* dtype_text(DType dtype) {
  for (const auto& [text, known] : kDTypes)
    if (known == dtype) return text;
  return "";
}

/// Follows the parser through the header, knowing at each token what may come. Event-driven rather than a tree, because a
/// tree silently keeps one of two equal keys, and because nesting that does not belong here ends at its first bracket.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  Header header;
  std::string problem;  // why an event was refused

  bool start_object(std::size_t) override {
    switch (expected_) {
      case Expect::header:
        return next(Expect::name);
      case Expect::tensor:
        has_dtype_ = has_shape_ = has_offsets_ = false;
        offset_count_ = 0;
        return next(Expect::field);
      case Expect::metadata:
        return next(Expect::metadata_key);
      default:
        return refuse("an object");
    }
  }

  bool key(std::string& text) override {
    switch (expected_) {
      case Expect::name:
        return begin_entry(text);
      case Expect::field:
        return begin_field(text);
      default:  // the only other object is the metadata
        metadata_key_ = text;
        if (header.metadata.count(text)) return refuse_because("metadata key " + shown(text) + " is there twice");
        return next(Expect::metadata_value);
    }
  }

  bool end_object() override {
    if (expected_ == Expect::field) return end_tensor() && next(Expect::name);
    return next(expected_ == Expect::metadata_key ? Expect::name : Expect::end);
  }

  bool start_array(std::size_t) override {
    if (expected_ == Expect::shape) return next(Expect::size);
    if (expected_ == Expect::offsets) return next(Expect::offset);
    return refuse("an array");
  }

  bool end_array() override {
    if (expected_ == Expect::offset && offset_count_ != 2)
      return refuse_because("data_offsets of " + tensor() + " needs 2 numbers, got " + std::to_string(offset_count_));
    return next(Expect::field);
  }

  bool string(std::string& text) override {
    if (expected_ == Expect::metadata_value) {
      header.metadata[metadata_key_] = text;
      return next(Expect::metadata_key);
    }
    if (expected_ != Expect::dtype) return refuse("a string");
    for (const auto& [name, dtype] : kDTypes) {
      if (text != name) continue;
      entry().dtype = dtype;
      return next(Expect::field);
    }
    return refuse_because("dtype of " + tensor() + " needs to be F32, F64, BF16, F16, I32, I64, U8 or BOOL, got " +
                          shown(text));
  }

  bool number_unsigned(std::uint64_t value) override {
    if (expected_ == Expect::size) {
      if (entry().shape.rank() == kMaxRank)
        return refuse_because(tensor() + " needs to have at most " + std::to_string(kMaxRank) + " axes, got more");
      if (value > INT64_MAX)
        return refuse_because("shape of " + tensor() + " needs sizes below 2^63, got " + std::to_string(value));
      entry().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (expected_ != Expect::offset) return refuse("a number");
    if (offset_count_ < 2) (offset_count_ == 0 ? entry().begin : entry().end) = value;
    ++offset_count_;
    return true;
  }

  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a number that is not a 64-bit integer"); }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    const std::string text = error.what();
    const std::size_t id_end = text.find("] ");  // "[json.exception.parse_error.101] "
    return refuse_because("the header needs to be JSON in UTF-8; at its byte " + std::to_string(position) + ": " +
                          shown(id_end == std::string::npos ? text : text.substr(id_end + 2)));
  }

 private:
  enum class Expect {
    header,          // the outermost object
    name,            // a tensor's name, or "__metadata__"
    tensor,          // the object of a tensor
    field,           // dtype, shape or data_offsets
    dtype,           // its string
    shape,           // its array
    size,            // a number in it
    offsets,         // its array
    offset,          // a number in it
    metadata,        // the object
    metadata_key,    //
    metadata_value,  //
    end,
  };

  Entry& entry() { return header.entries.back(); }
  std::string tensor() { return "tensor " + shown(entry().name); }

  bool next(Expect expected) {
    expected_ = expected;
    return true;
  }

  bool refuse_because(std::string why) {
    problem = std::move(why);
    return false;
  }

  bool refuse(const char* got) { return refuse_because(subject() + " needs " + needed() + ", got " + got); }

  std::string subject() {
    if (expected_ >= Expect::tensor && expected_ <= Expect::offset) return tensor();
    return expected_ >= Expect::metadata ? kMetadataKey : "the header";
  }

  const char* needed() const {
    switch (expected_) {
      case Expect::dtype:
        return "a string as dtype";
      case Expect::shape:
      case Expect::size:
        return "an array of sizes as shape";
      case Expect::offsets:
      case Expect::offset:
        return "an array of 2 numbers as data_offsets";
      case Expect::metadata_value:
        return "strings only";
      default:
        return "to be an object";
    }
  }

  bool begin_entry(const std::string& name) {
    if (name == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) return refuse_because("__metadata__ is there twice");
      return next(Expect::metadata);
    }
    header.entries.emplace_back().name = name;
    return next(Expect::tensor);
  }

  bool begin_field(const std::string& field) {
    const auto once = [&](bool& seen, Expect expected) {
      if (std::exchange(seen, true)) return refuse_because(tensor() + " has " + field + " twice");
      return next(expected);
    };
    if (field == "dtype") return once(has_dtype_, Expect::dtype);
    if (field == "shape") return once(has_shape_, Expect::shape);
    if (field == "data_offsets") return once(has_offsets_, Expect::offsets);
    return refuse_because(tensor() + " needs to have dtype, shape and data_offsets only, got " + shown(field));
  }

  bool end_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_)
      return refuse_because(tensor() + " needs dtype, shape and data_offsets, got no " +
                            (!has_dtype_   ? "dtype"
                             : !has_shape_ ? "shape"
                                           : "data_offsets"));
    const std::optional<std::uint64_t> needed = bytes_of(entry().dtype, entry().shape);
    const std::string type = std::string(name_of(entry().dtype)) + " " + entry().shape.str();
    if (!needed) return refuse_because(tensor() + " needs a size below 2^63 bytes, got " + type);
    if (entry().end < entry().begin || entry().bytes() != *needed)
      return refuse_because(tensor() + " needs " + std::to_string(*needed) + " bytes for " + type +
                            ", got data_offsets [" + std::to_string(entry().begin) + ", " +
                            std::to_string(entry().end) + "]");
    return true;
  }

  Expect expected_ = Expect::header;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offset_count_ = 0;
  std::string metadata_key_;
};

std::string quoted(const std::string& text, const char* what) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    throw FileError(std::string(what) + " needs to be UTF-8, got " + shown(text));
  }
}

}  // namespace

Header parse_header(const std::string& text) {
  HeaderReader reader;
  // The format wants the brace as the very first byte; the parser would skip white space or a byte order mark.
  if (text.empty() || text[0] != '{') throw FileError("the header needs to begin with '{'");
  // A zero byte ends the parser's input, so that whatever lies behind it would go unseen.
  if (text.find('\0') != std::string::npos) throw FileError("the header needs to be JSON, got a zero byte in it");
  if (!Json::sax_parse(text, &reader)) throw FileError(reader.problem);
  return std::move(reader.header);
}

std::string format_header(const std::vector<Entry>& entries, const Metadata& metadata) {
  std::string text = "{";
  const auto comma = [&](char opening) {
    if (text.back() != opening) text += ',';
  };
  if (!metadata.empty()) {
    text += std::string("\"") + kMetadataKey + "\":{";
    for (const auto& [key, value] : metadata) {
      comma('{');
      text += quoted(key, "a metadata key") + ":" + quoted(value, "a metadata value");
    }
    text += '}';
  }
  for (const Entry& entry : entries) {
    if (entry.name == kMetadataKey) throw FileError("a tensor needs a name other than __metadata__");
    comma('{');
    text += quoted(entry.name, "a tensor's name") + ":{\"dtype\":\"" + dtype_text(entry.dtype) + "\",\"shape\":[";
    for (const std::int64_t size : entry.shape) {
      comma('[');
      text += std::to_string(size);
    }
    text += "],\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the eight bytes of length before it keep this a multiple of eight
  return text;
}

std::optional<std::uint64_t> bytes_of(DType dtype, const Shape& shape) {
  // Zero sizes count as one until the end: strides and partial products of such a shape must be countable too.
  std::int64_t product = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size == 0 ? 1 : size, &product)) return std::nullopt;
    empty |= size == 0;
  }
  return empty ? 0 : static_cast<std::uint64_t>(product);
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) {
    char escaped[8];
    const auto byte = static_cast<unsigned char>(c);
    std::snprintf(escaped, sizeof escaped, byte >= 0x20 && byte < 0x7f ? "%c" : "\\x%02x", byte);
    result += escaped;
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace reel::nn::safetensors
