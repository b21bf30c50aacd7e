#pragma once

// Attention without the matrix of all scores: blocks of keys pass by a block of queries, whose maximum, sum and result are
// corrected as a larger score turns up (Milakov and Gimelshein, 2018; Dao et al., 2022). Backward makes the probabilities
// of each block again from the largest score and the sum.
//
// Blocks start where the sequence starts, products are those of gemm (a chain of fma over ascending k, on from c), and blocks
// follow in ascending order: a sequence's bits depend neither on its batch nor on how blocks are shared among threads.
//
// What a query does not see must not reach it, nor it the key: 0 times a NaN is NaN. Pairs are marked as hidden, and where a
// block with such pairs meets numbers that are not finite its products pass over them, in the same order.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/segments.h"
#include "reel/backends/cpu/softmax_rows.h"

namespace reel::cpu::REEL_CPU_ISA::attention_parts {

constexpr int64_t kQueries = 128, kKeys = 128;  // of a block
/// Multiply-adds that are worth a task. Of two chunks two threads take 0.8 of one's time, backward 0.8 to 1.0 (benchmark_grains).
constexpr int64_t kAttentionGrain = int64_t{1} << 18;
constexpr int64_t kExponential = 32;  // an exponential in multiply-adds

/// The weight of a hidden pair. No other weight is -0.
template <class T>
constexpr T kHidden = -T(0);

/// [rows, heads, width]; the elements of a head's row are adjacent.
template <class T>
struct Heads {
  T* data;
  int64_t row, head, width;

  explicit Heads(const Array& x) : data(x.as<T>()), row(x.strides[0]), head(x.strides[1]), width(x.shape[2]) {}
  REEL_INLINE T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

/// One head of a segment of queries and its segment of keys: where they begin, how many there are.
struct Pair {
  int64_t head, query, queries, key, keys;
  bool causal;

  /// Query i sees the keys before this one.
  REEL_INLINE int64_t visible(int64_t i) const {
    return causal ? max<int64_t>(0, min(keys, i + 1 + keys - queries)) : keys;
  }
};

/// Queries i .. i + queries - 1 and keys j .. j + keys - 1 of a pair.
struct Block {
  int64_t i, queries, j, keys;

  /// From one query's scores to the next's: few scores lie close, in the first cache.
  REEL_INLINE int64_t stride() const { return ceil_div(keys, 16) * 16; }
};

/// A matrix [m, n] with `stride` elements from row to row.
template <class T>
struct Matrix {
  T* data;
  int64_t stride;
};

enum class Turn { none, a, b };

/// c [m, n] (+)= a b, with a or b transposed.
template <class T>
void multiply(CpuOps& ops, Turn turn, int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b,
              Matrix<T> c, bool accumulate) {
  Gemm gemm{.m = m, .n = n, .k = k, .dtype = sizeof(T) == 4 ? DType::f32 : DType::f64};
  gemm.trans_a = turn == Turn::a;
  gemm.trans_b = turn == Turn::b;
  gemm.a = a.data;
  gemm.b = b.data;
  gemm.c = c.data;
  gemm.lda = a.stride;
  gemm.ldb = b.stride;
  gemm.ldc = c.stride;
  gemm.accumulate = accumulate;
  ops.gemm(gemm);
}

template <class T>
__attribute__((noinline)) bool all_finite(Matrix<const T> x, int64_t rows, int64_t width) {
  const auto zeros = [=](int64_t r) {  // 0, or NaN
    return sum_row<T>(width, [=](Vec<T> acc, auto lanes, int64_t i) {
      return fma(lanes.load(x.data + r * x.stride + i), Vec<T>::broadcast(0), acc);
    });
  };
  for (int64_t r = 0; r < rows; ++r)
    if (zeros(r) != T(0)) return false;
  return true;
}

template <class T>
__attribute__((noinline)) void add_scaled_row(const T* x, T scale, T* y, int64_t n) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) {
    lanes.store(y + i, fma(lanes.load(x + i), Vec<T>::broadcast(scale), lanes.load(y + i)));
  });
}

