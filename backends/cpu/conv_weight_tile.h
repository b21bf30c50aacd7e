#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

/// The inner kernel of the weight's gradient: a few output channels ("rows") times a few taps, each a vector of sums in a
/// register, over all positions of a packed block.
namespace reel::cpu::REEL_CPU_ISA {

/// Registers: rows * taps sums, `rows` vectors of dz, one of x (on v2 and v3 one for the mask, on v2 one for products).
#if defined(REEL_SIMD_AVX512)
inline constexpr int kWeightRows = 4;
inline constexpr int kWeightTaps[kWeightRows] = {9, 9, 9, 6};
#else
inline constexpr int kWeightRows = 3;
inline constexpr int kWeightTaps[kWeightRows] = {9, 5, 3};
#endif
/// Not all numbers of taps have a tile, since their code is large: after kWeightTaps these.
constexpr int next_smaller_taps(int taps) { return taps > 6 ? 6 : taps > 3 ? 3 : taps - 1; }

/// Which lanes of a vector of x belong to outputs. dz is 0 in the others, but x need not be finite there.
template <class T>
struct LaneMask {
#if defined(REEL_SIMD_AVX512)
  typename Vec<T>::Mask bits;
  REEL_INLINE void set(int lane, bool on) {
    bits = static_cast<typename Vec<T>::Mask>((bits & ~(1u << lane)) | static_cast<unsigned>(on) << lane);
  }
  REEL_INLINE Vec<T> load(const T* x) const { return Vec<T>::load(x, bits); }
#else
  using Bits = decltype(Vec<T>{}.raw == Vec<T>{}.raw);
  Bits bits;
  REEL_INLINE void set(int lane, bool on) { bits[lane] = on ? -1 : 0; }
  REEL_INLINE Vec<T> load(const T* x) const {
    return {reinterpret_cast<typename Vec<T>::Raw>(reinterpret_cast<Bits>(Vec<T>::load(x).raw) & bits)};
  }
#endif
};

/// A packed block as the tiles read it: images, planes and runs, each run `vectors` vectors long and with the same masks.
template <class T>
struct WeightBlock {
  const T* x;               // position 0 of channel 0; x_image, x_plane, x_run apart
  const T* dz;              // [rows of dz_row elements: images, planes, runs, vectors]
  const LaneMask<T>* mask;  // [vectors]
  int64_t images, planes, runs, vectors;
  int64_t x_image, x_plane, x_run;
  int64_t dz_row;
};

/// sums[r * sums_row + t] += sum over positions of dz[r] x[offset[t]], for rows r and taps t of the tile.
template <class T, int rows, int taps>
void weight_tile(const WeightBlock<T>& block, const T* dz, const int64_t* offset, T* sums, int64_t sums_row) {
  using V = Vec<T>;
  V sum[rows][taps];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < taps; ++t) sum[r][t] = V::zero();
  }
  for (int64_t image = 0; image < block.images; ++image) {
    for (int64_t plane = 0; plane < block.planes; ++plane) {
      for (int64_t run = 0; run < block.runs; ++run) {
        const T* x = block.x + image * block.x_image + plane * block.x_plane + run * block.x_run;
        for (int64_t v = 0; v < block.vectors; ++v, x += V::width, dz += V::width) {
          const LaneMask<T> mask = block.mask[v];
          V d[rows];
#pragma GCC unroll 16
          for (int r = 0; r < rows; ++r) d[r] = V::load(dz + r * block.dz_row);
#pragma GCC unroll 16
          for (int t = 0; t < taps; ++t) {
            const V in = mask.load(x + offset[t]);
#pragma GCC unroll 16
            for (int r = 0; r < rows; ++r) sum[r][t] = fma(d[r], in, sum[r][t]);
          }
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < taps; ++t) sums[r * sums_row + t] += reduce_add(sum[r][t]);
  }
}

/// Calls weight_tile for `row_count` rows, 1 .. kWeightRows, and as many of `tap_count` taps as there is a tile for; returns
/// how many.
template <class T, int rows = kWeightRows, int taps = kWeightTaps[rows - 1]>
REEL_INLINE int call_weight_tile(int64_t row_count, int64_t tap_count, const WeightBlock<T>& block, const T* dz,
                                 const int64_t* offset, T* sums, int64_t sums_row) {
  if (row_count < rows) {
    if constexpr (rows > 1)
      return call_weight_tile<T, rows - 1>(row_count, tap_count, block, dz, offset, sums, sums_row);
  } else if (tap_count < taps) {
    if constexpr (taps > 1)
      return call_weight_tile<T, rows, next_smaller_taps(taps)>(row_count, tap_count, block, dz, offset, sums,
                                                                sums_row);
  }
  weight_tile<T, rows, taps>(block, dz, offset, sums, sums_row);
  return taps;
}

/// The sum of n (whole vectors) numbers, in four chains of vectors.
template <class T>
REEL_INLINE T sum_vectors(const T* x, int64_t n) {
  using V = Vec<T>;
  V sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  int64_t i = 0;
  for (; i + 4 * V::width <= n; i += 4 * V::width) {
    for (int k = 0; k < 4; ++k) sum[k] = sum[k] + V::load(x + i + k * V::width);
  }
  for (; i < n; i += V::width) sum[0] = sum[0] + V::load(x + i);
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

}  // namespace reel::cpu::REEL_CPU_ISA
