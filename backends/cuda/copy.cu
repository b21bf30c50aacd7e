// Copies, by the layout of the two arrays once axes are in the order in which they lie in y and joined:
//   no gaps         one copy of the runtime
//   transposition   y is without gaps along one axis and x along another: tiles through shared memory, both sides in lines
//   rows            the inner axis is without gaps in y, and in x or one value: packs that look for their places
//   general         elements that look for their places
//   another GPU     no gaps, one copy between the two: context.h
// and conversions by the last two. From bf16 and f16 these go by way of f32, which holds all of both, and to them by way of f64.

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/map.h"
#include "reel/backends/cuda/tile.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kCopySteps = 4;

/// A few packs of n elements per thread, at the places of `walk`.
template <class To, class From, int n>
__global__ void copy_strided(const From* x, To* y, const __grid_constant__ Walk<2> walk) {
  const bool along = walk.strides[0][0] != 0;
  Pack<From, n> from[kCopySteps];
  int64_t to[kCopySteps];
  for_each_place<kCopySteps>(walk, [&](int s, const int64_t(&at)[2]) {
    from[s] = along ? load_pack<From, n>(x + at[0]) : splat<n>(x[at[0]]);
    to[s] = at[1];
  });
  for_each_step<kCopySteps>(walk, [&](int s) {
    Pack<To, n> converted;
    REEL_UNROLL
    for (int k = 0; k < n; ++k) converted.v[k] = convert<To>(from[s].v[k]);
    write_pack(y + to[s], converted);
  });
}

/// A tile per block.
template <class T>
__global__ void copy_turned(const T* x, T* y, const __grid_constant__ Tiling<2> tiling) {
  REEL_DYNAMIC_SHARED(Cell<T>, tile);
  const TileCorner corner = tile_corner<T>(tiling);
  for (uint32_t other = blockIdx.y; other < tiling.other_count; other += gridDim.y) {
    int64_t at[2];
    find(tiling.others, other, at);
    TilePart<T> part = {};
    for_each_of_tile<T>(tiling, 0, true, corner.row, corner.col,
                        [&](int s, int64_t offset) { part.v[s] = x[at[0] + offset]; });
    turn(part, tile);
    for_each_of_tile<T>(tiling, 1, false, corner.row, corner.col,
                        [&](int s, int64_t offset) { y[at[1] + offset] = part.v[s]; });
  }
}

}  // namespace
}  // namespace device

namespace {

/// y from x, fewer than 2^31 elements that are walked together.
template <class To, class From>
void strided(const Context& context, const From* x, To* y, const Nest<2>& nest) {
  if constexpr (std::is_same_v<To, From>) {
    if (const int axis = turned_axis(nest); axis >= 0) {
      const Tiling<2> tiling = tiling_of(nest, axis, kTile<To>);
      launch(context, "copy", tile_grid<To>(tiling), &device::copy_turned<To>, x, y, tiling);
      return;
    }
  }
  const auto run = [&]<int n>() {
    const Walk<2> walk(nest, n);
    launch(context, "copy", walk_grid(walk, device::kCopySteps), &device::copy_strided<To, From, n>, x, y, walk);
  };
  constexpr int pack = kPack<To> < kPack<From> ? kPack<To> : kPack<From>;
  moves_in_packs(nest, pack, {x, y}, {sizeof(From), sizeof(To)}) ? run.template operator()<pack>()
                                                                 : run.template operator()<1>();
}

/// What a conversion goes by way of; `to` if it is one step.
DType between(DType from, DType to) {
  if (is_half(from)) return DType::f32;
  return is_half(to) && !is_floating(from) ? DType::f64 : to;
}

/// Room for what y holds, without gaps and of another dtype.
Array dense_like(const Array& y, void* data, DType dtype) {
  Array dense = y;
  dense.data = data;
  dense.dtype = dtype;
  dense.contiguous = true;
  int64_t stride = 1;
  for (int axis = y.rank() - 1; axis >= 0; --axis) {
    dense.strides[axis] = stride;
    stride *= y.shape[axis];
  }
  return dense;
}

}  // namespace

void CudaOps::copy(const Array& x, const Array& y) {
  if (y.size == 0) return;
  if (x.dtype == y.dtype && x.contiguous && y.contiguous) {
    const std::size_t bytes = static_cast<std::size_t>(y.size) * size_of(y.dtype);
    if (!x.device.is_cpu() && x.device.index != context_.index()) {
      context_.from_peer(gpu(x.device.index).context(), x.data, y.data, bytes);
      return;
    }
    context_.use();
    check(cudaMemcpyAsync(y.data, x.data, bytes, cudaMemcpyDeviceToDevice, context_.stream()), "cudaMemcpyAsync");
    return;
  }
  const auto each_part = [&]<class To, class From>() {
    const auto part = [&](const Nest<2>& nest, const int64_t(&at)[2]) {
      strided<To, From>(context_, x.as<From>() + at[0], y.as<To>() + at[1], nest);
    };
    for_each_part(nest_in_order_of<2>(y, y.shape, {x.strides, y.strides}), part, {0, 0});
  };
  if (x.dtype == y.dtype) {
    dispatch_bytes(size_of(x.dtype), [&]<class T>() { each_part.template operator()<T, T>(); });
  } else if (const DType middle = between(x.dtype, y.dtype); middle != y.dtype) {
    const Workspace memory(context_.memory(), static_cast<std::size_t>(y.size) * size_of(middle));
    const Array step = dense_like(y, memory.as<void>(), middle);
    copy(x, step);
    copy(step, y);
  } else if (is_half(x.dtype)) {
    dispatch_half(x.dtype, [&]<class From>() { each_part.template operator()<float, From>(); });
  } else if (is_half(y.dtype)) {
    dispatch_half(y.dtype, [&]<class To>() {
      dispatch_floating(x.dtype, [&]<class From>() { each_part.template operator()<To, From>(); });
    });
  } else {
    dispatch_all(x.dtype, [&]<class From>() {
      dispatch_all(y.dtype, [&]<class To>() {
        if constexpr (!std::is_same_v<To, From>) each_part.template operator()<To, From>();
      });
    });
  }
}

}  // namespace reel::cuda
