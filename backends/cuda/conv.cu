// Direct correlations of any number of channels, with any padding, stride, dilation and groups. A thread makes one position
// of one or of kChannels results: it reads each element of the other side once for all of them. Weights pass through shared
// memory, as many channels at a time as fit.

#include <string>

#include "reel/backends/cuda/conv_tiled.h"
#include "reel/backends/cuda/limits.h"

namespace reel::cuda {

namespace {

// So that places beyond a channel's end, of threads that make nothing, and mirror images fit 32 bits too.
constexpr int64_t kMostElements = INT32_MAX - 1023, kMostAlong = int64_t{1} << 30;

/// `sizes` along three axes, together at most kMostElements.
void require_count(const char* what, const int64_t (&sizes)[3]) {
  int64_t count = 0;
  if (!__builtin_mul_overflow(sizes[0], sizes[1], &count) && !__builtin_mul_overflow(count, sizes[2], &count) &&
      count <= kMostElements)
    return;
  std::string text;
  for (int a = 0; a < 3; ++a)
    if (sizes[a] != 1) text += (text.empty() ? "" : " x ") + std::to_string(sizes[a]);
  refuse_size(what, kMostElements, text);
}

void require_axis(const char* what, int64_t size) {
  if (size > kMostAlong) refuse_size(what, kMostAlong, std::to_string(size));
}

/// A stride or dilation. From one element alone, steps lead nowhere.
int step(int64_t elements, int64_t size) {
  constexpr int64_t kFar = kMostAlong / 2;
  return static_cast<int>(elements == 1 && size > kFar ? kFar : size);
}

}  // namespace

Geometry::Geometry(const Conv& conv, const Array& x, const Array& y, const Array* relu_output)
    : batch(static_cast<int>(conv.batch)),
      in(static_cast<int>(conv.in)),
      out(static_cast<int>(conv.out)),
      groups(static_cast<int>(conv.groups)),
      mode(conv.mode),
      x_image(x.strides[0]),
      y_image(y.strides[0]),
      mask_image(relu_output != nullptr ? relu_output->strides[0] : 0) {
  require_count("a channel of the input", conv.input);
  require_count("a channel of the result", conv.output);
  require_count("the kernel", conv.kernel);
  require_axis("the batch", conv.batch);
  require_axis("the channels of an image", conv.in > conv.out ? conv.in : conv.out);
  for (int a = 0; a < 3; ++a) {
    require_axis("an axis of the padded input", conv.input[a] + 2 * conv.padding[a]);
    input[a] = static_cast<int>(conv.input[a]);
    kernel[a] = static_cast<int>(conv.kernel[a]);
    output[a] = static_cast<int>(conv.output[a]);
    stride[a] = step(conv.output[a], conv.stride[a]);
    dilation[a] = step(conv.kernel[a], conv.dilation[a]);
    padding[a] = static_cast<int>(conv.padding[a]);
  }
}

namespace device {
namespace {

inline constexpr int kChannels = 4;            // results per thread
inline constexpr int kSharedBytes = 32 << 10;  // for weights
inline constexpr int kConvThreads = 128;

/// Which results a block makes: a tile of positions, `most` of one group's channels, images in turn.
template <int most>
struct Tile {
  int group, first, channels;  // of the group's

