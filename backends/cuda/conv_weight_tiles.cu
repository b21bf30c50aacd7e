// Gradients of a correlation's weight and bias as products of matrices: dweight[oc, ic, tap] is the sum over pixels p of
// dz[oc, p] x[ic, p + tap], where dz is dy masked by relu. dz and x pass through shared memory once for all taps of a tile;
// every thread keeps the sums of a few channels' weights in registers. The pixels are divided among `splits` blocks, whose
// partial sums a second kernel adds in a fixed order. No atomics.

#include "reel/backends/cuda/conv_weight_sums.h"
#include "reel/backends/cuda/group.h"

namespace reel::cuda {

namespace device {
namespace {

/// Where a tile of the weights begins.
struct WeightTile {
  int group, out, in, depth, row, col;  // channels within the group; taps

  REEL_DEVICE WeightTile(const WeightTiling& w, int tile) {
    in = tile % w.in_tiles * w.in_channels();
    tile /= w.in_tiles;
    out = tile % w.out_tiles * w.out_channels();
    tile /= w.out_tiles;
    col = tile % w.col_slices * w.micro_cols;
    tile /= w.col_slices;
    row = tile % w.row_slices * w.micro_rows;
    tile /= w.row_slices;
    depth = tile % w.g.kernel[0];
    group = tile / w.g.kernel[0];
  }
  REEL_DEVICE bool has_bias() const { return in == 0 && depth == 0 && row == 0 && col == 0; }
};

/// Where a chunk of output pixels begins, and how many rows and columns of it exist.
struct Chunk {
  int image, depth, row, col, rows, cols;

