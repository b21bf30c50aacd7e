#pragma once

#include "reel/backends/cpu/conv_layout.h"
#include "reel/backends/cpu/vector_loops.h"

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
  const auto copy = [n, to](auto value) {
    int64_t i = 0;
    for (; i + 4 * V::width <= n; i += 4 * V::width) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) value(AllLanes<T>{}, i + k * V::width).store(to + i + k * V::width);
    }
    for (; i + V::width <= n; i += V::width) value(AllLanes<T>{}, i).store(to + i);
    if (i < n) value(FirstLanes<T>(n - i), i).store(to + i);
  };
  if (y == nullptr) {
    copy([x](auto lanes, int64_t i) { return lanes.load(x + i); });
  } else {
    copy([x, y](auto lanes, int64_t i) { return relu_masked(lanes.load(x + i), lanes.load(y + i)); });
  }
}

/// to[0 .. n) = x[0], x[stride], ..., then zeros up to a whole number of vectors. `ahead` elements further on is what will be copied
/// soon: no processor guesses it from rows that are read twice.
template <class T>
__attribute__((noinline)) void copy_every(int64_t stride, const T* x, int64_t n, int64_t ahead, T* to) {
  using V = Vec<T>;
  if (stride != 2) {
    for (int64_t i = 0; i < n; ++i) to[i] = x[i * stride];
    V::zero().store(to + n, V::first(ceil_div(n, V::width) * V::width - n));
    return;
  }
  int64_t i = 0;
  for (; n - i > V::width; i += V::width) {
    __builtin_prefetch(x + 2 * i + ahead);
    even_lanes(V::load(x + 2 * i), V::load(x + 2 * i + V::width)).store(to + i);
  }
  __builtin_prefetch(x + 2 * i + ahead);
  const int64_t left = 2 * (n - i) - 1;  // of x, to the last that is taken
  const auto upper = V::first(max<int64_t>(0, left - V::width));
  even_lanes(V::load(x + 2 * i, V::first(min<int64_t>(V::width, left))), V::load(x + 2 * i + V::width, upper))
      .store(to + i);
}

/// to[begin .. end) = 0, and up to a vector more.
template <class T>
REEL_INLINE void fill_zero(T* to, int64_t begin, int64_t end) {
  typename Vec<T>::Raw zero = Vec<T>::zero().raw;
  __asm__("" : "+x"(zero));  // else it becomes a call of memset, which takes longer than a border has elements
  for (int64_t i = begin; i < end; i += Vec<T>::width) Vec<T>{zero}.store(to + i);
}

/// Where the zeros end that copy_masked and copy_every write behind n elements.
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

/// How runs of `length` positions along the last axis, the first of which is element `start` of its row, are packed: what is the
/// same for all rows. Zeros of the padding are written unless `zeroed` says that they are there already. May write up to a vector
/// of zeros beyond the run.
template <class T>
class RunPacker {
 public:
  REEL_INLINE RunPacker(const ConvAxis& axis, int64_t start, int64_t length, PaddingMode mode, bool zeroed,
                        int64_t plane = 0)
      : axis_(axis), start_(start), length_(length), plane_(plane), mode_(mode), zeroed_(zeroed) {
    before_ = max<int64_t>(0, min(length, ceil_div(-start, axis.stride)));
    end_ = max(before_, min(length, ceil_div(axis.input - start, axis.stride)));
  }

  /// x, and y for the relu mask, or null: their rows. (A mask: only with stride 1 and zero padding, as the gradient of an input
  /// has them.)
  REEL_INLINE void operator()(const T* x, const T* y, T* to) const {
    // Padding, the row itself, padding, from left to right, so that what spills is overwritten, also by the run packed behind it.
    const bool zeros = mode_ == PaddingMode::zero && !zeroed_;
    if (zeros) fill_zero(to, 0, before_);
    const int64_t count = end_ - before_, first = start_ + before_ * axis_.stride;
    if (count > 0 && axis_.stride != 1) copy_every(axis_.stride, x + first, count, plane_, to + before_);
    else if (count > 0) copy_masked(x + first, y ? y + first : y, count, to + before_);
    if (zeros) fill_zero(to, before_ + end_of_copy<T>(count), length_);
    if (mode_ == PaddingMode::zero) return;
    gather(x, 0, before_, to);
    gather(x, end_, length_, to);
  }

