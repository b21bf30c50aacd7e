#pragma once

#include "reel/backends/cpu/conv_tile_3x3.h"
#include "reel/backends/cpu/conv_weight_tile.h"

/// The weight's gradient for 3x3 kernels with one output channel. As in conv_tile_3x3.h rows of dz that lie one dilation
/// apart share the rows of x, so that a vector of input serves up to three of the nine sums.
namespace reel::cpu::REEL_CPU_ISA {

/// sum[3 i + j] += dz[r] x[r + i, j] over `rows` rows r of dz, a dilation apart, and all their vectors.
template <class T, int rows>
void add_shared_rows(const T* dz, int64_t dz_row, const T* x, int64_t x_row, int64_t x_column, const LaneMask<T>* mask,
                     int64_t vectors, Vec<T> (&total)[9]) {
  using V = Vec<T>;
  V sum[9];
#pragma GCC unroll 16
  for (int k = 0; k < 9; ++k) sum[k] = total[k];
  for (int64_t v = 0; v < vectors; ++v, dz += V::width, x += V::width) {
    const LaneMask<T> lanes = mask[v];
    V d[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) d[r] = V::load(dz + r * dz_row);
    const T* at_row = x;
#pragma GCC unroll 16
    for (int row = 0; row < rows + 2; ++row, at_row += x_row) {
#pragma GCC unroll 16
      for (int column = 0; column < 3; ++column) {
        const T* at = at_row + column * x_column;
        __asm__("" : "+r"(at));  // else all addresses of the tile are computed ahead and spilled
        const V in = lanes.load(at);
#pragma GCC unroll 16
        for (int i = 0; i < 3; ++i) {
          if (row >= i && row < rows + i) sum[3 * i + column] = fma(d[row - i], in, sum[3 * i + column]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int k = 0; k < 9; ++k) total[k] = sum[k];
}

template <class T, int rows = kSharedRows<T>>
REEL_INLINE void call_add_shared_rows(int64_t row_count, const T* dz, int64_t dz_row, const T* x, int64_t x_row,
                                      int64_t x_column, const LaneMask<T>* mask, int64_t vectors, Vec<T> (&total)[9]) {
  if (row_count < rows) {
    if constexpr (rows > 1) {
      call_add_shared_rows<T, rows - 1>(row_count, dz, dz_row, x, x_row, x_column, mask, vectors, total);
    }
  } else {
    add_shared_rows<T, rows>(dz, dz_row, x, x_row, x_column, mask, vectors, total);
  }
}

/// sums[in, 3, 3] += the dot products of a block with one output channel, whose runs are its rows. `offset` and
/// `dilation` are those of the taps, `in` counts the input channels.
template <class T>
void add_weight_3x3(const WeightBlock<T>& block, int64_t dilation, int64_t in, const int64_t* offset, T* sums) {
  const int64_t dz_row = block.vectors * Vec<T>::width;
  for (int64_t i = 0; i < in; ++i) {
    Vec<T> total[9];
    for (Vec<T>& sum : total) sum = Vec<T>::zero();
    for (int64_t image = 0; image < block.images; ++image) {
      for (int64_t plane = 0; plane < block.planes; ++plane) {
        const T* x = block.x + image * block.x_image + plane * block.x_plane + offset[9 * i];
        const T* dz = block.dz + (image * block.planes + plane) * block.runs * dz_row;
        for (int64_t first = 0; first < min(dilation, block.runs); ++first) {
          const int64_t members = ceil_div(block.runs - first, dilation), groups = ceil_div(members, kSharedRows<T>);
          for (int64_t g = 0; g < groups; ++g) {
            const int64_t member = members * g / groups, next = members * (g + 1) / groups;
            const int64_t row = first + member * dilation;
            call_add_shared_rows(next - member, dz + row * dz_row, dilation * dz_row, x + row * block.x_run,
                                 dilation * block.x_run, offset[1] - offset[0], block.mask, block.vectors, total);
          }
        }
      }
    }
    for (int k = 0; k < 9; ++k) sums[9 * i + k] += reduce_add(total[k]);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
