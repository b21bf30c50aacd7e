#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "reel/backends/cuda/cuda_ops.h"
#include "reel/backends/cuda/launch.h"
#include "reel/backends/cuda/nest.h"
#include "reel/core/macros.h"

// What all kernels share: dispatch on element types on the host; places, packs of 16 bytes and reductions over warps and
// blocks on the device.

#define REEL_DEVICE __device__ __forceinline__

// Before a loop that is to stay one: unrolled, it would need more registers than there are.
#if defined(__CUDA_ARCH__)
#define REEL_ROLLED _Pragma("unroll 1")
#else
#define REEL_ROLLED
#endif

namespace reel::cuda {

using std::int64_t;
using std::uint32_t;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- dispatch: f.template operator()<T>() for the C++ type T of a dtype; bf16 and f16 are refused, having no kernels -----------

template <class F>
decltype(auto) dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::f32) return f.template operator()<float>();
  if (is_half(dtype)) reel::detail::refuse_half(dtype);
  return f.template operator()<double>();
}

template <class F>
decltype(auto) dispatch_half(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f.template operator()<bfloat16>();
  return f.template operator()<float16>();
}

template <class F>
decltype(auto) dispatch_index(DType dtype, F&& f) {
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  return f.template operator()<int64_t>();
}

/// All element types in which one can count: bool8 as its bytes.
template <class F>
decltype(auto) dispatch_arithmetic(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::bf16:
    case DType::f16:
      reel::detail::refuse_half(dtype);
    case DType::u8:
    case DType::bool8:
      break;
  }
  return f.template operator()<std::uint8_t>();
}

/// All element types but bf16 and f16; bool8 as `bool`.
template <class F>
decltype(auto) dispatch_all(DType dtype, F&& f) {
  if (dtype == DType::bool8) return f.template operator()<bool>();
  return dispatch_arithmetic(dtype, f);
}

/// For kernels that only move elements: an unsigned type of the element's size.
template <class F>
decltype(auto) dispatch_bytes(std::size_t size, F&& f) {
  if (size == 8) return f.template operator()<std::uint64_t>();
  if (size == 4) return f.template operator()<std::uint32_t>();
  if (size == 2) return f.template operator()<std::uint16_t>();
  return f.template operator()<std::uint8_t>();
}

// --- packs ------------------------------------------------------------------------------------------------------------------

inline constexpr int kPackBytes = 16;

/// `count` neighbours in memory that one access moves.
template <class T, int count = kPackBytes / static_cast<int>(sizeof(T))>
struct alignas(sizeof(T) * count) Pack {
  T v[count];
};
template <class T>
inline constexpr int kPack = kPackBytes / static_cast<int>(sizeof(T));

/// Whether packs of `count` elements of `size` bytes may be read there.
inline bool is_aligned(const void* data, std::size_t size, int count) {
  return reinterpret_cast<std::uintptr_t>(data) % (size * static_cast<std::size_t>(count)) == 0;
}

/// Whether T can be moved in packs at all of these addresses (null: there is nothing), and so many elements from them.
template <class T>
bool in_packs(std::initializer_list<const void*> addresses, std::initializer_list<int64_t> steps = {}) {
  bool packed = true;
  for (const void* address : addresses) packed = packed && is_aligned(address, sizeof(T), kPack<T>);
  for (const int64_t step : steps) packed = packed && step % kPack<T> == 0;
  return packed;
}

/// The elements of an array that need not be there: then null.
template <class T>
T* data_of(const Array* array) {
  return array != nullptr ? array->as<T>() : nullptr;
}

/// [rows, cols] in memory as an Array, with `stride` elements from row to row; dtype and device are those of `like`.
inline Array matrix_of(void* data, int64_t rows, int64_t cols, int64_t stride, const Array& like) {
  Array array;
  array.data = data;
  array.shape = {rows, cols};
  array.size = rows * cols;
  array.strides[0] = stride;
  array.strides[1] = 1;
  array.dtype = like.dtype;
  array.device = like.device;
  array.contiguous = stride == cols;
  return array;
}