  REEL_DEVICE Chunk(const WeightTiling& w, int chunk) {
    col = chunk % w.col_tiles * w.cols;
    chunk /= w.col_tiles;
    row = chunk % w.row_tiles * w.rows;
    chunk /= w.row_tiles;
    depth = chunk % w.g.output[0];
    image = chunk / w.g.output[0];
    rows = smaller(w.rows, w.g.output[1] - row);
    cols = smaller(w.cols, w.g.output[2] - col);
  }
};

/// Blocks on a multiprocessor, which share its registers.
template <class T, class Size>
inline constexpr int kResident = Size::sums * sizeof(T) > 60 * sizeof(float) ? 3 : 4;

/// Where an element of a channel lies in memory (-1: it is 0) and in shared memory.
struct Place {
  int from, to;
};

/// What of some channels goes to shared memory.
struct Planes {
  int positions;           // of a channel
  int channels, existing;  // those that do not exist are 0
  int64_t from_step;       // from channel to channel
  int to_step;
  int shift;  // 2^shift threads take a channel
};

/// Takes packs of `width` elements of some channels to shared memory, by all threads of the block: those at place(p) for each
/// position p of a channel; 0 where `gates` (or null) is not positive. A thread's positions, `slots` at a time, are the same in
/// all channels; `batch` channels are under way at a time.
template <int width, int slots, int batch, class T, class Find>
REEL_DEVICE void transfer(const Planes& planes, const T* from, const T* gates, T* to, Find place) {
  const bool gated = gates != nullptr;
  const int lanes = 1 << planes.shift, first = threadIdx.x >> planes.shift;
  const int step = WeightTiling::kThreads >> planes.shift, to_step = step * planes.to_step;
  const int64_t from_step = step * planes.from_step;
  REEL_ROLLED
  for (int p = threadIdx.x & (lanes - 1); p < planes.positions; p += slots * lanes) {
    const T *source[slots], *gate[slots];
    T* target[slots];
    int loads[slots], stores[slots];  // channels
    REEL_UNROLL
    for (int s = 0; s < slots; ++s) {
      const bool exists = p + s * lanes < planes.positions;
      const Place at = exists ? place(p + s * lanes) : Place{-1, 0};
      const int64_t offset = at.from >= 0 ? first * planes.from_step + at.from : 0;
      source[s] = from + offset;
      gate[s] = gated ? gates + offset : from;
      target[s] = to + (first * planes.to_step + at.to);
      loads[s] = at.from >= 0 ? planes.existing : 0;
      stores[s] = exists ? planes.channels : 0;
    }
    REEL_ROLLED
    for (int channel = first; channel < planes.channels; channel += batch * step) {
      Pack<T, width> values[batch][slots], open[batch][slots];
      REEL_UNROLL
      for (int k = 0; k < batch; ++k) {
        REEL_UNROLL
        for (int s = 0; s < slots; ++s) {
          values[k][s] = open[k][s] = {};
          if (channel + k * step < loads[s]) {
            values[k][s] = load_pack<T, width>(source[s]);
            if (gated) open[k][s] = load_pack<T, width>(gate[s]);
          }
          source[s] += from_step;
          if (gated) gate[s] += from_step;
        }
      }
      REEL_UNROLL
      for (int k = 0; k < batch; ++k) {
        REEL_UNROLL
        for (int s = 0; s < slots; ++s) {
          if (gated) {
            REEL_UNROLL
            for (int i = 0; i < width; ++i) values[k][s].v[i] = open[k][s].v[i] <= T(0) ? T(0) : values[k][s].v[i];
          }
          if (channel + k * step < stores[s]) store_pack(target[s], values[k][s]);
          target[s] += to_step;
        }
      }
    }
  }
}

/// dz of a chunk: [out_channels, z_pitch], 0 where there is no such channel or pixel.
template <class Size, class T>
REEL_DEVICE void load_dz(const WeightTiling& w, const WeightTile& tile, const Chunk& chunk, const T* dy,
                         const T* relu_output, T* dz) {
  const Geometry& g = w.g;
  const int first = tile.group * g.out_group() + tile.out;
  const int64_t corner =
      static_cast<int64_t>(first) * w.outputs + ((chunk.depth * g.output[1] + chunk.row) * g.output[2] + chunk.col);
  // By runs of `width` pixels, of which all exist or none.
  const auto load_runs = [&]<int width, int slots, int batch>() {
    constexpr int log_width = width == 4 ? 2 : width == 2 ? 1 : 0;
    const Planes planes{.positions = w.pixels() >> log_width,
                        .channels = w.out_channels(),
                        .existing = g.out_group() - tile.out,
                        .from_step = w.outputs,
                        .to_step = w.z_pitch,
                        .shift = smaller(w.pixel_shift - log_width, WeightTiling::kThreadsLog)};
    transfer<width, slots, batch>(
        planes, dy + chunk.image * g.y_image + corner,
        relu_output != nullptr ? relu_output + chunk.image * g.mask_image + corner : nullptr, dz, [&](int run) {
          const int pixel = run << log_width, row = pixel >> w.col_shift, col = pixel & (w.cols - 1);
          return Place{row < chunk.rows && col < chunk.cols ? row * g.output[2] + col : -1, pixel};
        });
  };
  constexpr int slots = Size::out == 1 ? 4 : 1, batch = (sizeof(T) > 4 ? 4 : 8) / slots;  // few channels: many pixels
  if (w.packs) load_runs.template operator()<kPack<T>, 1, 4>();
  else load_runs.template operator()<1, slots, batch>();
}

/// What a chunk sees of x through a tile's taps: [in_channels, x_plane], rows of x_pitch; 0 where nothing is.
template <class Size, class T>
REEL_DEVICE void load_x(const WeightTiling& w, const WeightTile& tile, const Chunk& chunk, const T* x, T* seen) {
  const Geometry& g = w.g;
  const int first = tile.group * g.in_group() + tile.in;
  const int depth =
      element_at(chunk.depth * g.stride[0] + tile.depth * g.dilation[0] - g.padding[0], g.input[0], g.mode);
  const int row = chunk.row * g.stride[1] + tile.row * g.dilation[1] - g.padding[1];
  const int col = chunk.col * g.stride[2] + tile.col * g.dilation[2] - g.padding[2];
  const T* const from = x + chunk.image * g.x_image + static_cast<int64_t>(first) * w.inputs +
                        static_cast<int64_t>(depth) * g.input[1] * g.input[2];
  const Planes planes{.positions = w.x_rows * w.x_cols,
                      .channels = w.in_channels(),
                      .existing = g.in_group() - tile.in,
                      .from_step = w.inputs,
                      .to_step = w.x_plane,
                      .shift = w.x_shift};
  constexpr const T* ungated = nullptr;
  constexpr int slots = Size::in == 1 ? 5 : 2, many = sizeof(T) > 4 ? 2 : 8, batch = Size::in == 1 ? 1 : many;
  transfer<1, slots, batch>(planes, from, ungated, seen, [&](int i) {
    const int r = static_cast<int>(w.x_row.quotient(static_cast<uint32_t>(i))), c = i - r * w.x_cols;
    // Beyond the last output's input the mirror images may lie outside too.
    const int h = element_at(row + r, g.input[1], g.mode), v = element_at(col + c, g.input[2], g.mode);
    const bool inside = depth >= 0 && h >= 0 && h < g.input[1] && v >= 0 && v < g.input[2];
    return Place{inside ? h * g.input[2] + v : -1, r * w.x_pitch + c};
  });
}

REEL_DEVICE int tile_of_block(const WeightTiling& w) { return w.first_tile + static_cast<int>(blockIdx.y); }

/// Where the results go: to `partial` [splits, tiles, sums, threads_of_tile], or to the gradients if it is null.
template <class T>
struct WeightTarget {
  T *partial, *dweight, *dbias;

