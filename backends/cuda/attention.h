#pragma once

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/softmax.h"
#include "reel/core/scalar/math.h"

// What attention's kernels share: tiles of kTile queries by kTile keys of one head, made by 16 x 16 threads. A thread holds
// kOwn neighbouring rows and kOwn neighbouring columns, as many as one access of 16 bytes moves. Ragged: nothing is padded;
// a block finds its segment by itself.
//
// What a query does not see must not reach it, nor it the key: 0 times a NaN is NaN. Weights of such pairs are marked, and where
// a tile with hidden pairs meets numbers that are not finite its products pass over them.

namespace reel::cuda {

inline constexpr int kAttentionThreads = 256;

/// [rows, heads, width]; the elements of a head's row are adjacent.
template <class T>
struct Heads {
  T* data;
  int64_t row, head, width;

  explicit Heads(const Array& x) : data(x.as<T>()), row(x.strides[0]), head(x.strides[1]), width(x.shape[2]) {}
  __host__ __device__ T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

/// The operands; null mask: none.
template <class T>
struct AttentionProblem {
  const int64_t *query_offsets, *key_offsets;
  int64_t segments, heads;
  Heads<const T> q, k, v;
  const T* mask;
  int64_t mask_strides[3];
  bool causal;
  T scale;

  AttentionProblem(const Attention& attention, const Array& q_, const Array& k_, const Array& v_, const Array* mask_)
      : query_offsets(attention.queries.offsets),
        key_offsets(attention.keys.offsets),
        segments(attention.queries.count),
        heads(q_.shape[1]),
        q(q_),
        k(k_),
        v(v_),
        mask(mask_ != nullptr ? mask_->as<T>() : nullptr),
        causal(attention.causal),
        scale(static_cast<T>(attention.scale)) {
    for (int a = 0; a < 3; ++a) mask_strides[a] = mask_ != nullptr ? mask_->strides[a] : 0;
  }
};

namespace device {

inline constexpr int kSide = 16;   // threads along either side of a tile
inline constexpr int kDepth = 16;  // elements of the inner dimension that are in shared memory at once
template <class T>
inline constexpr int kOwn = kPack<T>;
template <class T>
inline constexpr int kTile = kSide* kOwn<T>;
/// Elements from row to row in shared memory: packs at 16-byte boundaries, without bank conflicts.
template <class T>
inline constexpr int kTileStride = kTile<T> + kOwn<T>;

/// Shared memory: what is staged of two operands, and a tile of probabilities.
template <class T>
inline constexpr int kStageElements = 2 * kDepth* kTileStride<T>;
template <class T>
inline constexpr int kAttentionElements = kStageElements<T> + kTile<T>* kTileStride<T>;

/// The weight of a hidden pair. No other weight is -0.
template <class T>
inline constexpr T kHidden = -T(0);
template <class T>
REEL_DEVICE bool is_hidden(T weight) {
  return scalar::to_bits(weight) == scalar::to_bits(kHidden<T>);
}

/// What a thread holds of a tile.
template <class T>
struct Own {
  T v[kOwn<T>][kOwn<T>] = {};
};
template <class T, int columns>
struct OwnColumns {
  T v[kOwn<T>][columns] = {};
};

REEL_DEVICE int tile_column() { return threadIdx.x % kSide; }
template <class T>
REEL_DEVICE int first_row() {
  return threadIdx.x / kSide * kOwn<T>;
}
template <class T>
REEL_DEVICE int first_column() {
  return tile_column() * kOwn<T>;
}

/// Up to kTile rows of a head, times a factor.
template <class T>
struct Panel {
  const T* data;
  int64_t row;
  int width, rows;
  T factor = 1;
};

/// How many of the `left` rows that are left go into a tile.
template <class T>
REEL_DEVICE int rows_of_tile(int64_t left) {
  return static_cast<int>(smaller<int64_t>(kTile<T>, left));
}

/// Rows first .. of a head of a segment with `count` rows from `begin` on.
template <class T>
REEL_DEVICE Panel<T> panel(const Heads<const T>& x, int64_t head, int64_t begin, int64_t count, int64_t first,
                           T factor = 1) {
  return {x.at(begin + first, head), x.row, static_cast<int>(x.width), rows_of_tile<T>(count - first), factor};
}

/// put(row, column, element) for `rows` rows and `columns` columns of a panel from these on; 0 where it has none.
template <int rows, int columns, class T, class Put>
REEL_DEVICE void stage_part(const Panel<T>& panel, int first_row, int first_column, Put put) {
  constexpr int step = kAttentionThreads / columns;
  static_assert(rows % step == 0);
  const int column = threadIdx.x % columns, lane = threadIdx.x / columns;
  const int end = first_column + column < panel.width ? panel.rows - first_row : 0;
  const T* from = panel.data + ((first_row + lane) * panel.row + first_column + column);
  REEL_UNROLL
  for (int r = lane; r < lane + rows; r += step, from += step * panel.row)
    put(r, column, r < end ? *from * panel.factor : T(0));
}

/// The product of all rows of a by all rows of b. All threads of the block must call it.
template <class T>
REEL_DEVICE Own<T> multiply_rows(const Panel<T>& a, const Panel<T>& b, T* stage) {
  Own<T> product;
  T* const stage_b = stage + kDepth * kTileStride<T>;
  for (int depth = 0; depth < a.width; depth += kDepth) {
    __syncthreads();  // of what was read before
    stage_part<kTile<T>, kDepth>(a, 0, depth, [&](int r, int d, T x) { stage[d * kTileStride<T> + r] = x; });
    stage_part<kTile<T>, kDepth>(b, 0, depth, [&](int r, int d, T x) { stage_b[d * kTileStride<T> + r] = x; });
    __syncthreads();
    REEL_ROLLED
    for (int step = 0; step < kDepth; step += kDepth / 2) {
      REEL_UNROLL
      for (int d = step; d < step + kDepth / 2; ++d) {
        const Pack<T> left = load_pack<T, kOwn<T>>(stage + d * kTileStride<T> + first_row<T>());
        const Pack<T> right = load_pack<T, kOwn<T>>(stage_b + d * kTileStride<T> + first_column<T>());
        REEL_UNROLL
        for (int i = 0; i < kOwn<T>; ++i) {
          REEL_UNROLL
          for (int j = 0; j < kOwn<T>; ++j) product.v[i][j] = scalar::fma(left.v[i], right.v[j], product.v[i][j]);
        }
      }
    }
  }
  return product;
}

/// Puts a tile into shared memory, for multiply_tile. All threads of the block must call it.
template <class T>
REEL_DEVICE void share_tile(const Own<T>& own, T* tile) {
  __syncthreads();  // of what was read before
  REEL_UNROLL
  for (int i = 0; i < kOwn<T>; ++i) {
    Pack<T> row;
    REEL_UNROLL
    for (int j = 0; j < kOwn<T>; ++j) row.v[j] = own.v[i][j];
    store_pack(tile + (first_row<T>() + i) * kTileStride<T> + first_column<T>(), row);
  }
}

/// sum += kDepth columns of the tile from `from` on times what is staged.
template <class T, int columns>
REEL_DEVICE void add_products(const T* from, const T* stage, OwnColumns<T, columns>& sum) {
  REEL_ROLLED
  for (int step = 0; step < kDepth; step += kOwn<T>) {
    Pack<T> left[kOwn<T>];
    REEL_UNROLL
    for (int i = 0; i < kOwn<T>; ++i)
      left[i] = load_pack<T, kOwn<T>>(from + (first_row<T>() + i) * kTileStride<T> + step);
    REEL_UNROLL
    for (int k = 0; k < kOwn<T>; ++k) {
      const auto right = load_pack<T, columns>(stage + (step + k) * kSide * columns + tile_column() * columns);
      REEL_UNROLL
      for (int i = 0; i < kOwn<T>; ++i) {
        REEL_UNROLL
        for (int j = 0; j < columns; ++j) sum.v[i][j] = scalar::fma(left[i].v[k], right.v[j], sum.v[i][j]);
      }
    }
  }
}
/// The same without hidden pairs: slower, and seldom needed.
template <class T, int columns>
REEL_DEVICE void add_seen_products(const T* from, const T* stage, OwnColumns<T, columns>& sum) {
  REEL_ROLLED
  for (int k = 0; k < kDepth; ++k) {
    const auto right = load_pack<T, columns>(stage + k * kSide * columns + tile_column() * columns);
    REEL_UNROLL
    for (int i = 0; i < kOwn<T>; ++i) {
      const T weight = from[(first_row<T>() + i) * kTileStride<T> + k];
      REEL_UNROLL
      for (int j = 0; j < columns; ++j)
        sum.v[i][j] = is_hidden(weight) ? sum.v[i][j] : scalar::fma(weight, right.v[j], sum.v[i][j]);
    }
  }
}

/// sum += tile times the panel's columns from `first` on, if there are any, of which a thread has `columns`. All threads must
/// call it.
template <class T, int columns>
REEL_DEVICE void multiply_tile(const T* tile, const Panel<T>& b, int first, T* stage, OwnColumns<T, columns>& sum) {
  constexpr int width = kSide * columns;
  if (first >= b.width) return;
  for (int row = 0; row < b.rows; row += kDepth) {
    __syncthreads();  // of the tile, and of what was read before
    T zeros = 0;      // NaN if something is not finite
    stage_part<kDepth, width>(b, row, first, [&](int r, int c, T x) {
      stage[r * width + c] = x;
      zeros = scalar::fma(x, T(0), zeros);
    });
    if (__syncthreads_or(zeros != T(0))) add_seen_products(tile + row, stage, sum);
    else add_products(tile + row, stage, sum);
  }
}

/// to, columns from `first` on = sum factor(i); `to` is where the tile's rows of a head begin in y.
template <class T, int columns, class Factor>
REEL_DEVICE void write_columns(const OwnColumns<T, columns>& sum, const Heads<T>& y, T* to, int rows, int first,
                               Factor factor) {
  REEL_UNROLL
  for (int i = 0; i < kOwn<T>; ++i) {
    REEL_UNROLL
    for (int j = 0; j < columns; ++j) {
      const int row = first_row<T>() + i, column = first + tile_column() * columns + j;
      if (row < rows && column < y.width) to[row * y.row + column] = sum.v[i][j] * factor(i);
    }
  }
}

/// One head of a segment of queries and its segment of keys: where they begin, how many there are.
struct Pair {
  int64_t head, query, queries, key, keys;
  bool causal;

