// Attention without the matrix of all scores: a block takes a tile of queries, by which the tiles of keys pass; the largest
// score, the sum and the result are corrected as a larger score turns up (Milakov and Gimelshein, 2018; Dao et al., 2022).

#include "reel/backends/cuda/attention.h"

#include "reel/backends/cuda/attention_narrow.h"

namespace reel::cuda {

namespace device {
namespace {

/// Of a thread's queries so far: the largest score, and the sum of exp(score - largest).
template <class T>
struct Running {
  T largest[kOwn<T>], sum[kOwn<T>];
};

/// Scores become exp(score - largest); what was summed before is corrected.
template <class T, int columns>
REEL_DEVICE void update(Own<T>& s, Running<T>& state, OwnColumns<T, columns>& y) {
  REEL_UNROLL
  for (int i = 0; i < kOwn<T>; ++i) {
    T largest = state.largest[i];
    REEL_UNROLL
    for (int j = 0; j < kOwn<T>; ++j) largest = larger(largest, s.v[i][j]);
    largest = join_lanes(
        largest, [](T a, T b) { return larger(a, b); }, kSide);
    const T shift = finite_shift(largest), correction = scalar::exp(state.largest[i] - shift);
    T sum = 0;
    REEL_UNROLL
    for (int j = 0; j < kOwn<T>; ++j) {
      s.v[i][j] = scalar::exp(s.v[i][j] - shift);
      sum += s.v[i][j];
    }
    sum = join_lanes(
        sum, [](T a, T b) { return a + b; }, kSide);
    state.sum[i] = state.sum[i] * correction + sum;
    state.largest[i] = largest;
    REEL_UNROLL
    for (int j = 0; j < columns; ++j) y.v[i][j] *= correction;
  }
}

/// y [queries, heads, width], last [queries, heads, 2]; a part: the columns of y that are made at once.
template <class T, int columns>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention(const __grid_constant__ AttentionProblem<T> p, Heads<T> y, T* last, int64_t parts) {
  REEL_DYNAMIC_SHARED(T, stage);
  T* const tile = stage + kStageElements<T>;
  with_tile(p, false, parts, kSide * columns, [&](const Pair& pair, int64_t first, int column) {
    const Panel<T> queries = panel(p.q, pair.head, pair.query, pair.queries, first, p.scale);
    OwnColumns<T, columns> result;
    Running<T> state;
    REEL_UNROLL
    for (int i = 0; i < kOwn<T>; ++i) {
      state.largest[i] = -scalar::infinity<T>();
      state.sum[i] = 0;
    }
    const int64_t visible = pair.visible(first + queries.rows - 1);
    for (int64_t key = 0; key < visible; key += kTile<T>) {
      Own<T> s = multiply_rows(queries, panel(p.k, pair.head, pair.key, pair.keys, key), stage);
      const Scores<T> scores(p, pair, first, key);
      unsigned seen = 0;  // a bit for each of s
      REEL_UNROLL
      for (int i = 0; i < kOwn<T>; ++i) {
        REEL_UNROLL
        for (int j = 0; j < kOwn<T>; ++j) {
          const T added = scores.added(first_row<T>() + i, first_column<T>() + j);
          const bool sees = added != -scalar::infinity<T>();
          s.v[i][j] = sees ? s.v[i][j] + added : added;
          seen |= static_cast<unsigned>(sees) << (i * kOwn<T> + j);
        }
      }
      update(s, state, result);
      REEL_UNROLL
      for (int i = 0; i < kOwn<T>; ++i) {
        REEL_UNROLL
        for (int j = 0; j < kOwn<T>; ++j)
          if ((seen >> (i * kOwn<T> + j) & 1) == 0) s.v[i][j] = kHidden<T>;
      }
      share_tile(s, tile);
      multiply_tile(tile, panel(p.v, pair.head, pair.key, pair.keys, key), column, stage, result);
    }
    REEL_UNROLL
    for (int i = 0; i < kOwn<T>; ++i) {
      state.sum[i] = state.sum[i] == T(0) ? T(0) : T(1) / state.sum[i];
      if (column != 0 || tile_column() != 0 || first_row<T>() + i >= queries.rows) continue;
      T* const to = last + 2 * ((pair.query + first + first_row<T>() + i) * p.heads + pair.head);
      to[0] = state.largest[i];
      to[1] = state.sum[i];
    }
    write_columns(result, y, y.at(pair.query + first, pair.head), queries.rows, column,
                  [&](int i) { return state.sum[i]; });
  });
}

}  // namespace
}  // namespace device

void CudaOps::attention(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                        const Array& y, const Array& state) {
  if (attention.queries.total == 0) return;
  if (is_narrow(attention, q, v))
    return narrow_attention(context_, AttentionProblem<float>(attention, q, k, v, mask), attention.queries.total,
                            Heads<float>(y), state.as<float>());
  dispatch_floating(q.dtype, [&]<class T>() {
    const AttentionProblem<T> problem(attention, q, k, v, mask);
    const Heads<T> result(y);
    // No columns: still one part, for the state.
    const int64_t width = result.width > 0 ? result.width : 1;
    dispatch_columns<T>(width, [&]<int columns>() {
      const TileGrid shape = tile_grid<T>(attention.queries.total, problem.segments, problem.heads, width, columns);
      launch(context_, "attention", shape.grid, &device::attention<T, columns>, problem, result, state.as<T>(),
             shape.parts);
    });
  });
}

}  // namespace reel::cuda