/// Row r of y = row r of x times scales[r * step], for `rows` rows of n.
template <class T>
__attribute__((noinline)) void scale_rows(Matrix<const T> x, const T* scales, int64_t step, Matrix<T> y, int64_t rows,
                                          int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    const Vec<T> scale = Vec<T>::broadcast(scales[r * step]);
    const T* const from = x.data + r * x.stride;
    T* const to = y.data + r * y.stride;
    for_each_vector<T>(0, n, [=](auto lanes, int64_t i) { lanes.store(to + i, lanes.load(from + i) * scale); });
  }
}
template <class T>
REEL_INLINE void scale_rows(Matrix<T> x, const T* scales, int64_t step, int64_t rows, int64_t n) {
  scale_rows<T>({x.data, x.stride}, scales, step, x, rows, n);
}

template <class T>
__attribute__((noinline)) void clear_rows(Matrix<T> x, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r)
    __builtin_memset(x.data + r * x.stride, 0, sizeof(T) * static_cast<std::size_t>(width));
}

/// f(pair, begin, end) for blocks of `size` queries (or keys) of each head of each segment, in parallel; `work`: that of all
/// of them. A segment without any has one block of none.
template <class F>
void for_each_block(const Attention& attention, bool of_keys, int64_t heads, int64_t size, int64_t work, F f) {
  const Segments &queries = attention.queries, &keys = attention.keys, &cut = of_keys ? keys : queries;
  const Scratch room(sizeof(int64_t) * static_cast<std::size_t>(cut.count + 1));
  int64_t* const first = room.as<int64_t>();
  first[0] = 0;
  for (int64_t s = 0; s < cut.count; ++s)
    first[s + 1] = first[s] + max<int64_t>(1, ceil_div(cut.offsets[s + 1] - cut.offsets[s], size));
  const Segments blocks{cut.count, first, first[cut.count], 0};
  const int64_t tasks = blocks.total * heads;
  const int64_t chunk = max<int64_t>(1, kAttentionGrain / (work / max<int64_t>(1, tasks) + 1));
  parallel_for(tasks, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t s = segment_of_row(blocks, task / heads);
      const int64_t place = task - first[s] * heads, count = first[s + 1] - first[s];
      const Pair pair{place / count,
                      queries.offsets[s],
                      queries.offsets[s + 1] - queries.offsets[s],
                      keys.offsets[s],
                      keys.offsets[s + 1] - keys.offsets[s],
                      attention.causal};
      const int64_t block = place % count * size;
      f(pair, block, min(block + size, of_keys ? pair.keys : pair.queries));
    }
  });
}

/// What forward and backward share: the operands and the scores of a block.
template <class T>
struct Scores {
  CpuOps& ops;
  const Attention& attention;
  Heads<const T> q, k, v;
  const Array* mask;
  int64_t heads;

  Scores(CpuOps& ops_, const Attention& attention_, const Array& q_, const Array& k_, const Array& v_,
         const Array* mask_)
      : ops(ops_), attention(attention_), q(q_), k(k_), v(v_), mask(mask_), heads(q_.shape[1]) {}

  int64_t work() const {
    int64_t pairs = 0;
    for (int64_t s = 0; s < attention.queries.count; ++s)
      pairs += (attention.queries.offsets[s + 1] - attention.queries.offsets[s]) *
               (attention.keys.offsets[s + 1] - attention.keys.offsets[s]);
    return pairs * heads * (q.width + v.width + kExponential);
  }

  Matrix<const T> queries_of(const Heads<const T>& x, const Pair& pair, int64_t i) const {
    return {x.at(pair.query + i, pair.head), x.row};
  }
  Matrix<const T> keys_of(const Heads<const T>& x, const Pair& pair, int64_t j) const {
    return {x.at(pair.key + j, pair.head), x.row};
  }