  /// Query i sees the keys before this one.
  REEL_DEVICE int64_t visible(int64_t i) const {
    return causal ? larger<int64_t>(0, smaller(keys, i + 1 + keys - queries)) : keys;
  }
};

/// A tile of `rows` rows of a pair.
struct Place {
  Pair pair;
  int64_t first;  // its first row; not in the pair: there is no such tile

  REEL_DEVICE bool exists(bool of_keys) const { return first < (of_keys ? pair.keys : pair.queries); }
};

/// The tile of this number; its rows are the queries or (of_keys) the keys. Tiles are numbered so that a number alone leads to
/// its segment: those of segment s begin at offsets[s] / rows + s, which leaves room for all, and at most one number per
/// segment without a tile. All lanes of the warp must call it: they look at as many segments at once.
template <int rows, class T>
REEL_DEVICE Place find_tile(const AttentionProblem<T>& p, bool of_keys, int64_t tile, int64_t head) {
  const int64_t* const offsets = of_keys ? p.key_offsets : p.query_offsets;
  const auto begin_of = [&](int64_t s) { return offsets[s] / rows + s; };
  int64_t low = 0, high = p.segments;  // begin_of(low) <= tile < begin_of(high)
  while (high - low > 1) {
    const int64_t step = (high - low + kWarp - 1) / kWarp, probe = low + threadIdx.x % kWarp * step;
    const unsigned begun = __ballot_sync(kAllLanes, probe < high && begin_of(probe) <= tile);
    low += (__popc(begun) - 1) * step;
    high = smaller(high, low + step);
  }
  const int64_t query = p.query_offsets[low], key = p.key_offsets[low];
  return {{head, query, p.query_offsets[low + 1] - query, key, p.key_offsets[low + 1] - key, p.causal},
          (tile - begin_of(low)) * rows};
}

/// f(pair, first row, first column) for this block's tile of rows and part of columns.
template <class T, class F>
REEL_DEVICE void with_tile(const AttentionProblem<T>& p, bool of_keys, int64_t parts, int part_columns, F f) {
  const int64_t unit = blockIdx.x, part = unit % parts, head = unit / parts % p.heads, tile = unit / parts / p.heads;
  const Place place = find_tile<kTile<T>>(p, of_keys, tile, head);
  if (place.exists(of_keys)) f(place.pair, place.first, static_cast<int>(part) * part_columns);
}

/// The scores of a tile of queries i.. and keys j.. of a pair: which there are, and what the mask adds to them.
template <class T>
struct Scores {
  int queries, keys;
  int reach;  // causal: query a of the tile sees its keys b with b - a < reach
  const T* mask;
  int64_t mask_query, mask_key;