 private:
  REEL_INLINE void gather(const T* x, int64_t q, int64_t end, T* to) const {
    for (; q < end; ++q) {
      const int64_t i = padded_index(start_ + q * axis_.stride, axis_.input, mode_);
      to[q] = i < 0 ? T(0) : x[i];
    }
  }

  const ConvAxis axis_;
  int64_t start_, length_;
  int64_t plane_;  // from a row to the next channel's
  PaddingMode mode_;
  bool zeroed_;
  int64_t before_, end_;  // positions of padding, and where the row ends
};

/// Whether all blocks have their padding in the same places, so that one that was zero before the first block was packed
/// into it keeps the zeros that it needs.
REEL_INLINE bool padding_stays(const BlockLayout& layout, PaddingMode mode) {
  return mode == PaddingMode::zero && layout.count() == 1;
}

/// Elements that a packed block needs, with room for what runs spill and for vectors that reach beyond its end.
template <class T>
REEL_INLINE int64_t packed_size(const BlockLayout& layout, int64_t channels) {
  return layout.size(channels) + 2 * Vec<T>::width;
}

/// Zeros behind all runs of a block that is not zeroed, for vectors that reach beyond a run and for joined runs, which take in what
/// lies between: nobody reads what becomes of those lanes, but for numbers as small as 1e-40, which is how integers look that were
/// in that memory before, Intel's processors need some hundred cycles. To be called before the first block is packed, which may
/// overwrite them with its own zeros and numbers, as may those after it.
template <class T>
__attribute__((noinline)) void zero_gaps(const BlockLayout& layout, bool joined, int64_t channels, T* packed) {
  const AxisLayout(&axes)[3] = layout.axes;
  if (!joined && axes[2].count % Vec<T>::width == 0) return;  // none reaches beyond
  const int64_t runs = axes[2].runs * axes[0].positions() * axes[1].positions();
  const int64_t room = min(layout.pitch, layout.channel);  // of a run: channels may be side by side
  const int64_t gap = max<int64_t>(Vec<T>::width, room - axes[2].length);
  for (int64_t c = 0; c < channels; ++c) {
    T* behind = packed + c * layout.channel + layout.lead + axes[2].length;
    for (int64_t run = 0; run < runs; ++run, behind += layout.pitch) fill_zero(behind, 0, gap);
  }
}

/// x: `channels` planes of one image, `plane` elements apart; y: the same for the relu mask, or null. `zeroed`: the zeros
/// of the padding are there already.
template <class T>
__attribute__((noinline)) void pack_block(const ConvAxis (&axis)[3], const BlockLayout& layout,
                                          const BlockOrigin& origin, PaddingMode mode, const T* x, const T* y,
                                          int64_t plane, int64_t channels, bool zeroed, T* packed) {
  const AxisLayout(&axes)[3] = layout.axes;
  const auto first = [&](int a) { return origin.first[a] * axis[a].stride - axis[a].padding; };
  // Copies: what the loop over rows reads through a reference it would read again after each vector that it stores.
  const int64_t pitch = layout.pitch, lead = layout.lead, length = axes[2].length, x_row = axis[2].input;
  const int64_t rows = axis[1].input, first_row = first(1), row_step = axis[1].stride, row_count = axes[1].length;
  for (int64_t c = 0; c < channels; ++c) {
    T* to = packed + c * layout.channel + lead;
    for (int64_t run = 0; run < axes[2].runs; ++run) {
      const RunPacker<T> pack_run(axis[2], first(2) + run * axes[2].run_step, length, mode, zeroed, plane);
      for (int64_t run0 = 0; run0 < axes[0].runs; ++run0) {
        for (int64_t q0 = 0; q0 < axes[0].length; ++q0) {
          const int64_t i0 =
              padded_index(first(0) + run0 * axes[0].run_step + q0 * axis[0].stride, axis[0].input, mode);
          const int64_t slice = c * plane + i0 * rows * x_row;
          const T *const x0 = x + slice, *const y0 = y ? y + slice : nullptr;
          for (int64_t run1 = 0; run1 < axes[1].runs; ++run1) {
            int64_t row = first_row + run1 * axes[1].run_step;
            for (int64_t q1 = 0; q1 < row_count; ++q1, row += row_step, to += pitch) {
              const int64_t i1 = padded_index(row, rows, mode);
              if (i0 >= 0 && i1 >= 0) {
                pack_run(x0 + i1 * x_row, y0 ? y0 + i1 * x_row : nullptr, to);
              } else if (!zeroed) {
                fill_zero(to, 0, length);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
