// Memory from nothing: one value everywhere, and arithmetic progressions.

#include <cstring>

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/map.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kFillSteps = 4;

template <class T>
__global__ void fill_packed(T* y, T value, Units<T> units) {
  const auto load = [=]<int n>(int64_t) { return splat<n>(value); };
  for_each_unit<kFillSteps>(units, load, [=]<int n>(int64_t i, const Pack<T, n>& pack) { write_pack(y + i, pack); });
}

/// One element per thread and step.
template <class T>
__global__ void fill_strided(T* y, T value, const __grid_constant__ Nest<1> nest, uint32_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t offsets[1];
    find(nest, static_cast<uint32_t>(i), offsets);
    y[offsets[0]] = value;
  }
}

/// One element per thread and step; integers modulo 2^64, else in f64.
template <class T>
__global__ void arange(T* y, int64_t count, bool integers, int64_t start, int64_t step, double real_start,
                       double real_step) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    if (integers) {
      y[i] = static_cast<T>(static_cast<std::uint64_t>(start) +
                            static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(step));
    } else {
      y[i] = convert<T>(real_start + static_cast<double>(i) * real_step);
    }
  }
}

}  // namespace
}  // namespace device

std::uint64_t element_bits(DType dtype, Scalar value) {
  if (dtype == DType::bf16) return bfloat16(value.real).bits;
  if (dtype == DType::f16) return float16(value.real).bits;
  std::uint64_t bits = 0;
  dispatch_all(dtype, [&]<class T>() {
    const T element = convert_scalar<T>(value);
    std::memcpy(&bits, &element, sizeof element);
  });
  return bits;
}

void CudaOps::fill(const Array& y, Scalar value) {
  if (y.size == 0) return;
  const std::uint64_t bits = element_bits(y.dtype, value);
  if (y.contiguous && bits == 0) {
    context_.use();
    const std::size_t bytes = static_cast<std::size_t>(y.size) * size_of(y.dtype);
    check(cudaMemsetAsync(y.data, 0, bytes, context_.stream()), "cudaMemsetAsync");
    return;
  }
  dispatch_bytes(size_of(y.dtype), [&]<class T>() {
    const T element = static_cast<T>(bits);
    if (y.contiguous) {
      const Units<T> units = units_of<T>(0, y.size, in_packs<T>({y.data}));
      launch(context_, "fill", units.grid(device::kFillSteps), &device::fill_packed<T>, y.as<T>(), element, units);
      return;
    }
    const auto part = [&](const Nest<1>& nest, const int64_t(&at)[1]) {
      launch(context_, "fill", grid_for(context_, nest.size()), &device::fill_strided<T>, y.as<T>() + at[0], element,
             nest, static_cast<uint32_t>(nest.size()));
    };
    for_each_part(nest_in_order_of<1>(y, y.shape, {y.strides}), part, {0});
  });
}

void CudaOps::arange(const Array& y, Scalar start, Scalar step) {
  dispatch_arithmetic(y.dtype, [&]<class T>() {
    const bool integers = start.integral && step.integral && !is_floating(y.dtype);
    launch(context_, "arange", grid_for(context_, y.size), &device::arange<T>, y.as<T>(), y.size, integers,
           start.integer, step.integer, start.real, step.real);
  });
}

}  // namespace reel::cuda
