#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/reduce.h"

// max and min with the place of the first winner; the first NaN wins against everything.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kTile = 512;  // columns at a time
constexpr int64_t kFew = 8;     // elements of a row that are compared one after the other, as those of a column

/// Whether x beats the best so far; a NaN that is there already stays.
template <class Op, class T>
REEL_INLINE bool beats(T x, T best) {
  if constexpr (std::is_same_v<Op, Max>) {
    return (x > best) | ((x != x) & (best == best));
  } else {
    return (x < best) | ((x != x) & (best == best));
  }
}

/// The first i with x[i] == value, or with NaN if value is NaN. There is one, of at least `block`, which are looked at together;
/// the last ones may have been before.
template <int block, class T>
int64_t find(const T* x, int64_t count, T value) {
  const bool nan = value != value;
  for (int64_t i = 0;; i = min(i + block, count - block)) {
    std::uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int k = 0; k < block; ++k) {
      const bool is_it = (x[i + k] == value) | (nan & (x[i + k] != x[i + k]));
      found |= is_it ? std::uint32_t{1} << k : 0;
    }
    if (found != 0) return i + __builtin_ctz(found);
  }
}

/// Row by row: the value first, then its place.
template <class T>
void which_rows(const Reduction& r, int64_t* which) {
  reduce_rows(r);
  const T* x = static_cast<const T*>(r.x);
  T* y = static_cast<T*>(r.y);
  parallel_for(r.outputs, max<int64_t>(1, kGrain / r.count), [&](int64_t begin, int64_t end) {
    Cursor<1> cursor(r.kept, r.kept.rank, begin);
    for (int64_t i = begin; i < end; ++i, cursor.next()) {
      const T* row = x + cursor.offsets[0];
      which[i] = r.count < 32 ? find<8>(row, r.count, y[i]) : find<32>(row, r.count, y[i]);
      y[i] = row[which[i]];  // of 0 and -0 the one that is there
    }
  });
}

/// Along the kept axis, one reduced position after the other.
template <class Op, class T>
void which_columns(const Reduction& r, int64_t* which) {
  const int64_t columns = r.kept.inner(), stride = r.kept.inner_stride(0), step = r.reduced.inner_stride(0);
  const int64_t tile = even_chunk(columns, kTile), tiles = ceil_div(columns, tile);
  parallel_for(r.outputs / columns * tiles, max<int64_t>(1, kGrain / (tile * r.count)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t outer = unit / tiles, column = unit % tiles * tile;
                   const int64_t width = min(tile, columns - column);
                   const Cursor<1> place(r.kept, r.kept.rank - 1, outer);
                   const T* x = static_cast<const T*>(r.x) + place.offsets[0] + column * stride;
                   T* best = static_cast<T*>(r.y) + outer * columns + column;
                   int64_t* index = which + outer * columns + column;
                   T gathered[kTile];
                   for (int64_t i = 0; i < r.count; ++i) {
                     const T* row = x + i * step;
                     if (stride != 1) {
                       move_run(row, stride, gathered, 1, width, sizeof(T));
                       row = gathered;
                     }
                     if (i == 0) {
                       for (int64_t j = 0; j < width; ++j) {
                         best[j] = row[j];
                         index[j] = 0;
                       }
                       continue;
                     }
#pragma omp simd
                     for (int64_t j = 0; j < width; ++j) {
                       const bool wins = beats<Op>(row[j], best[j]);
                       best[j] = wins ? row[j] : best[j];
                       index[j] = wins ? i : index[j];
                     }
                   }
                 }
               });
}

}  // namespace

void reduce_which(const Reduction& reduction, int64_t* which) {
  dispatch_arithmetic(reduction.dtype, [&]<class T>() {
    if (reduction.reduced.inner_stride(0) == 1 && reduction.count > kFew) {
      which_rows<T>(reduction, which);
    } else if (reduction.op == ReduceOp::max) {
      which_columns<Max, T>(reduction, which);
    } else {
      which_columns<Min, T>(reduction, which);
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