  REEL_DEVICE Tile(int per_group, int first_tile) {
    const int tiles = (per_group + most - 1) / most, tile = first_tile + static_cast<int>(blockIdx.y);
    group = tile / tiles;
    first = tile % tiles * most;
    channels = smaller(most, per_group - first);
  }
};

/// Calls f(c, weights) for each channel c of the other side in turn, weights [most, taps] being those between c and the
/// tile's channels; 0 where the tile has fewer. load(c, k, tap) reads a weight. All threads of the block must call it.
template <int most, class T, class Load, class F>
REEL_DEVICE void for_each_channel(int count, int taps, T* shared, int chunk, Load load, F f) {
  const int size = most * taps;
  for (int begin = 0; begin < count; begin += chunk) {
    const int end = smaller(begin + chunk, count);
    __syncthreads();  // of the chunk before
    for (int i = threadIdx.x; i < (end - begin) * size; i += blockDim.x)
      shared[i] = load(begin + i / size, i % size / taps, i % taps);
    __syncthreads();
    for (int c = begin; c < end; ++c) f(c, shared + (c - begin) * size);
  }
}

/// A thread makes `most` channels, and has `loads` elements on their way at once. Shared memory: where the taps lead
/// [taps_at_once], and weights.
template <class T, bool zero_padding, int most, int loads>
__global__ void conv(const __grid_constant__ Geometry g, const T* x, const T* weight, const T* bias, bool relu, T* y,
                     int chunk, int taps_at_once, int first_tile) {
  REEL_DYNAMIC_SHARED(Reach, list);
  T* const shared = reinterpret_cast<T*>(list + taps_at_once);
  const Tile<most> tile(g.out_group(), first_tile);
  const int position = blockIdx.x * blockDim.x + threadIdx.x, taps = g.taps(), in = g.in_group();
  const bool inside = position < g.outputs();
  const Position output(inside ? position : 0, g.output);
  const Reach own = reach_of_output(g, output);
  const int first = tile.group * g.out_group() + tile.first;  // of all output channels
  for (int64_t image = blockIdx.z; image < g.batch; image += gridDim.z) {
    const T* const plane = x + image * g.x_image + static_cast<int64_t>(tile.group) * in * g.inputs();
    T sum[most];
    REEL_UNROLL
    for (int k = 0; k < most; ++k) sum[k] = bias != nullptr && k < tile.channels ? bias[first + k] : T(0);
    for (int from = 0; from < taps; from += taps_at_once) {
      const int some = smaller(taps_at_once, taps - from);
      __syncthreads();  // of the list before
      for (int k = threadIdx.x; k < some; k += blockDim.x)
        store_pack(list[k].v, reach_of_tap(g, Position(from + k, g.kernel)));
      for_each_channel<most>(
          in, some, shared, chunk,
          [&](int c, int k, int tap) {
            return k < tile.channels ? weight[(static_cast<int64_t>(first + k) * in + c) * taps + from + tap] : T(0);
          },
          [&](int c, const T* w) {
            if (!inside) return;
            const T* const channel = plane + static_cast<int64_t>(c) * g.inputs();
            for (int tap = 0; tap < some; tap += loads) {
              T value[loads];
              REEL_UNROLL
              for (int i = 0; i < loads; ++i) {
                const Reach reach = load_pack<uint32_t, 4>(list[tap + i < some ? tap + i : 0].v);
                const int at = zero_padding
                                   ? (is_inside(g.input, own, reach) ? static_cast<int>(own.v[3] + reach.v[3]) : -1)
                                   : input_of(g, own, reach);
                value[i] = at >= 0 && tap + i < some ? channel[at] : T(0);
              }
              REEL_UNROLL
              for (int i = 0; i < loads; ++i) {
                if (tap + i >= some) continue;
                REEL_UNROLL
                for (int k = 0; k < most; ++k) sum[k] = scalar::fma(value[i], w[k * some + tap + i], sum[k]);
              }
            }
          });
    }
    REEL_UNROLL
    for (int k = 0; k < most; ++k) {
      if (!inside || k >= tile.channels) continue;
      y[image * g.y_image + static_cast<int64_t>(first + k) * g.outputs() + position] =
          relu && sum[k] <= T(0) ? T(0) : sum[k];
    }
  }
}

/// The places along one axis through which input element i reaches the outputs: itself and those of the padding for which it
/// stands, its mirror image on either side, or all beyond an edge (replicate).
struct Places {
  int i, before, before_count, behind, behind_count;

