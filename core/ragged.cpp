#include "reel/core/ragged.h"

#include <algorithm>
#include <new>
#include <string>

#include "reel/core/error.h"
#include "reel/core/running.h"
#include "reel/core/scratch.h"

namespace reel {

struct Offsets::DeviceCopy {
  Tensor values;
  DeviceCopy* next;
};

// Ops that make offsets have noted themselves on the same line.
static void note(SourceLocation where) {
  const SourceLocation& noted = detail::running.where;
  if (where.line != noted.line || where.file != noted.file) detail::now_running("Ragged", where);
}

Offsets::Offsets(Room, std::int64_t count) {
  const std::size_t bytes = sizeof(State) + static_cast<std::size_t>(count + 1) * sizeof(std::int64_t);
  state_ = new (detail::host_allocate(bytes)) State;
  state_->count = count;
  values()[0] = 0;
}

Offsets::Offsets(std::span<const std::int64_t> lengths, SourceLocation where)
    : Offsets((note(where), Room{}), static_cast<std::int64_t>(lengths.size())) {
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length = lengths[i];
    std::int64_t& end = values()[i + 1];
    if (length < 0)
      throw ShapeError(
          "Ragged: lengths must not be negative, got " + std::to_string(length) + " for sequence " + std::to_string(i),
          where);
    if (__builtin_add_overflow(values()[i], length, &end))
      throw ShapeError("Ragged: the lengths' sum must fit 64 bits, it does not from sequence " + std::to_string(i),
                       where);
    longest = std::max(longest, length);
  }
  state_->max_length = longest;
}

Offsets Offsets::from_offsets(std::span<const std::int64_t> offsets, SourceLocation where) {
  note(where);
  if (offsets.empty() || offsets[0] != 0)
    throw ShapeError("Ragged: offsets must start with 0, got " +
                         (offsets.empty() ? std::string("none") : std::to_string(offsets[0])),
                     where);
  Offsets result(Room{}, static_cast<std::int64_t>(offsets.size()) - 1);
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1])
      throw ShapeError("Ragged: offsets must not decrease, got " + std::to_string(offsets[i]) + " after " +
                           std::to_string(offsets[i - 1]) + " at position " + std::to_string(i),
                       where);
    result.values()[i] = offsets[i];
    longest = std::max(longest, offsets[i] - offsets[i - 1]);
  }
  result.state_->max_length = longest;
  return result;
}

Offsets::Offsets(const Offsets& other) : state_(other.state_) { detail::add_to(state_->references, std::int64_t{1}); }

Offsets::~Offsets() {
  if (state_ == nullptr || detail::add_to(state_->references, std::int64_t{-1}, std::memory_order_acq_rel) != 1) return;
  for (DeviceCopy* copy = state_->copies; copy != nullptr;) {
    DeviceCopy* const next = copy->next;
    delete copy;
    copy = next;
  }
  const std::size_t size = bytes();
  state_->~State();
  detail::host_free(state_, size);
}

std::vector<std::int64_t> Offsets::lengths() const {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count(); ++i) result.push_back(length(i));
  return result;
}

bool Offsets::operator==(const Offsets& other) const {
  return state_ == other.state_ || std::equal(span().begin(), span().end(), other.span().begin(), other.span().end());
}

const std::int64_t* Offsets::values_on(Device device) const {
  if (device.is_cpu()) return values();
  DeviceCopy* first = state_->copies.load(std::memory_order_acquire);
  for (const DeviceCopy* copy = first; copy != nullptr; copy = copy->next)
    if (copy->values.device() == device) return copy->values.array().as<std::int64_t>();
  const Tensor host = from_memory(values(), {count() + 1}, i64);
  auto* copy = new DeviceCopy{detail::transferred(host, device), first};
  // Another thread may have put one there: two of one device do no harm.
  while (!state_->copies.compare_exchange_weak(copy->next, copy, std::memory_order_acq_rel)) continue;
  return copy->values.array().as<std::int64_t>();
}

Segments Offsets::segments(Device device) const {
  return {.count = count(), .offsets = values_on(device), .total = total(), .max_length = max_length()};
}

Ragged::Ragged(Tensor values, Offsets offsets, SourceLocation where)
    : values_(std::move(values)), offsets_(std::move(offsets)) {
  if (!values_.defined()) throw Error("Ragged: values must be defined", where);
  if (values_.rank() < 1 || values_.shape()[0] != offsets_.total())
    throw ShapeError("Ragged: values must have " + std::to_string(offsets_.total()) + " rows, as the " +
                         std::to_string(offsets_.count()) + " sequences have, got shape " + values_.shape().str(),
                     where);
}

Ragged Ragged::from_lengths(const Tensor& values, std::span<const std::int64_t> lengths, SourceLocation where) {
  return Ragged(values, Offsets(lengths, where), where);
}

Ragged Ragged::from_lengths(const Tensor& values, std::initializer_list<std::int64_t> lengths, SourceLocation where) {
  return from_lengths(values, std::span(lengths.begin(), lengths.size()), where);
}

}  // namespace reel
