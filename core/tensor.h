#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/core/array.h"
#include "reel/core/running.h"
#include "reel/core/shared_count.h"
#include "reel/core/source_location.h"

namespace reel {

class Tensor;

namespace detail {

class NodeList;
struct ParameterState;

/// What the handles of one tensor share. Small tensors keep their elements right behind it.
struct TensorState {
  std::atomic<std::int32_t> references{1};
  std::atomic<std::uint32_t> version{0};  // writes so far; views use their owner's
  Array array;
  TensorState* owner = nullptr;              // whose memory this is, if not its own; one reference
  bool own_version = true;                   // false for views
  bool traced = false;                       // a Trace knows who made it
  std::int64_t block_bytes = 0;              // > 0: array.data is a block of the device's allocator
  void (*release)(void* context) = nullptr;  // for memory that came from outside
  std::atomic<NodeList*> list{nullptr};      // where it was recorded; see Tape
  ParameterState* parameter = nullptr;       // set while it is a Parameter's value
  // Only if there is a `release`, a list, a write: not worth setting before.
  void* release_context;
  std::int64_t slot;   // which output of its list it is
  const char* writer;  // the call that wrote last
  SourceLocation written_at;

  TensorState() {}
  explicit TensorState(const Array& array_) : array(array_) {}
  TensorState& version_root() { return own_version ? *this : *owner; }
};

REEL_API void destroy(TensorState* state) noexcept;

REEL_INLINE void retain(TensorState* state) { add_to(state->references, 1); }
REEL_INLINE void release(TensorState* state) noexcept {
  // The last handle needs no atomic decrement: nobody else can see the count.
  if (state->references.load(std::memory_order_acquire) == 1 ||
      add_to(state->references, -1, std::memory_order_acq_rel) == 1)
    destroy(state);
}

}  // namespace detail

/// Element type and device of a new tensor.
struct TensorOptions {
  DType dtype = f32;
  Device device = {};
};

namespace detail {
/// An index with the line that wrote it: x[i] has no room for a defaulted argument.
struct Index {
  std::int64_t value;
  SourceLocation where;

