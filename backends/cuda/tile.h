#pragma once

#include "reel/backends/cuda/kernel.h"

// Matrices that lie in memory the other way than the result: a block moves tiles of them through shared memory, so that both
// sides are read and written in lines.

namespace reel::cuda {

/// The matrix [rows, cols] in which y (the last of N operands) is without gaps along its rows and others, the turned ones,
/// along their columns. There is such a matrix for every element of `others`.
template <int N>
struct Tiling {
  int64_t rows, cols;
  uint32_t tiles_down, tiles_across;  // fewer than 2^31 in all
  int64_t row_strides[N], col_strides[N];
  bool turned[N];
  Nest<N> others;
  uint32_t other_count;
};

/// The axis of the nest other than the inner one along which an operand is without gaps, if y is along the inner one, the
/// operand is not, and both are long; else -1.
template <int N>
int turned_axis(const Nest<N>& nest) {
  const int inner = nest.rank - 1;
  if (inner < 1 || nest.strides[N - 1][inner] != 1 || nest.sizes[inner] < 8) return -1;
  for (int axis = 0; axis < inner; ++axis)
    for (int k = 0; k < N - 1; ++k)
      if (nest.strides[k][axis] == 1 && nest.strides[k][inner] > 1 && nest.sizes[axis] >= 8) return axis;
  return -1;
}

template <int N>
Tiling<N> tiling_of(const Nest<N>& nest, int axis, int tile) {
  const int inner = nest.rank - 1;
  Tiling<N> tiling;
  tiling.rows = nest.sizes[axis], tiling.cols = nest.sizes[inner];
  tiling.tiles_down = static_cast<uint32_t>(ceil_div(tiling.rows, tile));
  tiling.tiles_across = static_cast<uint32_t>(ceil_div(tiling.cols, tile));
  for (int k = 0; k < N; ++k) {
    tiling.row_strides[k] = nest.strides[k][axis], tiling.col_strides[k] = nest.strides[k][inner];
    tiling.turned[k] = tiling.row_strides[k] == 1 && tiling.col_strides[k] > 1;
  }
  for (int i = 0; i < inner; ++i) {
    if (i == axis) continue;
    int64_t steps[N];
    for (int k = 0; k < N; ++k) steps[k] = nest.strides[k][i];
    tiling.others.push_back(nest.sizes[i], steps);
  }
  tiling.other_count = static_cast<uint32_t>(tiling.others.size());
  return tiling;
}

inline constexpr int kTileThreads = 512;
template <class T>
inline constexpr int kTile = sizeof(T) == 8 ? 32 : 64;  // square; a line is 256 bytes of 4-byte elements

namespace device {

/// What a tile's elements are in shared memory: small ones would share banks.
template <class T>
using Cell = std::conditional_t<sizeof(T) < 4, uint32_t, T>;

/// A thread's elements of a tile: those of column `lane` in every kLines-th line, beginning with `line`.
template <class T>
struct TilePart {
  static constexpr int kLines = kTileThreads / kTile<T>, kSteps = kTile<T> / kLines;
  T v[kSteps];

  REEL_DEVICE static int lane() { return threadIdx.x % kTile<T>; }
  REEL_DEVICE static int line(int step) { return threadIdx.x / kTile<T> + step * kLines; }
};

struct TileCorner {
  int64_t row, col;
};

/// The block's tile. Neighbouring blocks take the tiles of a band from top to bottom, so that what turned operands have side
/// by side in memory is read at one time.
template <class T, int N>
REEL_DEVICE TileCorner tile_corner(const Tiling<N>& tiling) {
  constexpr uint32_t band = 8;
  const uint32_t above = blockIdx.x / (band * tiling.tiles_across) * band;
  const uint32_t in_band = blockIdx.x - above * tiling.tiles_across, height = smaller(band, tiling.tiles_down - above);
  const int64_t row = above + in_band % height, col = in_band / height;
  return {row * kTile<T>, col * kTile<T>};
}

/// f(step, offset) for the thread's elements of the tile at [row, col] of operand k; the lines of turned operands are columns.
template <class T, int N, class F>
REEL_DEVICE void for_each_of_tile(const Tiling<N>& tiling, int k, bool turned, int64_t row, int64_t col, F f) {
  using Part = TilePart<T>;
  const int64_t along = turned ? tiling.row_strides[k] : tiling.col_strides[k];
  const int64_t across = turned ? tiling.col_strides[k] : tiling.row_strides[k];
  const int rows = static_cast<int>(smaller<int64_t>(kTile<T>, tiling.rows - row));
  const int cols = static_cast<int>(smaller<int64_t>(kTile<T>, tiling.cols - col));
  const int lanes = turned ? rows : cols, lines = turned ? cols : rows;
  const int64_t corner = row * tiling.row_strides[k] + col * tiling.col_strides[k];
  const int64_t first = corner + Part::lane() * along + Part::line(0) * across, step = Part::kLines * across;
  if (lanes == kTile<T> && lines == kTile<T>) {  // without questions it takes half the registers
    REEL_UNROLL
    for (int s = 0; s < Part::kSteps; ++s) f(s, first + s * step);
    return;
  }
  REEL_UNROLL
  for (int s = 0; s < Part::kSteps; ++s)
    if (Part::lane() < lanes && Part::line(s) < lines) f(s, first + s * step);
}

/// Changes lines of columns into lines of rows. All threads must call it.
template <class T>
REEL_DEVICE void turn(TilePart<T>& part, Cell<T>* tile) {
  using Part = TilePart<T>;
  __syncthreads();  // of the tile before
  REEL_UNROLL
  for (int s = 0; s < Part::kSteps; ++s) tile[Part::line(s) * (kTile<T> + 1) + Part::lane()] = part.v[s];
  __syncthreads();
  REEL_UNROLL
  for (int s = 0; s < Part::kSteps; ++s)
    part.v[s] = static_cast<T>(tile[Part::lane() * (kTile<T> + 1) + Part::line(s)]);
}

}  // namespace device

/// A block per tile of T; blockIdx.y walks over the others.
template <class T, int N>
Grid tile_grid(const Tiling<N>& tiling) {
  return {.blocks = int64_t{tiling.tiles_down} * tiling.tiles_across,
          .y = tiling.other_count < 65535 ? tiling.other_count : 65535,
          .threads = kTileThreads,
          .shared_bytes = sizeof(device::Cell<T>) * kTile<T> * (kTile<T> + 1)};
}

}  // namespace reel::cuda