  REEL_DEVICE Scores(const AttentionProblem<T>& p, const Pair& pair, int64_t i, int64_t j)
      : queries(rows_of_tile<T>(pair.queries - i)),
        keys(rows_of_tile<T>(pair.keys - j)),
        reach(kTile<T>),
        mask(p.mask),
        mask_query(p.mask_strides[1]),
        mask_key(p.mask_strides[2]) {
    if (pair.causal)
      reach = static_cast<int>(
          smaller<int64_t>(kTile<T>, larger<int64_t>(-kTile<T>, i + 1 + pair.keys - pair.queries - j)));
    if (mask != nullptr) mask += pair.head * p.mask_strides[0] + i * mask_query + j * mask_key;
  }
  /// What the mask adds; -infinity where query a does not see key b.
  REEL_DEVICE T added(int a, int b) const {
    if (a >= queries || b >= keys || b - a >= reach) return -scalar::infinity<T>();
    return mask != nullptr ? mask[a * mask_query + b * mask_key] : T(0);
  }
};

}  // namespace device

/// The launch for with_tile: tiles of `rows` rows, and parts of `width` columns of which a thread makes `columns`.
struct TileGrid {
  Grid grid;
  int64_t parts;
};
template <class T>
TileGrid tile_grid(int64_t rows, int64_t segments, int64_t heads, int64_t width, int columns) {
  const int64_t tiles = rows / device::kTile<T> + segments, parts = ceil_div(width, device::kSide * columns);
  return {{.blocks = tiles * heads * parts,
           .threads = kAttentionThreads,
           .shared_bytes = sizeof(T) * device::kAttentionElements<T>},
          parts};
}

/// f.template operator()<columns>(): a thread's columns of those that are made at once.
template <class T, class F>
void dispatch_columns(int64_t width, F&& f) {
  width <= device::kSide ? f.template operator()<1>() : f.template operator()<device::kOwn<T>>();
}

}  // namespace reel::cuda
