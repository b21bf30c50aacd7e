// Images scaled and shifted by numbers of their channels: a warp or a block for each run of a channel or, where it is long, for each
// piece of it; 16 bytes per access where runs allow it. Backward sums a piece's part of the channel's gradients along with dx;
// these parts are summed by `reduce`.

#include "reel/backends/cuda/normalize.h"

namespace reel::cuda {

namespace device {
namespace {

/// x [n, channels, length], of which the last axis has no gaps; numbers of each channel, null: neutral.
template <class T>
struct Channels {
  const T *x, *center, *scale, *shift;
  int64_t outer_stride, channel_stride, runs, channels, length;
  RowPieces pieces;

  __host__ __device__ int64_t units() const { return runs * pieces.count; }
  REEL_DEVICE const T* run(int64_t r) const { return x + r / channels * outer_stride + r % channels * channel_stride; }
};

template <class T, int count>
__global__ void scale_channels(const __grid_constant__ Channels<T> in, T* y, RowGroup group) {
  for (int64_t unit = group.first(); unit < in.units(); unit += group.step()) {
    const int64_t r = in.pieces.row(unit), channel = r % in.channels;
    const T center = in.center != nullptr ? in.center[channel] : T(0);
    const T scale = in.scale != nullptr ? in.scale[channel] : T(1);
    const T shift = in.shift != nullptr ? in.shift[channel] : T(-0.0);
    const T* const run = in.run(r);
    each_pack<count>(group, in.pieces.begin(unit), in.pieces.end(unit, in.length), [&](int64_t i) {
      Pack<T, count> value = load_pack<T, count>(run + i);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) value.v[k] = (value.v[k] - center) * scale + shift;
      store_pack(y + r * in.length + i, value);
    });
  }
}

/// parts [n, pieces, 2, channels]: each piece's sums of dy (x - center) and of dy.
template <class T, int count>
__global__ void scale_channels_backward(const __grid_constant__ Channels<T> in, const T* dy, T* dx, T* parts,
                                        RowGroup group) {
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  for (int64_t unit = group.first(); unit < in.units(); unit += group.step()) {
    const int64_t r = in.pieces.row(unit), channel = r % in.channels;
    const T center = in.center != nullptr ? in.center[channel] : T(0);
    const T scale = in.scale != nullptr ? in.scale[channel] : T(1);
    const T* const run = in.run(r);
    Scratch sums{};
    each_pack<count>(group, in.pieces.begin(unit), in.pieces.end(unit, in.length), [&](int64_t i) {
      const auto from = load_pack<T, count>(run + i), grad = load_pack<T, count>(dy + r * in.length + i);
      Pack<T, count> to;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        sums.of[0] = scalar::fma(grad.v[k], from.v[k] - center, sums.of[0]);
        sums.of[1] += grad.v[k];
        to.v[k] = grad.v[k] * scale;
      }
      if (dx != nullptr) store_pack(dx + r * in.length + i, to);
    });
    const Scratch total = join_sums(group, sums, scratch);
    if (group.lane() != 0) continue;
    const int64_t row = r / in.channels * in.pieces.count + unit % in.pieces.count;
    T* const part = parts + row * 2 * in.channels + channel;
    part[0] = total.of[0];
    part[in.channels] = total.of[1];
  }
}

}  // namespace
}  // namespace device

namespace {

constexpr int64_t kPiece = 16384;  // elements, about, which keep a block busy

template <class T>
device::Channels<T> channels_of(const Array& x, const Array* center, const Array* scale, const Array* shift) {
  const int64_t length = x.shape[2], count = ceil_div(length, kPiece);
  const int64_t piece =
      count == 1 ? length : ceil_div(ceil_div(length, count), 64) * 64;  // pieces begin where packs do
  return {x.as<T>(),
          data_of<T>(center),
          data_of<T>(scale),
          data_of<T>(shift),
          x.strides[0],
          x.strides[1],
          x.shape[0] * x.shape[1],
          x.shape[1],
          length,
          {ceil_div(length, piece), piece}};
}

}  // namespace

void CudaOps::scale_channels(const Array& x, const Array* center, const Array* scale, const Array* shift,
                             const Array& y) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const auto in = channels_of<T>(x, center, scale, shift);
    device::RowGroup group{};
    const Grid grid = row_grid(context_, in.units(), in.pieces.length, group.whole_block);
    const bool packed = in_packs<T>({x.data, y.data}, {in.length, in.outer_stride, in.channel_stride});
    launch(context_, "scale_channels", grid,
           packed ? &device::scale_channels<T, kPack<T>> : &device::scale_channels<T, 1>, in, y.as<T>(), group);
  });
}

void CudaOps::scale_channels_backward(const Array& x, const Array* center, const Array* scale, const Array& dy,
                                      const Array* dx, const Array* dscale, const Array* dshift) {
  if (x.size == 0) {
    if (dscale != nullptr) fill(*dscale, 0);
    if (dshift != nullptr) fill(*dshift, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    const auto in = channels_of<T>(x, center, scale, nullptr);
    device::RowGroup group{};
    Grid grid = row_grid(context_, in.units(), in.pieces.length, group.whole_block);
    grid.shared_bytes = sizeof(device::Sums<T, 2>) * device::kWarp;
    const bool packed = in_packs<T>({x.data, dy.data, data_of<T>(dx)}, {in.length, in.outer_stride, in.channel_stride});
    const Workspace parts(context_.memory(), sizeof(T) * static_cast<std::size_t>(2 * in.units()));
    launch(context_, "scale_channels_backward", grid,
           packed ? &device::scale_channels_backward<T, kPack<T>> : &device::scale_channels_backward<T, 1>, in,
           dy.as<T>(), data_of<T>(dx), parts.as<T>(), group);
    const auto add_up = [&](const Array* to, T* from) {
      if (to == nullptr) return;
      reduce(ReduceOp::sum, matrix_of(from, x.shape[0] * in.pieces.count, in.channels, 2 * in.channels, *to),
             matrix_of(to->data, 1, in.channels, in.channels, *to), nullptr);
    };
    add_up(dscale, parts.as<T>());
    add_up(dshift, parts.as<T>() + in.channels);
  });
}

}  // namespace reel::cuda
