#include "reel/ops/write_once.h"

#include <optional>
#include <string>
#include <vector>

#include "reel/core/scratch.h"
#include "reel/ops/check.h"
#include "reel/ops/views.h"

namespace reel {

namespace detail {
// The tensors' own memory, so that a step that makes such buffers calls malloc no more once it is warm.
template <class T>
struct HostAllocator {
  using value_type = T;
  HostAllocator() = default;
  template <class U>
  HostAllocator(const HostAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(detail::host_allocate(n * sizeof(T))); }
  void deallocate(T* block, std::size_t n) { detail::host_free(block, n * sizeof(T)); }
  bool operator==(const HostAllocator&) const { return true; }
};

using Written = std::optional<SourceLocation>;  // by which line, if at all
}  // namespace detail

// On a tape the buffer is a chain of tensors on one memory: each write gives the next one, which differs from the one before
// in parts that nobody could read there. So the gradient of each is that of the next, the very same tensor: its other parts
// belong to whoever wrote them, and what lies in this one flows to no one.
struct WriteOnce::State {
  Tensor memory;
  Tensor now;  // the last of the chain
  int axis;
  std::vector<detail::Written, detail::HostAllocator<detail::Written>> written;  // each index
  std::int64_t end = 0;
};

namespace {

using detail::Gradients;

std::string range(std::int64_t begin, std::int64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// The handle was moved from, or is a Part of nothing.
void require_state(const void* state, const char* call, SourceLocation where) {
  if (state == nullptr) detail::refuse_undefined(call, "WriteOnce", where);
}

// A view of the same elements that is a tensor of its own.
Tensor again(const Tensor& x) { return detail::view(x, 0, x.shape(), x.array().strides); }

}  // namespace

WriteOnce::WriteOnce(const Shape& shape, const WriteOnceOptions& options, SourceLocation where)
    : state_(std::allocate_shared<State>(detail::HostAllocator<State>())) {
  state_->axis = check::axis("WriteOnce", options.axis, shape.rank(), where);
  state_->memory = detail::new_tensor("WriteOnce", shape, {.dtype = options.dtype, .device = options.device}, where);
  backend(options.device).fill(state_->memory.array(), 0);  // so that no check for NaN meets what is not written yet
  state_->now = state_->memory;
  state_->written.resize(static_cast<std::size_t>(shape[state_->axis]));
}

// Not inline: options of every convolution have one, and users' compilers need not see through it.
WriteOnce::Part::Part(const Part&) = default;
WriteOnce::Part& WriteOnce::Part::operator=(const Part&) = default;
WriteOnce::Part::~Part() = default;

std::int64_t WriteOnce::end() const {
  require_state(state_.get(), "end", {});
  return state_->end;
}

WriteOnce::Part WriteOnce::part(std::int64_t begin, std::int64_t end, SourceLocation where) const {
  require_state(state_.get(), "part", where);
  const auto size = static_cast<std::int64_t>(state_->written.size());
  if (begin < 0 || begin > end || end > size)
    throw IndexError("WriteOnce: a part must lie within the " + std::to_string(size) + " indices of axis " +
                         std::to_string(state_->axis) + ", got " + range(begin, end),
                     where);
  Part part;
  part.state_ = state_;
  part.begin_ = begin;
  part.end_ = end;
  return part;
}

Tensor WriteOnce::append(const Tensor& x, SourceLocation where) {
  require_state(state_.get(), "append", where);
  check::defined("WriteOnce", "x", x, where);
  const Tensor& memory = state_->memory;
  if (x.rank() != memory.rank()) check::rank("WriteOnce", "x", x, memory.rank(), memory.shape().str().c_str(), where);
  return part(end(), end() + x.shape()[state_->axis], where).write(x, where);
}

Tensor WriteOnce::view(std::int64_t begin, std::int64_t end, SourceLocation where) const {
  const Part part = this->part(begin, end, where);
  for (std::int64_t i = begin; i < end; ++i)
    if (!state_->written[static_cast<std::size_t>(i)])
      throw IndexError("WriteOnce: what is read must have been written, got " + range(begin, end) + ", and index " +
                           std::to_string(i) + " was not",
                       where);
  return part.of(state_->now, where);
}

Tensor WriteOnce::Part::memory(const char* op, const Shape& shape, const Tensor& x, SourceLocation where) const {
  const Tensor target = untaped([&] { return of(state_->memory); });
  check::like(op, "the buffer to write into", target, "x", x, where);
  check::shape(op, "the part to write into", target, shape, where);
  for (std::int64_t i = begin_; i < end_; ++i) {
    const detail::Written& by = state_->written[static_cast<std::size_t>(i)];
    if (by)
      throw VersionError(std::string(op) + ": each part of a WriteOnce is written once, got " + range(begin_, end_) +
                             ", and index " + std::to_string(i) + " was written at " + by->file + ":" +
                             std::to_string(by->line),
                         where);
  }
  return target;
}

WriteOnce::Part::Step WriteOnce::Part::written(SourceLocation where) const {
  for (std::int64_t i = begin_; i < end_; ++i) state_->written[static_cast<std::size_t>(i)] = where;
  if (end_ > state_->end) state_->end = end_;
  const Tensor before = state_->now;
  if (detail::taping()) state_->now = again(before);
  return {before, state_->now};
}

Tensor WriteOnce::Part::of(const Tensor& whole, SourceLocation where) const {
  if (end_ - begin_ == whole.shape()[state_->axis]) return whole;
  return narrow(whole, state_->axis, begin_, end_ - begin_, where);
}

Tensor WriteOnce::Part::write(const Tensor& x, SourceLocation where) const {
  require_state(state_.get(), "write", where);
  check::defined("WriteOnce", "x", x, where);
  const Tensor y = memory("WriteOnce", x.shape(), x, where);
  backend(x.device()).copy(x.array(), y.array());
  const auto [before, after] = written(where);
  if (detail::taping())
    detail::record_op("WriteOnce", where, {&x, &before}, after, {}, [part = *this](Gradients& g) {
      g.add(0, part.of(g.dy()));
      g.add(1, g.dy());
    });
  return of(after, where);
}

}  // namespace reel
