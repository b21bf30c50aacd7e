#include "reel/core/tensor.h"

#include <cstdlib>

#include "reel/core/error.h"
#include "reel/core/fits.h"
#include "reel/core/memory.h"
#include "reel/core/node_list.h"
#include "reel/core/number_text.h"
#include "reel/core/ops.h"
#include "reel/core/scratch.h"
#include "reel/core/tape.h"
#include "reel/core/thread_cache.h"
#include "reel/core/trace_log.h"

namespace reel {

namespace {

using detail::TensorState;

// Elements this small live in the state's own block: one allocation less per tiny op.
constexpr std::size_t kInlineBytes = 64;
constexpr std::size_t kStateBytes = (sizeof(TensorState) + 63) / 64 * 64;
constexpr std::size_t kStateBlock = kStateBytes + kInlineBytes;

constexpr int kStateClass = detail::class_of(kStateBlock);
static_assert(detail::class_bytes(kStateClass) == kStateBlock);

REEL_INLINE void* take_state_block() {
  if (detail::ThreadCache* cache = detail::this_thread) [[likely]]
    if (void* block = cache->take(kStateClass, kStateBlock, kStateBlock)) [[likely]] {
      cache->tensors.add(1);
      return block;
    }
  void* block = detail::host_allocate(kStateBlock);
  detail::count_tensors(1);
  return block;
}

REEL_INLINE void give_state_block(void* block) noexcept {
  if (detail::ThreadCache* cache = detail::this_thread) [[likely]]
    if (cache->give(kStateClass, kStateBlock, block)) [[likely]] {
      cache->tensors.add(-1);
      return;
    }
  detail::host_free(block, kStateBlock);
  detail::count_tensors(-1);
}

REEL_INLINE TensorState* new_state() { return new (take_state_block()) TensorState; }

[[noreturn]] __attribute__((noinline)) void refuse_sizes(const char* op, const Shape& shape, bool negative,
                                                         SourceLocation where) {
  if (negative) throw ShapeError(std::string(op) + ": sizes must not be negative, got shape " + shape.str(), where);
  throw ShapeError(std::string(op) + ": shape " + shape.str() + " has more bytes than 64 bits count", where);
}

// Lays an array of known dtype out row by row and gives the bytes of all elements. In any order of axes: [2^40, 2^40, 0] has
// none.
REEL_INLINE std::size_t lay_out(const char* op, Array& array, const Shape& shape, SourceLocation where) {
  std::int64_t size = 1, bytes = 0, signs = 0;
  bool overflow = false, empty = false;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const std::int64_t dim = shape[i];
    array.strides[i] = size;
    signs |= dim;
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(size, dim, &size);
  }
  overflow |= __builtin_mul_overflow(size, static_cast<std::int64_t>(size_of(array.dtype)), &bytes);
  if (signs < 0 || (overflow && !empty)) [[unlikely]]
    refuse_sizes(op, shape, signs < 0, where);
  array.shape = shape;
  array.contiguous = true;
  array.size = empty ? 0 : size;
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

// For an array that has its shape: the strides, the size, and whether that is row-major.
REEL_INLINE void set_strides(Array& array, const std::int64_t* strides) {
  array.contiguous = true;
  std::uint64_t size = 1;  // may wrap before it meets an axis of size 0
  for (int i = array.rank() - 1; i >= 0; --i) {
    array.strides[i] = strides[i];
    array.contiguous &= array.shape[i] == 1 || strides[i] == static_cast<std::int64_t>(size);
    size *= static_cast<std::uint64_t>(array.shape[i]);
  }
  array.size = static_cast<std::int64_t>(size);
  array.contiguous |= size == 0;
}

void free_block(void* block, std::int64_t bytes, Device device) noexcept {
  if (bytes == 0) return;
  if (device.is_cpu()) detail::host_free(block, static_cast<std::size_t>(bytes));
  else backend(device).deallocate(block, static_cast<std::size_t>(bytes));
}

// A write to a view that repeats an element, as expand makes them, would reach others too, and in any order.
void check_writable(const char* call, const Tensor& x, SourceLocation where) {
  if (x.is_contiguous() || x.size() == 0) return;
  // From the smallest stride up, each must step over all that the smaller ones reach.
  std::uint32_t left = (1u << x.rank()) - 1;
  std::int64_t reach = 0;
  while (left != 0) {
    int axis = __builtin_ctz(left);
    for (int i = axis + 1; i < x.rank(); ++i)
      if ((left >> i & 1) != 0 && std::abs(x.stride(i)) < std::abs(x.stride(axis))) axis = i;
    left &= ~(1u << axis);
    if (x.shape()[axis] == 1) continue;
    const std::int64_t stride = std::abs(x.stride(axis));
    if (stride <= reach)
      throw ShapeError(std::string(call) + ": each element must have a place of its own, got a view of shape " +
                           x.shape().str() + " in which some share one",
                       where);
    reach += stride * (x.shape()[axis] - 1);
  }
}

}  // namespace

namespace detail {

constinit const Tensor undefined_tensor;

int from_front(const char* call, int axis, const Shape& shape, SourceLocation where) {
  const int rank = shape.rank(), from = axis < 0 ? axis + rank : axis;
  if (from >= 0 && from < rank) return from;
  throw IndexError(std::string(call) + ": axis must be in [" + std::to_string(-rank) + ", " + std::to_string(rank) +
                       ") of shape " + shape.str() + ", got " + std::to_string(axis),
                   where);
}

void destroy(TensorState* state) noexcept {
  if (state->traced) [[unlikely]]
    trace_destroyed(state);
  if (state->release != nullptr) [[unlikely]]
    state->release(state->release_context);
  if (state->owner != nullptr) release(state->owner);
  else free_block(state->array.data, state->block_bytes, state->array.device);
  state->~TensorState();
  give_state_block(state);
}

Tensor view(const Tensor& x, std::int64_t offset, const Shape& shape, const std::int64_t* strides) {
  TensorState* source = x.state();
  TensorState* state = new_state();
  Array& array = state->array;
  array.data = static_cast<char*>(source->array.data) + offset * static_cast<std::int64_t>(size_of(x.dtype()));
  array.shape = shape;
  array.dtype = x.dtype();
  array.device = x.device();
  set_strides(array, strides);
  state->own_version = false;
  state->owner = source->own_version ? source : source->owner;
  retain(state->owner);
  return Tensor(state);
}

void move_to(Tensor& moved, const Tensor& memory, std::int64_t offset) noexcept {
  TensorState* state = moved.state();
  TensorState* const old_owner = state->owner;
  void* const old_block = state->array.data;
  const std::int64_t old_bytes = state->block_bytes;
  const Device old_device = state->array.device;
  retain(memory.state());
  state->owner = memory.state();
  state->block_bytes = 0;
  state->array.data =
      static_cast<char*>(memory.array().data) + offset * static_cast<std::int64_t>(size_of(memory.dtype()));
  state->array.device = memory.device();
  if (state->references.load(std::memory_order_acquire) == 1) {
    if (state->release != nullptr) std::exchange(state->release, nullptr)(state->release_context);
    if (old_owner != nullptr) release(old_owner);
    free_block(old_block, old_bytes, old_device);
    return;
  }
  if (old_owner == nullptr && old_bytes == 0) return;  // within the state, or from outside: as long as the tensor
  // Others may be views, which keep the tensor: with it lives a keeper of what they see.
  try {
    const Tensor kept = view(memory, 0, {}, nullptr);
    TensorState* const keeper = kept.state();
    retain(keeper);
    release(std::exchange(keeper->owner, old_owner));
    keeper->array.data = old_block;
    keeper->array.device = old_device;
    keeper->block_bytes = old_bytes;
    keeper->release = state->release;
    if (keeper->release != nullptr) keeper->release_context = state->release_context;
    state->release = [](void* context) { detail::release(static_cast<TensorState*>(context)); };
    state->release_context = keeper;
  } catch (...) {  // no memory for one: what they see is never freed
  }
}

AxisOrder axis_order(const Tensor& x) {
  constexpr AxisOrder row_major{{0, 1, 2, 3, 4, 5, 6, 7}};
  static_assert(kMaxRank == 8);
  if (x.array().contiguous) return row_major;
  AxisOrder order = row_major;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t stride = std::abs(x.stride(axis));
    if (stride == 0 && x.shape()[axis] > 1) return row_major;
    int place = axis;
    for (; place > 0 && std::abs(x.stride(order.axes[place - 1])) < stride; --place)
      order.axes[place] = order.axes[place - 1];
    order.axes[place] = static_cast<std::uint8_t>(axis);
  }
  return order;
}

Tensor empty_in_order(const Shape& shape, const AxisOrder& order, TensorOptions options) {
  Tensor y = empty(shape, options);
  std::int64_t strides[kMaxRank];
  std::uint64_t step = 1;  // may wrap before it meets an axis of size 0
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int axis = order.axes[i];
    strides[axis] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(shape[axis]);
  }
  set_strides(y.state()->array, strides);
  return y;
}

