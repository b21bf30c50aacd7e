#pragma once

#include <cstdint>
#include <type_traits>

#include "reel/core/array.h"
#include "reel/core/parallel.h"
#include "reel/core/scratch.h"

/// What all CPU kernels share: dispatch on element types, loop nests over strided arrays, grains.
/// Compiled once per instruction set, so everything here is inlined or lives in the namespace of its set. Vectors: simd.h.
namespace reel::cpu::REEL_CPU_ISA {

using std::int64_t;

/// Element operations that are worth a task of their own: 5 to 20 us of work against the 1 to 2 us of a parallel region. With
/// half as many no row of the benchmarks changes by more than its spread (models, softmax, norms, ragged; Zen 4, 2 cores).
inline constexpr int64_t kGrain = 32768;
/// Elements that one thread does alone, where more are halved, though each half is less than kGrain: what two cores have written
/// stays with them.
inline constexpr int64_t kAlone = kGrain / 2;

template <class T>
REEL_INLINE constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
REEL_INLINE constexpr T max(T a, T b) {
  return a < b ? b : a;
}
REEL_INLINE constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Cuts `count` into equal chunks of at most about `grain`, each a multiple of 64. For work whose result does not depend on
/// where it is cut; a function of the size alone.
REEL_INLINE constexpr int64_t even_chunk(int64_t count, int64_t grain = kGrain) {
  if (count <= grain) return max<int64_t>(count, 1);
  return ceil_div(ceil_div(count, ceil_div(count, grain)), 64) * 64;
}

/// Where a function could be given that is called on the way or in the end.
struct Nothing {
  REEL_INLINE void operator()(auto...) const {}
};

/// Whether Op is one of Ops: for the formulas that need a loop of another kind.
template <class Op, class... Ops>
inline constexpr bool is_one_of = (std::is_same_v<Op, Ops> || ...);

// --- dispatch: f.template operator()<T>() for the C++ type T of a dtype; bf16 and f16 are refused, having no kernels -------

template <class F>
REEL_INLINE decltype(auto) dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::f32) return f.template operator()<float>();
  if (dtype != DType::f64) [[unlikely]]
    detail::refuse_half(dtype);
  return f.template operator()<double>();
}

template <class F>
REEL_INLINE decltype(auto) dispatch_index(DType dtype, F&& f) {
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  return f.template operator()<int64_t>();
}

/// All element types but bf16 and f16; bool8 as `bool`.
template <class F>
REEL_INLINE decltype(auto) dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u8:
      return f.template operator()<std::uint8_t>();
    case DType::bool8:
      return f.template operator()<bool>();
    case DType::bf16:
    case DType::f16:
      break;
  }
  detail::refuse_half(dtype);
}

/// All element types in which one can count: bool8 as its bytes.
template <class F>
REEL_INLINE decltype(auto) dispatch_arithmetic(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u8:
    case DType::bool8:
      return f.template operator()<std::uint8_t>();
    case DType::bf16:
    case DType::f16:
      break;
  }
  detail::refuse_half(dtype);
}

/// For kernels that only move elements: an unsigned type of the element's size.
template <class F>
REEL_INLINE decltype(auto) dispatch_bytes(std::size_t size, F&& f) {
  if (size == 4) return f.template operator()<std::uint32_t>();
  if (size == 8) return f.template operator()<std::uint64_t>();
  if (size == 2) return f.template operator()<std::uint16_t>();
  return f.template operator()<std::uint8_t>();
}

/// `bytes` bytes of copies of an element of `size` bytes; one at least.
REEL_INLINE void fill_copies(char* copies, const void* element, int64_t size, int64_t bytes) {
  __builtin_memcpy(copies, element, static_cast<std::size_t>(size));
  for (int64_t done = size; done < bytes; done *= 2)
    __builtin_memcpy(copies + done, copies, static_cast<std::size_t>(min(done, bytes - done)));
}

// --- loop nests over N operands of one shape ---------------------------------------------------------------------------

/// The axes over which N operands are walked together, outermost first; strides count elements. `rank` is at least 1.
template <int N>
struct Nest {
  int rank = 1;
  int64_t sizes[kMaxRank];
  int64_t strides[N][kMaxRank];

  REEL_INLINE int64_t inner() const { return sizes[rank - 1]; }
  REEL_INLINE int64_t inner_stride(int operand) const { return strides[operand][rank - 1]; }
  /// Number of inner runs: the product of all sizes but the inner one.
  REEL_INLINE int64_t rows() const {
    int64_t product = 1;
    for (int i = 0; i < rank - 1; ++i) product *= sizes[i];
    return product;
  }
  /// All axes but one before the last.
  REEL_INLINE Nest without(int axis) const {
    Nest rest = *this;
    --rest.rank;
    for (int i = axis; i < rest.rank; ++i) {
      rest.sizes[i] = sizes[i + 1];
      for (int k = 0; k < N; ++k) rest.strides[k][i] = strides[k][i + 1];
    }
    return rest;
  }
};

/// Leaves out axes of size 1 and joins neighbours that every operand walks without a gap. `strides[k]` are operand k's, null
/// for a plain number (all 0). A nest of one element has one axis with strides 1.
template <int N>
REEL_INLINE Nest<N> collapse(const Shape& shape, const int64_t* const (&strides)[N]) {
  Nest<N> nest;
  int rank = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t size = shape[axis];
    if (size == 1) continue;
    bool joins = rank > 0;
    for (int k = 0; k < N && joins; ++k) {
      const int64_t stride = strides[k] ? strides[k][axis] : 0;
      joins = nest.strides[k][rank - 1] == stride * size;
    }
    if (joins) {
      nest.sizes[rank - 1] *= size;
    } else {
      nest.sizes[rank++] = size;
    }
    for (int k = 0; k < N; ++k) nest.strides[k][rank - 1] = strides[k] ? strides[k][axis] : 0;
  }
  if (rank == 0) {
    nest.sizes[0] = 1;
    for (int k = 0; k < N; ++k) nest.strides[k][0] = 1;
    rank = 1;
  }
  nest.rank = rank;
  return nest;
}

