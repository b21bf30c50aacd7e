// Copies, by the layout of the two arrays once axes are in the order in which they lie in y and joined:
//   no gaps         one copy of the runtime
//   transposition   y is without gaps along one axis and x along another: tiles through shared memory, both sides in lines
//   general         element by element
// and conversions, element by element.

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/kernel.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kTile = 32;

/// One element per thread and step.
template <class To, class From>
__global__ void copy_strided(const From* x, To* y, const __grid_constant__ Nest<2> nest, uint32_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t at[2];
    find(nest, static_cast<uint32_t>(i), at);
    y[at[1]] = convert<To>(x[at[0]]);
  }
}

/// x [cols, rows] without gaps along its rows to y [rows, cols] without gaps along its columns; a block moves one tile of 32
/// by 32, a warp a line of it; blockIdx.y walks over the other axes.
template <class T>
__global__ void transpose(const T* x, T* y, int64_t rows, int64_t cols, int64_t x_stride, int64_t y_stride,
                          int64_t tiles_across, const __grid_constant__ Nest<2> others, uint32_t count) {
  REEL_DYNAMIC_SHARED(T, tile);
  const int64_t row = blockIdx.x / tiles_across * kTile, col = blockIdx.x % tiles_across * kTile;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  for (uint32_t other = blockIdx.y; other < count; other += gridDim.y) {
    int64_t at[2];
    find(others, other, at);
    __syncthreads();  // of the tile before
    for (int i = warp; i < kTile; i += warps) {
      if (row + lane < rows && col + i < cols)
        tile[i * (kTile + 1) + lane] = x[at[0] + (col + i) * x_stride + row + lane];
    }
    __syncthreads();
    for (int i = warp; i < kTile; i += warps) {
      if (row + i < rows && col + lane < cols)
        y[at[1] + (row + i) * y_stride + col + lane] = tile[lane * (kTile + 1) + i];
    }
  }
}

}  // namespace
}  // namespace device

namespace {

/// The axis other than the inner one along which x is without gaps, if y is along the inner one and both are long; else -1.
int transposed_axis(const Nest<2>& nest) {
  const int inner = nest.rank - 1;
  if (inner < 1 || nest.strides[1][inner] != 1 || nest.strides[0][inner] == 0 || nest.sizes[inner] < 8) return -1;
  for (int axis = 0; axis < inner; ++axis)
    if (nest.strides[0][axis] == 1 && nest.sizes[axis] >= 8) return axis;
  return -1;
}

template <class T>
void transpose(const Context& context, const T* x, T* y, const Nest<2>& nest, int axis) {
  const int inner = nest.rank - 1;
  Nest<2> others;
  for (int i = 0; i < inner; ++i)
    if (i != axis) others.push_back(nest.sizes[i], {nest.strides[0][i], nest.strides[1][i]});
  const int64_t rows = nest.sizes[axis], cols = nest.sizes[inner];
  const int64_t across = ceil_div(cols, device::kTile);
  const Grid grid{.blocks = ceil_div(rows, device::kTile) * across,
                  .y = others.size() < 65535 ? others.size() : 65535,
                  .shared_bytes = sizeof(T) * device::kTile * (device::kTile + 1)};
  launch(context, "copy", grid, &device::transpose<T>, x, y, rows, cols, nest.strides[0][inner], nest.strides[1][axis],
         across, others, static_cast<uint32_t>(others.size()));
}

}  // namespace

void CudaOps::copy(const Array& x, const Array& y) {
  if (y.size == 0) return;
  if (x.dtype == y.dtype && x.contiguous && y.contiguous) {
    context_.use();
    const std::size_t bytes = static_cast<std::size_t>(y.size) * size_of(y.dtype);
    check(cudaMemcpyAsync(y.data, x.data, bytes, cudaMemcpyDeviceToDevice, context_.stream()), "cudaMemcpyAsync");
    return;
  }
  const auto each_part = [&]<class To, class From>() {
    const auto part = [&](const Nest<2>& nest, const int64_t(&at)[2]) {
      const From* const source = x.as<From>() + at[0];
      To* const target = y.as<To>() + at[1];
      if constexpr (std::is_same_v<To, From>) {
        const int axis = transposed_axis(nest);
        if (axis >= 0) return transpose(context_, source, target, nest, axis);
      }
      launch(context_, "copy", grid_for(context_, nest.size()), &device::copy_strided<To, From>, source, target, nest,
             static_cast<uint32_t>(nest.size()));
    };
    for_each_part(nest_in_order_of<2>(y, y.shape, {x.strides, y.strides}), part, {0, 0});
  };
  if (x.dtype == y.dtype) {
    dispatch_bytes(size_of(x.dtype), [&]<class T>() { each_part.template operator()<T, T>(); });
  } else {
    dispatch_all(x.dtype, [&]<class From>() {
      dispatch_all(y.dtype, [&]<class To>() {
        if constexpr (!std::is_same_v<To, From>) each_part.template operator()<To, From>();
      });
    });
  }
}

}  // namespace reel::cuda