bool sole_owner(const Tensor& x) {
  const TensorState* state = x.state();
  return state->references.load(std::memory_order_acquire) == 1 && state->owner == nullptr && state->release == nullptr;
}

Tensor copied(const Tensor& x, DType dtype) {
  Tensor y = empty(x.shape(), {.dtype = dtype, .device = x.device()});
  backend(x.device()).copy(x.array(), y.array());
  return y;
}

Tensor transferred(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const Tensor source = x.is_contiguous() ? x : copied(x, x.dtype());
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = device});
  const std::int64_t bytes = x.size() * static_cast<std::int64_t>(size_of(x.dtype()));
  if (device.is_cpu()) {
    backend(x.device()).to_host(source.array().data, y.array().data, bytes);
    check_unread_after_wait();
  } else if (x.device().is_cpu()) {
    backend(device).from_host(source.array().data, y.array().data, bytes);
  } else {
    backend(device).copy(source.array(), y.array());
  }
  return y;
}

}  // namespace detail

namespace {

// Memory for a tensor that has all but that.
__attribute__((noinline)) void allocate_block(TensorState* state, std::size_t bytes) {
  const Device device = state->array.device;
  state->array.data = device.is_cpu() ? detail::host_allocate(bytes) : backend(device).allocate(bytes);
  state->block_bytes = static_cast<std::int64_t>(bytes);
}
REEL_INLINE void give_memory(TensorState* state, std::size_t bytes, SourceLocation where) {
  if (bytes <= kInlineBytes && state->array.device.is_cpu()) {
    state->array.data = reinterpret_cast<char*>(state) + kStateBytes;
  } else {
    allocate_block(state, bytes);
  }
  if (detail::thread_tape.traced) [[unlikely]]
    detail::trace_created(state, where);
}

}  // namespace

