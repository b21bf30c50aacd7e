#pragma once

#include "reel/backends/cpu/conv_layout.h"
#include "reel/backends/cpu/simd.h"

/// Copies the input of one block into its packed layout.
namespace reel::cpu::REEL_CPU_ISA {

/// x, or with the saved output y of a relu: 0 where y <= 0, so that NaN counts as positive.
template <class T>
REEL_INLINE Vec<T> relu_masked(Vec<T> x, Vec<T> y) {
  return {y.raw <= Vec<T>::zero().raw ? Vec<T>::zero().raw : x.raw};
}

/// to[0 .. n) = x[0 .. n), masked by y if that is not null, then zeros up to a whole number of vectors.
template <class T>
REEL_INLINE void copy_masked(const T* x, const T* y, int64_t n, T* to) {
  using V = Vec<T>;
  int64_t i = 0;
  if (y == nullptr) {
    for (; i + V::width <= n; i += V::width) V::load(x + i).store(to + i);
    if (i < n) V::load(x + i, V::first(n - i)).store(to + i);
  } else {
    for (; i + V::width <= n; i += V::width) relu_masked(V::load(x + i), V::load(y + i)).store(to + i);
    if (i < n) relu_masked(V::load(x + i, V::first(n - i)), V::load(y + i, V::first(n - i))).store(to + i);
  }
}

/// to[begin .. end) = 0, and up to a vector more.
template <class T>
REEL_INLINE void fill_zero(T* to, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += Vec<T>::width) Vec<T>::zero().store(to + i);
}

/// Where the zeros end that copy_masked wrote behind n elements.
template <class T>
REEL_INLINE int64_t end_of_copy(int64_t n) {
  return ceil_div(n, Vec<T>::width) * Vec<T>::width;
}

/// How the rows of a block's outputs become vectors: as one run per plane, or row by row.
template <class T>
struct RunPlan {
  bool joined;
  int64_t pitch;

  REEL_INLINE RunPlan(const BlockLayout& layout, bool must_join)
      : joined(must_join || runs_join(layout, Vec<T>::width)), pitch(layout.pitch) {}
  /// Positions of one run of a block with this many rows and columns.
  REEL_INLINE int64_t length(int64_t rows, int64_t columns) const {
    return joined ? (rows - 1) * pitch + columns : columns;
  }
  /// The same in whole vectors.
  REEL_INLINE int64_t padded_length(int64_t rows, int64_t columns) const {
    return ceil_div(length(rows, columns), Vec<T>::width) * Vec<T>::width;
  }
};

/// Which block of which axes, and where it starts.
struct BlockOrigin {
  int64_t first[3];  // the block's first output along each axis

  REEL_INLINE BlockOrigin(const BlockLayout& layout, int64_t block) {
    for (int a = 2; a >= 0; --a) {
      first[a] = block % layout.blocks[a] * layout.axes[a].count;
      block /= layout.blocks[a];
    }
  }
  /// The block's outputs along an axis; the last block may be shorter than the others.
  REEL_INLINE int64_t count(const BlockLayout& layout, const ConvAxis& axis, int a) const {
    return min(layout.axes[a].count, axis.output - first[a]);
  }
};

/// One run of `length` positions along the last axis, the first of which is input element `start` of the row x (and of y,
/// for the relu mask, or null: only with stride 1 and zero padding, as the gradient of an input has them). Zeros of the padding are written unless `zeroed` says that they are there already. May
/// write up to a vector of zeros beyond the run.
template <class T>
REEL_INLINE void pack_run(const T* x, const T* y, const ConvAxis& axis, int64_t start, int64_t length, PaddingMode mode,
                          bool zeroed, T* to) {
  const auto gather = [&](int64_t q) {
    const int64_t i = padded_index(start + q * axis.stride, axis.input, mode);
    to[q] = i < 0 ? T(0) : x[i];
  };
  if (axis.stride != 1) {
    for (int64_t q = 0; q < length; ++q) gather(q);
    return;
  }
  // Padding, the row itself, padding, from left to right, so that what spills is overwritten.
  const int64_t before = max<int64_t>(0, min(length, -start));
  const int64_t end = max(before, min(length, axis.input - start));
  const int64_t copied = end_of_copy<T>(end - before);
  if (mode == PaddingMode::zero && !zeroed) fill_zero(to, 0, before);
  if (end > before) copy_masked(x + start + before, y ? y + start + before : y, end - before, to + before);
  if (mode == PaddingMode::zero) {
    if (!zeroed) fill_zero(to, before + copied, length);
  } else {
    for (int64_t q = 0; q < before; ++q) gather(q);
    for (int64_t q = end; q < length; ++q) gather(q);
  }
}

/// Whether all blocks have their padding in the same places, so that one that was zero before the first block was packed
/// into it keeps the zeros that it needs.
REEL_INLINE bool padding_stays(const BlockLayout& layout, PaddingMode mode) {
  return mode == PaddingMode::zero && layout.count() == 1;
}

/// Elements that a packed block needs, with room for what runs spill and for vectors that reach beyond its end.
template <class T>
REEL_INLINE int64_t packed_size(const BlockLayout& layout, int64_t channels) {
  return channels * layout.channel + 2 * Vec<T>::width;
}

/// x: `channels` planes of one image, `plane` elements apart; y: the same for the relu mask, or null. `zeroed`: the zeros
/// of the padding are there already.
template <class T>
__attribute__((noinline)) void pack_block(const ConvAxis (&axis)[3], const BlockLayout& layout,
                                          const BlockOrigin& origin, PaddingMode mode, const T* x, const T* y,
                                          int64_t plane, int64_t channels, bool zeroed, T* packed) {
  const AxisLayout(&axes)[3] = layout.axes;
  const auto first = [&](int a) { return origin.first[a] * axis[a].stride - axis[a].padding; };
  const auto input_index = [&](int a, int64_t run, int64_t q) {
    return padded_index(first(a) + run * axes[a].run_step + q * axis[a].stride, axis[a].input, mode);
  };
  for (int64_t c = 0; c < channels; ++c) {
    T* to = packed + c * layout.channel;
    for (int64_t run = 0; run < axes[2].runs; ++run) {
      const int64_t start = first(2) + run * axes[2].run_step;
      for (int64_t run0 = 0; run0 < axes[0].runs; ++run0) {
        for (int64_t q0 = 0; q0 < axes[0].length; ++q0) {
          const int64_t i0 = input_index(0, run0, q0);
          for (int64_t run1 = 0; run1 < axes[1].runs; ++run1) {
            for (int64_t q1 = 0; q1 < axes[1].length; ++q1, to += layout.pitch) {
              const int64_t i1 = input_index(1, run1, q1);
              if (i0 < 0 || i1 < 0) {
                if (!zeroed) fill_zero(to, layout.lead, layout.lead + axes[2].length);
                continue;
              }
              const int64_t row = c * plane + (i0 * axis[1].input + i1) * axis[2].input;
              pack_run(x + row, y ? y + row : y, axis[2], start, axes[2].length, mode, zeroed, to + layout.lead);
            }
          }
        }
      }
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