  REEL_DEVICE Places(const Geometry& g, int axis, int i_) : i(i_), before_count(0), behind_count(0) {
    const int n = g.input[axis], padding = g.padding[axis];
    const bool replicate = g.mode == PaddingMode::replicate;
    const int edge = g.mode == PaddingMode::symmetric ? 1 : 0;
    before = replicate ? -1 : -edge - i;
    behind = replicate ? n : 2 * n - 2 + edge - i;
    if (g.mode == PaddingMode::zero) return;
    if (replicate ? i == 0 : before < 0 && before >= -padding) before_count = replicate ? padding : 1;
    if (replicate ? i == n - 1 : behind >= n && behind < n + padding) behind_count = replicate ? padding : 1;
  }
  REEL_DEVICE int count() const { return 1 + before_count + behind_count; }
  REEL_DEVICE int at(int k) const {
    if (k == 0) return i;
    return k <= before_count ? before - (k - 1) : behind + (k - 1 - before_count);
  }
};

/// The output position that a tap joins with a place along an axis; -1: none.
REEL_DEVICE int output_of(const Geometry& g, int axis, int place, int tap) {
  const int reach = place + g.padding[axis] - tap * g.dilation[axis];
  if (reach < 0 || reach % g.stride[axis] != 0) return -1;
  const int o = reach / g.stride[axis];
  return o < g.output[axis] ? o : -1;
}

/// f(output position) for each one that `tap` joins with `input`.
template <class F>
REEL_DEVICE void for_each_output(const Geometry& g, const Position& input, const Position& tap, F f) {
  const Places p0(g, 0, input.at[0]), p1(g, 1, input.at[1]), p2(g, 2, input.at[2]);
  for (int a = 0; a < p0.count(); ++a) {
    const int o0 = output_of(g, 0, p0.at(a), tap.at[0]);
    if (o0 < 0) continue;
    for (int b = 0; b < p1.count(); ++b) {
      const int o1 = output_of(g, 1, p1.at(b), tap.at[1]);
      if (o1 < 0) continue;
      for (int c = 0; c < p2.count(); ++c) {
        const int o2 = output_of(g, 2, p2.at(c), tap.at[2]);
        if (o2 >= 0) f((o0 * g.output[1] + o1) * g.output[2] + o2);
      }
    }
  }
}

template <class T>
__global__ void conv_backward_input(const __grid_constant__ Geometry g, const T* dy, const T* relu_output,
                                    const T* weight, T* dx, int chunk, int taps_at_once, int first_tile) {
  REEL_DYNAMIC_SHARED(T, shared);
  const Tile<kChannels> tile(g.in_group(), first_tile);
  const int position = blockIdx.x * blockDim.x + threadIdx.x, taps = g.taps(), in = g.in_group(), out = g.out_group();
  const bool inside = position < g.inputs();
  const Position input(inside ? position : 0, g.input);
  for (int64_t image = blockIdx.z; image < g.batch; image += gridDim.z) {
    T sum[kChannels] = {};
    for (int from = 0; from < taps; from += taps_at_once) {
      const int some = smaller(taps_at_once, taps - from);
      for_each_channel<kChannels>(
          out, some, shared, chunk,
          [&](int c, int k, int tap) {
            if (k >= tile.channels) return T(0);
            const int64_t channel = tile.group * out + c;
            return weight[(channel * in + tile.first + k) * taps + from + tap];
          },
          [&](int c, const T* w) {
            if (!inside) return;
            Position place(from, g.kernel);
            for (int tap = 0; tap < some; ++tap, place.next(g.kernel))
              for_each_output(g, input, place, [&](int o) {
                const int64_t channel = tile.group * out + c;
                const T value = masked(g, dy, relu_output, image, channel * g.outputs() + o);
                REEL_UNROLL
                for (int k = 0; k < kChannels; ++k) sum[k] = scalar::fma(value, w[k * some + tap], sum[k]);
              });
          });
    }
    REEL_UNROLL
    for (int k = 0; k < kChannels; ++k)
      if (inside && k < tile.channels)
        dx[image * g.x_image + static_cast<int64_t>(tile.group * in + tile.first + k) * g.inputs() + position] = sum[k];
  }
}

}  // namespace
}  // namespace device

namespace {

/// How the weights pass through shared memory: channels and taps at a time.
struct Plan {
  Grid grid;
  int chunk, taps;