Tensor detail::new_tensor(const char* op, const Shape& shape, TensorOptions options, SourceLocation where) {
  now_running(op, where);
  if (!options.device.is_cpu()) backend(options.device, where);  // throws if there is none
  TensorState* state = new_state();
  Tensor x(state);
  state->array.dtype = options.dtype;
  state->array.device = options.device;
  if (!where.known() && running.op != nullptr) op = running.op;
  give_memory(state, lay_out(op, state->array, shape, where), where);
  return x;
}

void detail::check_fits(const char* op, Scalar value, DType dtype, SourceLocation where) {
  if (is_floating(dtype) || dtype == bool8) return;
  const bool whole = value.integral && (value.integer < 0) == (value.real < 0);
  // Cut off, a number above low - 1 and below high is in range.
  const double low = dtype == DType::u8 ? 0 : dtype == DType::i32 ? -0x1p31 : -0x1p63;
  const double high = dtype == DType::u8 ? 0x1p8 : dtype == DType::i32 ? 0x1p31 : 0x1p63;
  const bool above = dtype == DType::i64 ? value.real >= low : value.real > low - 1;
  if ((whole && dtype == DType::i64) || (above && value.real < high)) return;
  throw Error(std::string(op) + ": the number must fit " + name_of(dtype) + ", got " +
                  (whole ? std::to_string(value.integer) : detail::number_text(value.real)),
              where);
}

Tensor empty(const Shape& shape, TensorOptions options, SourceLocation where) {
  return detail::new_tensor("empty", shape, options, where);
}

Tensor empty_like(const Tensor& x, SourceLocation where) {
  if (!x.defined()) [[unlikely]]
    throw Error("empty_like: x must be defined", where);
  const Array& like = x.array();
  if (!like.contiguous)  // it may repeat elements: all of them may be too many
    return detail::new_tensor("empty_like", like.shape, {.dtype = like.dtype, .device = like.device}, where);
  detail::now_running("empty_like", where);
  auto* state = new (take_state_block()) TensorState(like);
  Tensor y(state);
  give_memory(state, static_cast<std::size_t>(like.size) * size_of(like.dtype), where);
  return y;
}

Tensor from_memory(void* data, const Shape& shape, DType dtype, void (*release)(void*), void* context,
                   SourceLocation where) {
  TensorState* state = new_state();
  Tensor x(state);
  state->array.dtype = dtype;
  if (lay_out("from_memory", state->array, shape, where) > 0 && data == nullptr)
    throw Error("from_memory: memory for shape " + shape.str() + " is required, got a null pointer", where);
  state->array.data = data;
  state->release = release != nullptr ? release : [](void*) {};
  state->release_context = context;
  return x;
}