  template <class I>
  requires std::is_integral_v<I> REEL_INLINE Index(I i, SourceLocation at = SourceLocation::current())
      : value(static_cast<std::int64_t>(i)), where(at) {}
};

/// The axis from the front. Throws IndexError unless it is in [-rank, rank).
REEL_API int from_front(const char* call, int axis, const Shape& shape, SourceLocation where);
}  // namespace detail

/// An n-dimensional array: a cheap handle to shared, typed memory with a shape and strides. Copies of a handle are the same
/// tensor. Ops never change their operands; the few calls that write say so in their names and are noticed by a Tape.
/// All calls but defined(), is() and the assignment of another handle throw Error if the handle is undefined.
class REEL_API Tensor {
 public:
  /// Undefined: no shape, no elements. Stands for "no gradient" in callbacks.
  Tensor() = default;
  Tensor(const Tensor& other) : state_(other.state_) {
    if (state_ != nullptr) detail::retain(state_);
  }
  Tensor(Tensor&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  /// The handle becomes another. Not for x[i] = y, which would change no element of x: use x[i].copy_(y).
  Tensor& operator=(Tensor other) & noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Tensor() {
    if (state_ != nullptr) detail::release(state_);
  }

  bool defined() const { return state_ != nullptr; }
  /// The same tensor (not: equal elements).
  bool is(const Tensor& other) const { return state_ == other.state_; }

  REEL_INLINE const Shape& shape(SourceLocation where = SourceLocation::current()) const {
    return known("shape", where).array.shape;
  }
  REEL_INLINE int rank(SourceLocation where = SourceLocation::current()) const {
    return known("rank", where).array.shape.rank();
  }
  /// The size of one axis; negative axes count from the last. Throws ShapeError.
  std::int64_t size(int axis, SourceLocation where = SourceLocation::current()) const;
  /// Number of elements.
  REEL_INLINE std::int64_t size(SourceLocation where = SourceLocation::current()) const {
    return known("size", where).array.size;
  }
  REEL_INLINE DType dtype(SourceLocation where = SourceLocation::current()) const {
    return known("dtype", where).array.dtype;
  }
  REEL_INLINE Device device(SourceLocation where = SourceLocation::current()) const {
    return known("device", where).array.device;
  }
  /// dtype and device, for another tensor like this one: zeros(shape, x.options()).
  REEL_INLINE TensorOptions options(SourceLocation where = SourceLocation::current()) const {
    const Array& array = known("options", where).array;
    return {.dtype = array.dtype, .device = array.device};
  }
  /// Elements from one index to the next along `axis`; negative axes count from the last. Throws IndexError.
  REEL_INLINE std::int64_t stride(int axis, SourceLocation where = SourceLocation::current()) const {
    const Array& array = known("stride", where).array;
    if (REEL_USER_CODE && (axis < 0 || axis >= array.rank())) [[unlikely]]
      axis = detail::from_front("stride", axis, array.shape, where);
    return array.strides[axis];
  }
  REEL_INLINE bool is_contiguous(SourceLocation where = SourceLocation::current()) const {
    return known("is_contiguous", where).array.contiguous;
  }

  /// The only element, as a double (or as T). Throws ShapeError unless size() == 1.
  double item(SourceLocation where = SourceLocation::current()) const;
  template <class T>
  T item(SourceLocation where = SourceLocation::current()) const {
    T value;
    read_item(&value, dtype_of<T>, where);
    return value;
  }

  /// All elements in row-major order, converted to T. Throws OutOfMemory.
  template <class T>
  std::vector<T> to_vector(SourceLocation where = SourceLocation::current()) const {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements in memory: use std::uint8_t");
    const std::size_t count = vector_size(sizeof(T), where);
    std::vector<T> values;
    try {
      values.resize(count);
    } catch (const std::bad_alloc&) {
      refuse_vector(sizeof(T), where);
    }
    read_all(values.data(), dtype_of<T>);
    return values;
  }

  /// The elements of a contiguous CPU tensor of type T, for reading. Throws DTypeError, DeviceError or ShapeError.
  template <class T>
  std::span<const T> data(SourceLocation where = SourceLocation::current()) const {
    return {static_cast<const T*>(readable(dtype_of<T>, where)), static_cast<std::size_t>(size())};
  }
  /// The same for writing. Counts as a write: throws VersionError if this tensor is on a live tape.
  template <class T>
  std::span<T> mutable_data(SourceLocation where = SourceLocation::current()) {
    void* elements = const_cast<void*>(readable(dtype_of<T>, where));
    note_write("mutable_data", where);
    return {static_cast<T*>(elements), static_cast<std::size_t>(size())};
  }

  /// Overwrites every element. Throws VersionError if this tensor is on a live tape, ShapeError if elements share a place,
  /// Error for a number beyond an integer's dtype.
  void fill_(Scalar value, SourceLocation where = SourceLocation::current());
  /// Overwrites with the elements of `source` (same shape, any dtype, any device). Throws as fill_ does, and ShapeError.
  void copy_(const Tensor& source, SourceLocation where = SourceLocation::current());
  /// How often the memory behind this tensor was written.
  REEL_INLINE std::uint32_t version(SourceLocation where = SourceLocation::current()) const {
    return known("version", where).version_root().version.load(std::memory_order_relaxed);
  }

  /// The view x[index] along the first axis; recorded. Negative counts from the end. Throws IndexError, ShapeError.
  Tensor operator[](detail::Index index) const;

  // --- for ops and backends ---
  REEL_INLINE const Array& array(SourceLocation where = SourceLocation::current()) const {
    return known("array", where).array;
  }
  detail::TensorState* state() const { return state_; }
  /// Takes over one reference.
  explicit Tensor(detail::TensorState* state) : state_(state) {}
  /// Throws VersionError if a live tape knows this tensor; counts a write by `call`.
  void note_write(const char* call, SourceLocation where);

 private:
  // What the handles share. In Reel's own code whoever calls has checked.
  REEL_INLINE detail::TensorState& known(const char* call, SourceLocation where) const {
    if (REEL_USER_CODE && state_ == nullptr) [[unlikely]]
      detail::refuse_undefined(call, "tensor", where);
    return *state_;
  }
  // For the calls that do more than look: an undefined handle is refused, and the call noted as what runs.
  void require_defined(const char* call, SourceLocation where) const;
  void read_item(void* value, DType dtype, SourceLocation where) const;
  void read_all(void* values, DType dtype) const;
  std::size_t vector_size(std::size_t element, SourceLocation where) const;
  [[noreturn]] void refuse_vector(std::size_t element, SourceLocation where) const;
  const void* readable(DType dtype, SourceLocation where) const;

  detail::TensorState* state_ = nullptr;
};

namespace detail {
/// A handle to nothing, for who must give a reference.
REEL_API extern const Tensor undefined_tensor;
/// empty() for the call named `op`.
REEL_API Tensor new_tensor(const char* op, const Shape& shape, TensorOptions options, SourceLocation where);
}  // namespace detail

/// A tensor with undefined contents. Throws ShapeError for a negative size, OutOfMemory.
REEL_API Tensor empty(const Shape& shape, TensorOptions options = {}, SourceLocation where = SourceLocation::current());
/// empty() with x's shape, dtype and device. Throws Error if x is undefined.
REEL_API Tensor empty_like(const Tensor& x, SourceLocation where = SourceLocation::current());

/// A tensor over memory that the caller keeps valid until `release(context)` is called (if given) or the last handle and
/// view are gone. CPU, contiguous. Throws ShapeError, and Error for a null pointer to more than no elements.
REEL_API Tensor from_memory(void* data, const Shape& shape, DType dtype, void (*release)(void*) = nullptr,
                            void* context = nullptr, SourceLocation where = SourceLocation::current());

/// "[2, 3]", "f32", "cuda:0"
REEL_API std::ostream& operator<<(std::ostream& out, const Shape& shape);
REEL_API std::ostream& operator<<(std::ostream& out, DType dtype);
REEL_API std::ostream& operator<<(std::ostream& out, Device device);
/// As numpy prints it.
REEL_API std::ostream& operator<<(std::ostream& out, const Tensor& x);
REEL_API std::string to_string(const Tensor& x);
/// A line, or lines, on the standard output.
REEL_API void print(const Tensor& x);

namespace detail {
/// An unrecorded view of x's memory; shares its version.
REEL_API Tensor view(const Tensor& x, std::int64_t offset, const Shape& shape, const std::int64_t* strides);
/// Points a tensor at another place, keeping its identity. Its memory is freed; but where others hold the tensor, as views do, only
/// when it moves again or ends after all of them have gone.
REEL_API void move_to(Tensor& moved, const Tensor& memory, std::int64_t offset) noexcept;
/// A tensor's axes as they lie in memory, the outermost first.
struct AxisOrder {
  std::uint8_t axes[kMaxRank];
};
/// By x's strides; row-major where axes are expanded.
AxisOrder axis_order(const Tensor& x);
/// empty(shape) without gaps, whose axes lie in memory in that order.
Tensor empty_in_order(const Shape& shape, const AxisOrder& order, TensorOptions options);
/// True if the elements are nobody else's: they may be overwritten.
REEL_API bool sole_owner(const Tensor& x);
/// x.copy_(source) for the call named `op`.
REEL_API void overwrite(const char* op, Tensor& x, const Tensor& source, SourceLocation where);
/// Elementwise copy to a new contiguous tensor of the given dtype, on the same device; unrecorded.
REEL_API Tensor copied(const Tensor& x, DType dtype);
/// y += x, in f32 where they are bf16 or f16, with one rounding; unrecorded, and no write that is counted.
REEL_API void accumulate(const Tensor& x, const Tensor& y);
/// On another device; unrecorded.
REEL_API Tensor transferred(const Tensor& x, Device device);
}  // namespace detail

}  // namespace reel