  /// Sum number `sum` of thread `thread` of a tile's threads, of this block; `again`: added to what is there.
  REEL_DEVICE void put_partial(const WeightTiling& w, int sum, int thread, T value, bool again) const {
    const int64_t of_block = static_cast<int64_t>(blockIdx.x) * w.tiles() + tile_of_block(w);
    T& to = partial[(of_block * w.sums() + sum) * w.threads_of_tile() + thread];
    to = again ? to + value : value;
  }

  REEL_DEVICE void put(const WeightTiling& w, const WeightTile& tile, int sum, int thread, T value, bool again) const {
    const Geometry& g = w.g;
    const int out_thread = thread % w.out_threads, in_thread = thread / w.out_threads;
    const int taps = w.micro_rows * w.micro_cols, weights = w.micro_out * w.micro_in * taps;
    const int o = sum < weights ? sum / (w.micro_in * taps) : sum - weights;
    const int out = tile.out + o * w.out_threads + out_thread, channel = tile.group * g.out_group() + out;
    if (out >= g.out_group()) return;
    if (sum >= weights) {
      if (dbias != nullptr && tile.has_bias() && in_thread == 0)
        dbias[channel] = again ? dbias[channel] + value : value;
      return;
    }
    const int in = tile.in + sum / taps % w.micro_in * w.in_threads + in_thread, tap = sum % taps;
    const int row = tile.row + tap / w.micro_cols, col = tile.col + tap % w.micro_cols;
    if (in >= g.in_group() || row >= g.kernel[1] || col >= g.kernel[2]) return;
    T& to = dweight[(static_cast<int64_t>(channel) * g.in_group() + in) * g.taps() +
                    (tile.depth * g.kernel[1] + row) * g.kernel[2] + col];
    to = again ? to + value : value;
  }
};

/// blockIdx.x: split; blockIdx.y: tile. Thread: lane * threads_of_tile + in thread * out_threads + out thread; those beyond the
/// last lane only load. Out and in channels of neighbouring threads are neighbours.
template <class T, class Size>
__global__ void __launch_bounds__(WeightTiling::kThreads, kResident<T, Size>)
    conv_weight_tiles(const __grid_constant__ WeightTiling w, const T* x, const T* dy, const T* relu_output,
                      const WeightTarget<T> target) {
  REEL_DYNAMIC_SHARED(T, shared);
  const WeightTile tile(w, tile_of_block(w));
  T *const dz = shared, *const seen = shared + w.out_channels() * w.z_pitch;
  const int split = blockIdx.x, width = w.threads_of_tile();
  const int begin = split * w.chunks_of_split + smaller(split, w.chunks_left);
  const int end = begin + w.chunks_of_split + (split < w.chunks_left ? 1 : 0);
  const int lane = threadIdx.x / width, thread = threadIdx.x % width;
  const bool with_bias = w.bias && tile.has_bias();
  const T* const own_dz = dz + thread % w.out_threads * w.z_pitch;
  const T* const own_seen = seen + thread / w.out_threads * w.x_plane;

  int c = begin;
  bool again = false;  // not the first chain
  do {
    const int next = smaller(c + w.flush, end);
    WeightSums<T, Size> sums;
    REEL_ROLLED
    for (; c < next; ++c) {
      const Chunk chunk(w, c);
      __syncthreads();  // of the chunk before, and of what was joined
      load_dz<Size>(w, tile, chunk, dy, relu_output, dz);
      load_x<Size>(w, tile, chunk, x, seen);
      __syncthreads();
      if (lane >= w.lanes) continue;
      REEL_ROLLED
      for (int pixel = lane * WeightTiling::kRun; pixel < w.pixels(); pixel += w.lanes * WeightTiling::kRun) {
        const int row = pixel >> w.col_shift, col = pixel & (w.cols - 1);
        if (row >= chunk.rows) break;
        const T* const z = own_dz + pixel;
        const T* const from = own_seen + row * w.g.stride[1] * w.x_pitch + col * w.g.stride[2];
        const int some = smaller(WeightTiling::kRun, chunk.cols - col);
        if (w.dense && some == WeightTiling::kRun) {
          sums.add_run(w, z, from, with_bias);
          continue;
        }
        REEL_ROLLED
        for (int k = 0; k < some; ++k) sums.add_pixel(w, z + k, from + k * w.g.stride[2]);
      }
    }
    if (w.lanes == 1) {
      if (lane == 0) sums.for_each([&](int k, T& sum) { target.put_partial(w, k, thread, sum, again); });
    } else {
      __syncthreads();  // of what was read from the chunk
      const int pitch = w.join_pitch();
      sums.for_each([&](int k, T& sum) { shared[k * pitch + threadIdx.x] = sum; });
      __syncthreads();
      REEL_ROLLED
      for (int i = threadIdx.x; i < w.results(); i += WeightTiling::kThreads) {
        const int k = i / width, of = i % width;
        const T* const at = shared + k * pitch + of;
        T sum = 0;
        for (int l = 0; l < w.lanes; ++l) sum += at[l * width];
        if (w.direct) target.put(w, tile, k, of, sum, again);
        else target.put_partial(w, k, of, sum, again);
      }
    }
    again = true;
  } while (c < end);
}

/// Adds the splits' partial sums: a column of `lanes` takes a result of a tile.
template <class T>
__global__ void add_weight_tiles(const __grid_constant__ WeightTiling w, const WeightTarget<T> target,
                                 const Lanes lanes) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t results = static_cast<int64_t>(w.tiles()) * w.results();
  const int64_t result = static_cast<int64_t>(blockIdx.x) * lanes.columns + lanes.column();
  const T* const from = target.partial + result;
  constexpr int kChains = 4;
  T sum[kChains] = {};
  if (result < results) {
    for (int split = lanes.row(); split < w.splits; split += kChains * lanes.rows()) {
      REEL_UNROLL
      for (int k = 0; k < kChains; ++k) {
        const int at = split + k * lanes.rows();
        if (at < w.splits) sum[k] += from[at * results];
      }
    }
  }
  const T total = lanes.join((sum[0] + sum[1]) + (sum[2] + sum[3]), scratch, [](T a, T b) { return a + b; });
  if (lanes.row() != 0 || result >= results) return;
  const int in_tile = static_cast<int>(result % w.results());
  target.put(w, WeightTile(w, static_cast<int>(result / w.results())), in_tile / w.threads_of_tile(),
             in_tile % w.threads_of_tile(), total, false);
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<Size>() for the micro-tile that fits the channels and the taps.
template <class T, class F>
void dispatch_micro(const Geometry& g, F f) {
  if constexpr (sizeof(T) > 4) return f.template operator()<Micro<2, 2, 3, 3>>();
  else if (g.kernel[1] == 1 && g.kernel[2] == 1) f.template operator()<Micro<8, 8, 1, 1>>();
  else if (g.kernel[1] == 1) f.template operator()<Micro<4, 4, 1, 3>>();
  else if (g.out_group() == 1 && g.in_group() == 1) f.template operator()<Micro<1, 1, 3, 3>>();
  else if (g.out_group() == 1) f.template operator()<Micro<1, 4, 3, 3>>();
  else if (g.in_group() == 1) f.template operator()<Micro<4, 1, 3, 3>>();
  else if (g.out_group() == 2 && g.in_group() == 2) f.template operator()<Micro<2, 2, 3, 3>>();
  else f.template operator()<Micro<4, 2, 3, 3>>();
}

template <class T, class Size>
bool run_tiles(const Context& context, const Geometry& g, const T* x, const T* dy, const T* relu_output, T* dweight,
               T* dbias) {
  WeightTiling w(g);
  w.micro_out = Size::out;
  w.micro_in = Size::in;
  w.micro_rows = Size::rows;
  w.micro_cols = Size::cols;
  w.bias = dbias != nullptr;
  if (!w.plan(sizeof(T), WeightTiling::kProcessors * device::kResident<T, Size>)) return false;
  w.packs = in_packs<T>({dy, relu_output}, {g.output[2], g.y_image, g.mask_image});

  const int64_t results = int64_t{w.tiles()} * w.results();
  const Workspace partial(context.memory(), w.direct ? 0 : sizeof(T) * static_cast<std::size_t>(w.splits * results));
  const device::WeightTarget<T> target{partial.as<T>(), dweight, dbias};
  Grid grid{.blocks = w.splits, .threads = WeightTiling::kThreads, .shared_bytes = w.shared_bytes(sizeof(T))};
  for (int64_t first = 0; first < w.tiles(); first += grid.y) {
    grid.y = w.tiles() - first < kMostBlocksAcross ? w.tiles() - first : kMostBlocksAcross;
    w.first_tile = static_cast<int>(first);
    launch(context, "conv_backward_weight", grid, &device::conv_weight_tiles<T, Size>, w, x, dy, relu_output, target);
  }
  if (w.direct) return true;
  constexpr int64_t kWanted = 264;  // blocks
  const device::Lanes lanes{power_of_two_from(ceil_div(results, kWanted), 1, device::kWarp)};
  launch(context, "conv_backward_weight",
         {.blocks = ceil_div(results, lanes.columns), .shared_bytes = sizeof(T) * kThreads},
         &device::add_weight_tiles<T>, w, target, lanes);
  return true;
}

}  // namespace

bool conv_backward_weight_tiles(const Context& context, const Geometry& g, const Array& x, const Array& dy,
                                const Array* relu_output, const Array& dweight, const Array* dbias) {
  bool done = false;
  dispatch_floating(dweight.dtype, [&]<class T>() {
    dispatch_micro<T>(g, [&]<class Size>() {
      done = run_tiles<T, Size>(context, g, x.as<T>(), dy.as<T>(), data_of<T>(relu_output), dweight.as<T>(),
                                data_of<T>(dbias));
    });
  });
  return done;
}

}  // namespace reel::cuda
