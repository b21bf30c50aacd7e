#pragma once

#include "reel/backends/cpu/conv_weight_tile.h"
#include "reel/backends/cpu/transpose.h"

/// The weight's gradient where there are vectors full of output channels: these lie along the vectors, and every position
/// adds dz, a vector, times x, a number, to the sums of a tile. So sums are never taken across lanes, and x is only read where
/// there are outputs.
namespace reel::cpu::REEL_CPU_ISA {

/// Vectors of a tile are a power of 2 up to this many; its sums need vectors * taps registers, dz `vectors`, and x one.
#if defined(REEL_SIMD_AVX512)
inline constexpr int kChannelVectors = 4;
inline constexpr int channel_taps(int vectors) { return vectors == 4 ? 6 : 9; }
#else
inline constexpr int kChannelVectors = 2;
inline constexpr int channel_taps(int vectors) { return vectors == 2 ? 5 : 9; }
#endif
/// dz of so many bytes is worked on at a time, to stay in the first-level cache.
inline constexpr int64_t kChannelBytes = 16 * 1024;

/// Whether few lanes would be idle. (On v2 a vector holds too little.)
template <class T>
REEL_INLINE bool channels_fill_vectors(int64_t out) {
  constexpr int64_t width = Vec<T>::width;
  return kVectorBytes > 16 && 5 * out >= 4 * ceil_div(out, width) * width;
}

/// Runs of neighbouring positions, each with an output.
template <class T>
struct ChannelBlock {
  const T* dz;  // [runs, columns, channels]
  int64_t runs, columns;
  int64_t channels;  // of whole vectors
  const T* x;        // of position 0; runs are x_run apart
  int64_t x_run;
};

/// sums[t, channel] += sum over positions of dz[channel] x[offset[t]]; rows of sums are block.channels apart.
template <class T, int vectors, int taps>
void channel_tile(const ChannelBlock<T>& block, const T* dz, const int64_t* offset, T* sums) {
  using V = Vec<T>;
  V sum[taps][vectors];
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sum[t][v] = V::load(sums + t * block.channels + v * V::width);
  }
  for (int64_t run = 0; run < block.runs; ++run) {
    const T* x = block.x + run * block.x_run;
    for (int64_t i = 0; i < block.columns; ++i, ++x, dz += block.channels) {
      V d[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) d[v] = V::load(dz + v * V::width);
#pragma GCC unroll 16
      for (int t = 0; t < taps; ++t) {
        const V in = V::broadcast(x[offset[t]]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) sum[t][v] = fma(d[v], in, sum[t][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < taps; ++t) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sum[t][v].store(sums + t * block.channels + v * V::width);
  }
}

/// Calls channel_tile for `vectors` vectors and all taps: as many as fit, then three, then one at a time.
template <class T, int vectors>
void channel_tiles(const ChannelBlock<T>& block, const T* dz, const int64_t* offset, int64_t taps, T* sums) {
  constexpr int kMost = channel_taps(vectors);
  int64_t t = 0;
  for (; t + kMost <= taps; t += kMost) {
    channel_tile<T, vectors, kMost>(block, dz, offset + t, sums + t * block.channels);
  }
  for (; t + 3 <= taps; t += 3) channel_tile<T, vectors, 3>(block, dz, offset + t, sums + t * block.channels);
  for (; t < taps; ++t) channel_tile<T, vectors, 1>(block, dz, offset + t, sums + t * block.channels);
}

template <class T>
void add_channel_block(const ChannelBlock<T>& block, const int64_t* offset, int64_t taps, T* sums) {
  constexpr int64_t width = Vec<T>::width;
  int64_t c = 0;
  if constexpr (kChannelVectors == 4) {
    for (; c + 4 * width <= block.channels; c += 4 * width) {
      channel_tiles<T, 4>(block, block.dz + c, offset, taps, sums + c);
    }
  }
  for (; c + 2 * width <= block.channels; c += 2 * width) {
    channel_tiles<T, 2>(block, block.dz + c, offset, taps, sums + c);
  }
  if (c < block.channels) channel_tiles<T, 1>(block, block.dz + c, offset, taps, sums + c);
}

/// The positions of a packed block that have outputs: in each plane `rows` runs of `columns`.
struct ChannelRuns {
  int64_t rows, columns;
  int64_t dz_row, dz_plane;  // elements of dz from one run and one plane to the next
};

/// sums[taps, channels] += the dot products of a packed block; dz_by_position has room for kChannelBytes and a position more,
/// zero in the lanes from `out` on.
template <class T>
void add_by_channels(const WeightBlock<T>& block, const ChannelRuns& runs, int64_t out, const int64_t* offset,
                     int64_t taps, T* dz_by_position, T* sums) {
  ChannelBlock<T> part;
  part.dz = dz_by_position;
  part.channels = ceil_div(out, Vec<T>::width) * Vec<T>::width;
  part.x_run = block.x_run;
  const int64_t most = max<int64_t>(1, kChannelBytes / static_cast<int64_t>(sizeof(T)) / part.channels);
  const int64_t some_rows = max<int64_t>(1, most / runs.columns), some_columns = min(most, runs.columns);
  for (int64_t plane = 0; plane < block.images * block.planes; ++plane) {
    const T* dz_plane = block.dz + plane * runs.dz_plane;
    const T* x_plane = block.x + plane / block.planes * block.x_image + plane % block.planes * block.x_plane;
    for (int64_t row = 0; row < runs.rows; row += some_rows) {
      part.runs = min(some_rows, runs.rows - row);
      for (int64_t column = 0; column < runs.columns; column += some_columns) {
        part.columns = min(some_columns, runs.columns - column);
        part.x = x_plane + row * block.x_run + column;
        for (int64_t r = 0; r < part.runs; ++r) {
          transpose_block(dz_plane + (row + r) * runs.dz_row + column, block.dz_row,
                          dz_by_position + r * part.columns * part.channels, part.channels, part.columns, out);
        }
        add_channel_block(part, offset, taps, sums);
      }
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
