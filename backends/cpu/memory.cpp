#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/stream.h"
#include "reel/core/index_error.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

/// `value` as one element of a dtype, in the first bytes.
std::uint64_t element_bytes(DType dtype, Scalar value) {
  if (dtype == DType::bf16) return bfloat16(value.real).bits;
  if (dtype == DType::f16) return float16(value.real).bits;
  return dispatch_all(dtype, [&]<class T>() {
    const T element = convert_scalar<T>(value);
    std::uint64_t bytes = 0;
    __builtin_memcpy(&bytes, &element, sizeof element);
    return bytes;
  });
}

/// Whether an index of [begin, end) is outside [0, limit) and not exempt: negative ones are huge as unsigned numbers.
template <class T>
bool any_outside(const T* index, int64_t begin, int64_t end, std::uint64_t limit, const int64_t* exempt) {
  const bool some = exempt != nullptr;
  const int64_t other = some ? *exempt : 0;
  int outside = 0;
  for (int64_t i = begin; i < end; ++i) {
    const auto value = static_cast<int64_t>(index[i]);
    outside |= (static_cast<std::uint64_t>(value) >= limit) & !(some & (value == other));
  }
  return outside != 0;
}

void copy_in_parallel(const void* from, void* to, int64_t bytes) {
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  const bool past_caches = is_past_caches(bytes);
  parallel_for(bytes, even_chunk(bytes, 8 * kGrain), [&](int64_t begin, int64_t end) {
    if (past_caches) {
      stream_bytes(source + begin, target + begin, end - begin);
      _mm_sfence();
      return;
    }
    copy_bytes(source + begin, target + begin, end - begin);
  });
}

}  // namespace

void CpuOps::fill(const Array& y, Scalar value) {
  const std::uint64_t element = element_bytes(y.dtype, value);
  const auto size = static_cast<int64_t>(size_of(y.dtype));
  if (y.contiguous && y.size <= kGrain) {
    move_run(&element, 0, y.data, 1, y.size, size);
    return;
  }
  const Nest<1> nest = collapse_in_memory_order<1>(y.shape, {y.strides});
  for_each_run(nest, kGrain, [&](const int64_t* offsets, int64_t count) {
    move_run(&element, 0, y.as<char>() + offsets[0] * size, nest.inner_stride(0), count, size);
  });
}

void CpuOps::pad(const Array& x, const Padding& padding, const Array& y) {
  cpu::pad(x, padding, element_bytes(y.dtype, padding.value), y);
}
void CpuOps::pad_backward(const Array& dy, const Padding& padding, const Array& dx) {
  cpu::pad_backward(dy.data, padding, dx);
}

/// Computed in f64, or modulo 2^64 when both numbers and the elements are integers; then converted.
void CpuOps::arange(const Array& y, Scalar start, Scalar step) {
  dispatch_arithmetic(y.dtype, [&]<class T>() {
    T* data = y.as<T>();
    const bool integers = start.integral && step.integral && !is_floating(y.dtype);
    parallel_for(y.size, even_chunk(y.size), [&](int64_t begin, int64_t end) {
      if (integers) {
        const auto first = static_cast<std::uint64_t>(start.integer);
        const auto each = static_cast<std::uint64_t>(step.integer);
        for (int64_t i = begin; i < end; ++i) data[i] = static_cast<T>(first + static_cast<std::uint64_t>(i) * each);
      } else {
        for (int64_t i = begin; i < end; ++i) data[i] = convert<T>(start.real + static_cast<double>(i) * step.real);
      }
    });
  });
}

void CpuOps::check_indices(const Array& index, int64_t limit, const int64_t* exempt, const char* op,
                           SourceLocation where) {
  dispatch_index(index.dtype, [&]<class T>() {
    const T* data = index.as<T>();
    const auto bound = static_cast<std::uint64_t>(max<int64_t>(limit, 0));
    int outside = 0;
    parallel_for(index.size, even_chunk(index.size), [&](int64_t begin, int64_t end) {
      if (any_outside(data, begin, end, bound, exempt)) __atomic_store_n(&outside, 1, __ATOMIC_RELAXED);
    });
    if (!outside) return;
    int64_t first = 0;  // the first one, whichever thread saw one first
    while (!any_outside(data, first, first + 1, bound, exempt)) ++first;
    throw_index_error(op, limit, data[first], first, where);
  });
}

void CpuOps::from_host(const void* host, void* device, int64_t bytes) { copy_in_parallel(host, device, bytes); }

void CpuOps::to_host(const void* device, void* host, int64_t bytes) { copy_in_parallel(device, host, bytes); }

}  // namespace reel::cpu::REEL_CPU_ISA