  /// launch_part(grid, first tile of channels): a grid has kMostBlocksAcross of them at most.
  template <class F>
  void for_each_part(F launch_part) const {
    Grid part = grid;
    for (int64_t first = 0; first < grid.y; first += part.y) {
      part.y = grid.y - first < kMostBlocksAcross ? grid.y - first : kMostBlocksAcross;
      launch_part(part, static_cast<int>(first));
    }
  }
};

/// `results`: channels of a thread; `bytes_per_tap`: of shared memory besides the weights.
template <class T>
Plan plan_for(const Geometry& g, int positions, int own_per_group, int others, int results, int bytes_per_tap) {
  const int weight_bytes = static_cast<int>(sizeof(T)) * results;  // of a tap and a channel
  const int room = device::kSharedBytes / (weight_bytes + bytes_per_tap), taps = g.taps() < room ? g.taps() : room;
  const int most = (device::kSharedBytes / taps - bytes_per_tap) / weight_bytes;
  const int chunk = others < most ? (others > 0 ? others : 1) : most;
  return {
      {.blocks = ceil_div(positions, device::kConvThreads),
       .y = g.groups * ceil_div(own_per_group, results),
       .z = g.batch < kMostBlocksAcross ? g.batch : kMostBlocksAcross,
       .threads = device::kConvThreads,
       .shared_bytes = static_cast<std::size_t>(taps) * static_cast<std::size_t>(weight_bytes * chunk + bytes_per_tap)},
      chunk,
      taps};
}

/// Whether a kernel made one of f32's plain problems: zero padding, one group.
bool conv_plain(const Context& context, const Geometry& geometry, const Correlation& g, const Array& x,
                const Array* mask, const Array& weight, const Array* bias, bool relu, const Array& y) {
  if (y.dtype != DType::f32 || geometry.mode != PaddingMode::zero || geometry.groups != 1) return false;
  const auto run = [&](auto kernel) {
    return kernel(context, g, x.as<float>(), data_of<float>(mask), weight.as<float>(), data_of<float>(bias), relu,
                  y.as<float>());
  };
  return run(conv_tiled) || run(conv_gathered);
}

}  // namespace

void CudaOps::conv(const Conv& conv, const Array& x, const Array& weight, const Array* bias, Epilogue epilogue,
                   const Array& y) {
  if (y.size == 0) return;
  const Geometry g(conv, x, y, nullptr);
  if (conv_plain(context_, g, forward_of(g), x, nullptr, weight, bias, epilogue == Epilogue::relu, y)) return;
  dispatch_floating(y.dtype, [&]<class T>() {
    const auto run = [&]<int most, int loads>() {
      const Plan plan = plan_for<T>(g, g.outputs(), g.out_group(), g.in_group(), most, sizeof(device::Reach));
      const auto kernel =
          g.mode == PaddingMode::zero ? &device::conv<T, true, most, loads> : &device::conv<T, false, most, loads>;
      plan.for_each_part([&](const Grid& grid, int first) {
        launch(context_, "conv", grid, kernel, g, x.as<T>(), weight.as<T>(), data_of<T>(bias),
               epilogue == Epilogue::relu, y.as<T>(), plan.chunk, plan.taps, first);
      });
    };
    // As many as a row of the usual kernel has, or all of it; no more than there are.
    const auto run_of = [&]<int most>() {
      if (g.taps() == 1) return run.template operator()<most, 1>();
      if (g.taps() < 9) return run.template operator()<most, 3>();
      run.template operator()<most, 9>();
    };
    g.out_group() == 1 ? run_of.template operator()<1>() : run_of.template operator()<device::kChannels>();
  });
}

void CudaOps::conv_backward_input(const Conv& conv, const Array& dy, const Array* relu_output, const Array& weight,
                                  const Array& dx) {
  if (dx.size == 0) return;
  const Geometry g(conv, dx, dy, relu_output);
  if (conv_plain(context_, g, input_gradient_of(g), dy, relu_output, weight, nullptr, false, dx)) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    const Plan plan = plan_for<T>(g, g.inputs(), g.in_group(), g.out_group(), device::kChannels, 0);
    plan.for_each_part([&](const Grid& grid, int first) {
      launch(context_, "conv_backward_input", grid, &device::conv_backward_input<T>, g, dy.as<T>(),
             data_of<T>(relu_output), weight.as<T>(), dx.as<T>(), plan.chunk, plan.taps, first);
    });
  });
}

}  // namespace reel::cuda