std::int64_t Tensor::size(int axis, SourceLocation where) const {
  require_defined("size", where);
  const int positive = axis < 0 ? axis + rank() : axis;
  if (positive < 0 || positive >= rank())
    throw ShapeError("size: axis must be in [" + std::to_string(-rank()) + ", " + std::to_string(rank()) + "), got " +
                         std::to_string(axis) + " for shape " + shape().str(),
                     where);
  return shape()[positive];
}

void Tensor::require_defined(const char* call, SourceLocation where) const {
  if (!defined()) detail::refuse_undefined(call, "tensor", where);
  detail::now_running(call, where);
}

void Tensor::read_item(void* value, DType dtype, SourceLocation where) const {
  require_defined("item", where);
  if (size() != 1) throw ShapeError("item: the tensor must have one element, got shape " + shape().str(), where);
  read_all(value, dtype);
}

double Tensor::item(SourceLocation where) const {
  double value = 0;
  read_item(&value, f64, where);
  return value;
}

void Tensor::read_all(void* values, DType dtype) const {
  const Tensor converted = dtype == this->dtype() ? *this : detail::copied(*this, dtype);
  const Tensor host = detail::transferred(converted, Device::cpu());
  Tensor target = from_memory(values, shape(), dtype);
  backend(Device::cpu()).copy(host.array(), target.array());
  detail::ran("read", {}, {this}, target);
}

// What a vector of all elements takes, if it can be had at all.
std::size_t Tensor::vector_size(std::size_t element, SourceLocation where) const {
  require_defined("to_vector", where);
  std::size_t bytes;
  if (__builtin_mul_overflow(static_cast<std::size_t>(size()), element, &bytes) || bytes > detail::kLargestBlock)
    refuse_vector(element, where);
  return static_cast<std::size_t>(size());
}

void Tensor::refuse_vector(std::size_t element, SourceLocation where) const {
  throw OutOfMemory("to_vector: a vector of " + std::to_string(size()) + " elements of " + std::to_string(element) +
                        " bytes, for shape " + shape().str() + ", is not to be had; " + memory_stats().str(),
                    where);
}

const void* Tensor::readable(DType dtype, SourceLocation where) const {
  require_defined("data", where);
  if (dtype != this->dtype())
    throw DTypeError(std::string("data: the tensor must be ") + name_of(dtype) + ", got " + name_of(this->dtype()),
                     where);
  if (!device().is_cpu())
    throw DeviceError(
        "data: the tensor must be on the CPU, got " + device().name() + "; move it with to(x, Device::cpu())", where);
  if (!is_contiguous())
    throw ShapeError(
        "data: the tensor must be contiguous, got a view of shape " + shape().str() + "; use contiguous(x)", where);
  return array().data;
}

void Tensor::note_write(const char* call, SourceLocation where) {
  if (!defined()) [[unlikely]]
    detail::refuse_undefined(call, "tensor", where);
  detail::refuse_if_taped(*this, call, where);
  detail::TensorState& root = state_->version_root();
  detail::add_to(root.version, 1u);
  root.writer = call;
  root.written_at = where;
}

void Tensor::fill_(Scalar value, SourceLocation where) {
  require_defined("fill_", where);
  check_writable("fill_", *this, where);
  detail::check_fits("fill_", value, dtype(), where);
  note_write("fill_", where);
  backend(device()).fill(array(), value);
  detail::ran("fill_", where, {}, *this);
}

void Tensor::copy_(const Tensor& source, SourceLocation where) { detail::overwrite("copy_", *this, source, where); }

void detail::overwrite(const char* op, Tensor& x, const Tensor& source, SourceLocation where) {
  if (!x.defined() || !source.defined()) throw Error(std::string(op) + ": both tensors must be defined", where);
  now_running(op, where);
  if (!(source.shape() == x.shape()))
    throw ShapeError(
        std::string(op) + ": the source must have shape " + x.shape().str() + ", got " + source.shape().str(), where);
  check_writable(op, x, where);
  x.note_write(op, where);
  Tensor from = transferred(source, x.device());
  // The source may be a view of the same memory.
  if (&from.state()->version_root() == &x.state()->version_root()) from = copied(from, from.dtype());
  backend(x.device()).copy(from.array(), x.array());
  ran(op, where, {&source}, x);
}

}  // namespace reel