  /// The queries times the scale, without gaps: the scores and dk need no scaling of their own.
  void scaled_queries(const Pair& pair, int64_t i, int64_t count, T* to) const {
    const auto scale = static_cast<T>(attention.scale);
    scale_rows<T>(queries_of(q, pair, i), &scale, 0, {to, q.width}, count, q.width);
  }

  /// s [queries, stride] = scaled q k^T + mask.
  __attribute__((noinline)) void compute(const Pair& pair, const Block& b, const T* scaled, T* s) const {
    multiply<T>(ops, Turn::b, b.queries, b.keys, q.width, {scaled, q.width}, keys_of(k, pair, b.j), {s, b.stride()},
                false);
    with_mask(pair, b, s, [](T score, T add) { return add == -kInfinity<T> ? add : score + add; });
  }

  /// Marks what the mask hides.
  __attribute__((noinline)) void hide(const Pair& pair, const Block& b, T* weights) const {
    with_mask(pair, b, weights, [](T weight, T add) { return add == -kInfinity<T> ? kHidden<T> : weight; });
  }

  /// to += weights from, or (of_keys) weights^T from: sums over the keys that a query sees, or the queries that see a key. The
  /// `first` block of them does not read what was there.
  __attribute__((noinline)) void add_weighted(const Pair& pair, const Block& b, bool of_keys, T* weights,
                                              Matrix<const T> from, Matrix<T> to, int64_t width, bool first) const {
    const int64_t rows = of_keys ? b.keys : b.queries, terms = of_keys ? b.queries : b.keys;
    if (!hides(pair, b) || all_finite(from, terms, width)) {
      multiply<T>(ops, of_keys ? Turn::a : Turn::none, rows, width, terms, {weights, b.stride()}, from, to, !first);
      return;
    }
    hide(pair, b, weights);
    if (first) clear_rows(to, rows, width);
    for (int64_t r = 0; r < b.queries; ++r)
      for (int64_t j = 0; j < b.keys; ++j) {
        const T weight = weights[r * b.stride() + j];
        if (weight == T(0) && __builtin_signbit(weight)) continue;
        add_scaled_row(from.data + (of_keys ? r : j) * from.stride, weight, to.data + (of_keys ? j : r) * to.stride,
                       width);
      }
  }

 private:
  bool hides(const Pair& pair, const Block& b) const { return mask != nullptr || pair.visible(b.i) < b.j + b.keys; }

  /// s = f(s, what the mask adds) for each pair of a block.
  template <class F>
  void with_mask(const Pair& pair, const Block& b, T* s, F f) const {
    if (mask == nullptr) return;
    const int64_t step = mask->strides[2];
    for (int64_t r = 0; r < b.queries; ++r) {
      const T* const add =
          mask->as<T>() + pair.head * mask->strides[0] + (b.i + r) * mask->strides[1] + b.j * mask->strides[2];
      T* const to = s + r * b.stride();
#pragma omp simd
      for (int64_t j = 0; j < b.keys; ++j) to[j] = f(to[j], add[j * step]);
    }
  }
};

/// s = exp(s - shift) factor for the first `visible` of n scores; their sum. The others are hidden.
template <class T>
__attribute__((noinline)) T exponentials(T* s, int64_t visible, int64_t n, T shift, T factor = 1) {
  for (int64_t j = visible; j < n; ++j) s[j] = kHidden<T>;
  return sum_row<T>(
      visible, [=](Vec<T> acc, auto lanes, int64_t j) __attribute__((always_inline)) {
        const Vec<T> e = exp_negative(lanes.load_for_max(s + j) - Vec<T>::broadcast(shift)) * Vec<T>::broadcast(factor);
        lanes.store(s + j, e);
        return acc + e;
      });
}

/// How many keys of block b its query r sees.
REEL_INLINE int64_t visible_in(const Block& b, const Pair& pair, int64_t r) {
  return max<int64_t>(0, min(pair.visible(b.i + r) - b.j, b.keys));
}

}  // namespace reel::cpu::REEL_CPU_ISA::attention_parts