/// The same with the axes in the order in which they lie in the last operand's memory.
template <int N>
Nest<N> collapse_in_memory_order(const Shape& shape, const int64_t* const (&strides)[N]) {
  int axes[kMaxRank];
  int rank = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    const int64_t stride = __builtin_llabs(strides[N - 1][axis]);
    int place = rank++;
    for (; place > 0 && __builtin_llabs(strides[N - 1][axes[place - 1]]) < stride; --place)
      axes[place] = axes[place - 1];
    axes[place] = axis;
  }
  Shape sizes;
  int64_t steps[N][kMaxRank];
  const int64_t* in_order[N];
  for (int k = 0; k < N; ++k) in_order[k] = strides[k] ? steps[k] : nullptr;
  for (int i = 0; i < rank; ++i) {
    sizes.push_back(shape[axes[i]]);
    for (int k = 0; k < N; ++k) steps[k][i] = strides[k] ? strides[k][axes[i]] : 0;
  }
  return collapse<N>(sizes, in_order);
}

/// Walks the first `axes` axes of a nest in row-major order and keeps each operand's element offset.
template <int N>
struct Cursor {
  const Nest<N>& nest;
  int axes;
  int64_t index[kMaxRank];
  int64_t offsets[N];

  /// At the position with row-major number `position`.
  REEL_INLINE Cursor(const Nest<N>& nest_, int axes_, int64_t position) : nest(nest_), axes(axes_) {
    for (int k = 0; k < N; ++k) offsets[k] = 0;
    if (position == 0) {  // the usual case of small work, spared the divisions
      for (int axis = 0; axis < axes; ++axis) index[axis] = 0;
      return;
    }
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t size = nest.sizes[axis];
      index[axis] = position % size;
      position /= size;
      for (int k = 0; k < N; ++k) offsets[k] += index[axis] * nest.strides[k][axis];
    }
  }

  REEL_INLINE void next() {
    for (int axis = axes - 1; axis >= 0; --axis) {
      for (int k = 0; k < N; ++k) offsets[k] += nest.strides[k][axis];
      if (++index[axis] < nest.sizes[axis]) return;
      for (int k = 0; k < N; ++k) offsets[k] -= nest.sizes[axis] * nest.strides[k][axis];
      index[axis] = 0;
    }
  }
};

/// kGrain for runs of `inner` elements: to begin one costs as much as some elements.
REEL_INLINE int64_t grain_of_runs(int64_t inner) { return max<int64_t>(1, kGrain * inner / (inner + 48)); }

/// f(offsets, inner size) for rows [begin, end) of a nest. (Those along the axis before the inner one in a loop of their own: a
/// step of the Cursor goes by way of memory, and short rows would wait for it.)
template <int N, class F>
REEL_INLINE void for_each_row(const Nest<N>& nest, int64_t begin, int64_t end, F&& f) {
  const int64_t inner = nest.inner(), last = max<int64_t>(nest.rank - 2, 0);
  const int64_t size = nest.rank > 1 ? nest.sizes[last] : 1;
  Cursor<N> cursor(nest, static_cast<int>(last), begin / size);
  for (int64_t row = begin, skipped = begin % size; row < end; skipped = 0, cursor.next()) {
    int64_t offsets[N];
#pragma GCC unroll 4
    for (int k = 0; k < N; ++k) offsets[k] = cursor.offsets[k] + skipped * nest.strides[k][last];
    const int64_t next = min(end, row + size - skipped);
    for (; row < next; ++row) {
      f(offsets, inner);
#pragma GCC unroll 4
      for (int k = 0; k < N; ++k) offsets[k] += nest.strides[k][last];
    }
  }
}

/// Calls f(offsets, count) for runs along the inner axis, in parallel: `count` (at most about `grain`) elements of operand k
/// start at element offsets[k] and are nest.inner_stride(k) apart; finish() at the end of each task. For work whose result does
/// not depend on the cuts.
template <int N, class F, class Finish = Nothing>
REEL_INLINE void for_each_run(const Nest<N>& nest, int64_t grain, F&& f, Finish finish = {}) {
  const int64_t inner = nest.inner();
  const int64_t rows = nest.rows();
  if (inner == 0 || rows == 0) return;
  if (inner <= grain) {
    parallel_for(rows, max<int64_t>(1, grain / inner), [&](int64_t begin, int64_t end) {
      for_each_row(nest, begin, end, f);
      finish();
    });
    return;
  }
  const int64_t piece = even_chunk(inner, grain);
  const int64_t pieces = ceil_div(inner, piece);
  parallel_for(rows * pieces, max<int64_t>(1, grain / piece), [&](int64_t begin, int64_t end) {
    Cursor<N> cursor(nest, nest.rank - 1, begin / pieces);
    int64_t first = begin % pieces * piece;
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t offsets[N];
      for (int k = 0; k < N; ++k) offsets[k] = cursor.offsets[k] + first * nest.inner_stride(k);
      f(offsets, min(piece, inner - first));
      first += piece;
      if (first >= inner) {
        first = 0;
        cursor.next();
      }
    }
    finish();
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