// --- on the device ----------------------------------------------------------------------------------------------------------

namespace device {

inline constexpr int kWarp = 32;

/// The most threads that a multiprocessor has at a time.
#if !defined(__CUDA_ARCH__)
inline constexpr int kResidentThreads = 2048;
#elif __CUDA_ARCH__ < 800
inline constexpr int kResidentThreads = 1024;
#elif __CUDA_ARCH__ % 100 >= 60 || __CUDA_ARCH__ >= 1200  // 8.6 to 8.9, 12
inline constexpr int kResidentThreads = 1536;
#else
inline constexpr int kResidentThreads = 2048;
#endif

/// For __launch_bounds__: `wanted` blocks on a multiprocessor at a time, or as many as it has threads for.
constexpr int resident_blocks(int threads, int wanted) {
  const int most = kResidentThreads / threads;
  return wanted < most ? wanted : most;
}

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// This thread's number in the grid, and how many there are.
REEL_DEVICE int64_t first_unit() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
REEL_DEVICE int64_t unit_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

template <class T>
REEL_DEVICE T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
REEL_DEVICE T larger(T a, T b) {
  return a < b ? b : a;
}

/// Where element `position` (row-major) of a nest lies in each operand; 32-bit positions are divided faster.
template <int N, class Position>
REEL_DEVICE void find(const Nest<N>& nest, Position position, int64_t (&offsets)[N]) {
  for (int k = 0; k < N; ++k) offsets[k] = 0;
  for (int axis = nest.rank - 1; axis >= 0; --axis) {
    const auto size = static_cast<Position>(nest.sizes[axis]);
    const Position outer = axis > 0 ? position / size : 0;
    const auto index = static_cast<int64_t>(position - outer * size);
    position = outer;
    for (int k = 0; k < N; ++k) offsets[k] += index * nest.strides[k][axis];
  }
}

/// The same for a position < walk.count.
template <int N>
REEL_DEVICE void find(const Walk<N>& walk, uint32_t position, int64_t (&offsets)[N]) {
  for (int k = 0; k < N; ++k) offsets[k] = 0;
  REEL_UNROLL
  for (int axis = 0; axis < kMaxRank; ++axis) {
    if (axis >= walk.rank) break;
    const uint32_t outer = walk.sizes[axis].quotient(position);
    const int64_t index = position - outer * walk.sizes[axis].size;
    position = outer;
    for (int k = 0; k < N; ++k) offsets[k] += index * walk.strides[k][axis];
  }
}

template <class T, int count>
REEL_DEVICE Pack<T, count> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T, count>*>(address);
}
template <class T, int count>
REEL_DEVICE void store_pack(T* address, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(address) = pack;
}

/// A value from the lane whose number differs in the bits `other`. Structs say themselves how (`from_lane`).
template <class T>
REEL_DEVICE T from_lane(T value, int other) {
  return __shfl_xor_sync(kAllLanes, value, other);
}

/// Joins the values of all lanes of groups of `width` neighbouring lanes (a power of two, at most a warp): a tree of fixed
/// shape. All get the result. All lanes of the warp must call it.
template <class T, class Join>
REEL_DEVICE T join_lanes(T value, Join join, int width = kWarp) {
  for (int other = 1; other < width; other *= 2) {
    const T theirs = from_lane(value, other);
    // The lower lane's value on the left, so that both get the same bits.
    value = (threadIdx.x & other) == 0 ? join(value, theirs) : join(theirs, value);
  }
  return value;
}

/// Joins the values of all threads of the block (a multiple of a warp), in a fixed order; all get the result. `scratch` has
/// room for a value per warp. All threads must call it.
template <class T, class Join>
REEL_DEVICE T join_block(T value, T* scratch, Join join) {
  value = join_lanes(value, join);
  const int warps = blockDim.x / kWarp;
  if (warps == 1) return value;
  __syncthreads();  // of what was read from scratch before
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = scratch[0];
  for (int i = 1; i < warps; ++i) value = join(value, scratch[i]);
  return value;
}

}  // namespace device

}  // namespace reel::cuda
