// Gradients of attention. The probabilities of each tile are made again from the largest score and the sum; dq by a block per tile
// of queries, dk and dv by a block per tile of keys, so that nothing is added by atomics.

#include "reel/backends/cuda/attention.h"

#include "reel/backends/cuda/attention_narrow.h"

namespace reel::cuda {

namespace device {
namespace {

/// dots [queries, heads] = dot(y, dy), a warp each: the sum over all keys of p dp.
template <class T>
__global__ void dots(Heads<const T> y, Heads<const T> dy, T* dots, int64_t queries, int64_t heads) {
  for (int64_t i = first_unit() / kWarp; i < queries * heads; i += unit_step() / kWarp) {
    const T *const value = y.at(i / heads, i % heads), *const grad = dy.at(i / heads, i % heads);
    T sum = 0;
    for (int64_t e = threadIdx.x % kWarp; e < y.width; e += kWarp) sum = scalar::fma(value[e], grad[e], sum);
    sum = join_lanes(sum, [](T a, T b) { return a + b; });
    if (threadIdx.x % kWarp == 0) dots[i] = sum;
  }
}

/// The operands of backward; state [queries, heads, 2], dots [queries, heads].
template <class T>
struct BackwardProblem {
  AttentionProblem<T> forward;
  Heads<const T> dy;
  const T *state, *dots;
};

/// f(row, column, place of the query in dots, its number in the tile, the key's) for what a thread holds of the tile
/// of queries i.. and keys j.. Rows are the queries, or (of_keys) the keys.
template <class T, class F>
REEL_DEVICE void for_each_own(const BackwardProblem<T>& g, const Pair& pair, bool of_keys, int64_t i, F f) {
  const int64_t step = g.forward.heads, start = (pair.query + i) * step + pair.head;
  REEL_UNROLL
  for (int r = 0; r < kOwn<T>; ++r) {
    REEL_UNROLL
    for (int c = 0; c < kOwn<T>; ++c) {
      const int row = first_row<T>() + r, column = first_column<T>() + c;
      const int a = of_keys ? column : row, b = of_keys ? row : column;
      f(r, c, start + a * step, a, b);
    }
  }
}

/// Puts p = exp(score - largest) / sum into the tile, from the products of queries and keys.
template <class T>
REEL_DEVICE void share_probabilities(const BackwardProblem<T>& g, const Pair& pair, bool of_keys, int64_t i, int64_t j,
                                     Own<T> p, T* tile) {
  const Scores<T> scores(g.forward, pair, i, j);
  for_each_own(g, pair, of_keys, i, [&](int r, int c, int64_t place, int a, int b) {
    T& own = p.v[r][c];
    const T added = scores.added(a, b), *const state = g.state + 2 * place;
    own = added == -scalar::infinity<T>() ? kHidden<T> : scalar::exp(own + added - finite_shift(state[0])) * state[1];
  });
  share_tile(p, tile);
}

/// Puts ds = p (dp - dot) into the tile in the place of p, from dp, the products of dy and v.
template <class T>
REEL_DEVICE void share_gradients(const BackwardProblem<T>& g, const Pair& pair, bool of_keys, int64_t i, Own<T> ds,
                                 T* tile) {
  for_each_own(g, pair, of_keys, i, [&](int r, int c, int64_t place, int, int) {
    const T p = tile[(first_row<T>() + r) * kTileStride<T> + first_column<T>() + c];  // this thread has put it there
    T& own = ds.v[r][c];
    own = is_hidden(p) ? p : p * (own - g.dots[place]) + T(0);  // + 0: no -0
  });
  share_tile(ds, tile);
}

template <class T, int columns>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention_backward_queries(const __grid_constant__ BackwardProblem<T> g, Heads<T> dq, int64_t parts) {
  REEL_DYNAMIC_SHARED(T, stage);
  T* const tile = stage + kStageElements<T>;
  const AttentionProblem<T>& f = g.forward;
  with_tile(f, false, parts, kSide * columns, [&](const Pair& pair, int64_t first, int column) {
    const Panel<T> queries = panel(f.q, pair.head, pair.query, pair.queries, first, f.scale);
    const Panel<T> gradient = panel(g.dy, pair.head, pair.query, pair.queries, first);
    OwnColumns<T, columns> sum;
    const int64_t visible = pair.visible(first + queries.rows - 1);
    for (int64_t key = 0; key < visible; key += kTile<T>) {
      const Panel<T> keys = panel(f.k, pair.head, pair.key, pair.keys, key);
      const Panel<T> values = panel(f.v, pair.head, pair.key, pair.keys, key);
      share_probabilities(g, pair, false, first, key, multiply_rows(queries, keys, stage), tile);
      share_gradients(g, pair, false, first, multiply_rows(gradient, values, stage), tile);
      multiply_tile(tile, keys, column, stage, sum);
    }
    write_columns(sum, dq, dq.at(pair.query + first, pair.head), queries.rows, column, [&](int) { return f.scale; });
  });
}

template <class T, int columns>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention_backward_keys(const __grid_constant__ BackwardProblem<T> g, Heads<T> dk, Heads<T> dv, int64_t parts) {
  REEL_DYNAMIC_SHARED(T, stage);
  T* const tile = stage + kStageElements<T>;
  const AttentionProblem<T>& f = g.forward;
  with_tile(f, true, parts, kSide * columns, [&](const Pair& pair, int64_t first, int column) {
    const Panel<T> keys = panel(f.k, pair.head, pair.key, pair.keys, first);
    const Panel<T> values = panel(f.v, pair.head, pair.key, pair.keys, first);
    OwnColumns<T, columns> key_sum, value_sum;
    const int64_t hidden = first - pair.keys + pair.queries;  // the queries before this one see none of these keys
    for (int64_t query = f.causal ? larger<int64_t>(0, hidden) : 0; query < pair.queries; query += kTile<T>) {
      const Panel<T> queries = panel(f.q, pair.head, pair.query, pair.queries, query, f.scale);
      const Panel<T> gradient = panel(g.dy, pair.head, pair.query, pair.queries, query);
      share_probabilities(g, pair, true, query, first, multiply_rows(keys, queries, stage), tile);
      multiply_tile(tile, gradient, column, stage, value_sum);
      share_gradients(g, pair, true, query, multiply_rows(values, gradient, stage), tile);
      multiply_tile(tile, queries, column, stage, key_sum);
    }
    const auto one = [](int) { return T(1); };
    write_columns(key_sum, dk, dk.at(pair.key + first, pair.head), keys.rows, column, one);
    write_columns(value_sum, dv, dv.at(pair.key + first, pair.head), keys.rows, column, one);
  });
}

}  // namespace
}  // namespace device

void CudaOps::attention_backward(const Attention& attention, const Array& q, const Array& k, const Array& v,
                                 const Array* mask, const Array& y, const Array& state, const Array& dy,
                                 const Array& dq, const Array& dk, const Array& dv) {
  const int64_t queries = attention.queries.total, keys = attention.keys.total, heads = q.shape[1];
  if (is_narrow(attention, q, v))
    return narrow_attention_backward(context_, AttentionProblem<float>(attention, q, k, v, mask), queries, keys,
                                     Heads<const float>(y), state.as<float>(), Heads<const float>(dy), Heads<float>(dq),
                                     Heads<float>(dk), Heads<float>(dv));
  dispatch_floating(q.dtype, [&]<class T>() {
    const Workspace dots(context_.memory(), sizeof(T) * static_cast<std::size_t>(queries * heads));
    launch(context_, "attention_backward", grid_for(context_, queries * heads * device::kWarp), &device::dots<T>,
           Heads<const T>(y), Heads<const T>(dy), dots.as<T>(), queries, heads);
    const device::BackwardProblem<T> problem{AttentionProblem<T>(attention, q, k, v, mask), Heads<const T>(dy),
                                             state.as<T>(), dots.as<T>()};
    const int64_t segments = attention.queries.count, width = q.shape[2];
    const int64_t widest = width > v.shape[2] ? width : v.shape[2];
    dispatch_columns<T>(width, [&]<int columns>() {
      const TileGrid shape = tile_grid<T>(queries, segments, heads, width, columns);
      launch(context_, "attention_backward", shape.grid, &device::attention_backward_queries<T, columns>, problem,
             Heads<T>(dq), shape.parts);
    });
    dispatch_columns<T>(widest, [&]<int columns>() {
      const TileGrid shape = tile_grid<T>(keys, segments, heads, widest, columns);
      launch(context_, "attention_backward", shape.grid, &device::attention_backward_keys<T, columns>, problem,
             Heads<T>(dk), Heads<T>(dv), shape.parts);
    });
  });
}

}  // namespace reel::cuda
