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

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kQueries = 128, kKeys = 128;         // of a block
constexpr int64_t kAttentionGrain = int64_t{1} << 18;  // multiply-adds that are worth a task
constexpr int64_t kExponential = 32;                   // an exponential in multiply-adds

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

template <class T>
__attribute__((noinline)) void scale_row(const T* x, T scale, T* y, int64_t n) {
  for_each_vector<T>(0, n,
                     [=](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i) * Vec<T>::broadcast(scale)); });
}

template <class T>
REEL_INLINE void clear_rows(const Heads<T>& x, int64_t first, int64_t rows, int64_t head) {
  for (int64_t r = first; r < first + rows; ++r)
    __builtin_memset(x.at(r, head), 0, sizeof(T) * static_cast<std::size_t>(x.width));
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
    for (int64_t r = 0; r < count; ++r)
      scale_row(q.at(pair.query + i + r, pair.head), static_cast<T>(attention.scale), to + r * q.width, q.width);
  }

  /// s [queries, kKeys] = scaled q k^T + mask.
  void compute(const Pair& pair, const Block& b, const T* scaled, T* s) const {
    multiply<T>(ops, Turn::b, b.queries, b.keys, q.width, {scaled, q.width}, keys_of(k, pair, b.j), {s, kKeys}, false);
    with_mask(pair, b, s, [](T score, T add) { return add == -kInfinity<T> ? add : score + add; });
  }

  /// Marks what the mask hides.
  void hide(const Pair& pair, const Block& b, T* weights) const {
    with_mask(pair, b, weights, [](T weight, T add) { return add == -kInfinity<T> ? kHidden<T> : weight; });
  }

  /// to += weights from, or (of_keys) weights^T from: sums over the keys that a query sees, or the queries that see a key.
  void add_weighted(const Pair& pair, const Block& b, bool of_keys, T* weights, Matrix<const T> from, Matrix<T> to,
                    int64_t width) const {
    const int64_t rows = of_keys ? b.keys : b.queries, terms = of_keys ? b.queries : b.keys;
    if (!hides(pair, b) || all_finite(from, terms, width)) {
      multiply<T>(ops, of_keys ? Turn::a : Turn::none, rows, width, terms, {weights, kKeys}, from, to, true);
      return;
    }
    hide(pair, b, weights);
    for (int64_t r = 0; r < b.queries; ++r)
      for (int64_t j = 0; j < b.keys; ++j) {
        const T weight = weights[r * kKeys + j];
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
      T* const to = s + r * kKeys;
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

// --- forward -----------------------------------------------------------------------------------------------------------

template <class T>
struct Forward {
  Scores<T> scores;
  Heads<T> y;
  T* state;  // [queries, heads, 2]

  /// For each query of a block so far: the largest score, and the sum of exp(score - largest).
  struct State {
    alignas(kVectorBytes) T largest[kQueries], sum[kQueries];
  };

  void run() const {
    for_each_block(scores.attention, false, scores.heads, kQueries, scores.work(),
                   [this](const Pair& pair, int64_t i, int64_t end) { block(pair, i, end - i); });
  }

  void block(const Pair& pair, int64_t i, int64_t queries) const {
    if (queries == 0) return;
    const int64_t width = scores.q.width;
    const Scratch room(sizeof(T) * static_cast<std::size_t>(queries * (width + kKeys)));
    T *const scaled = room.as<T>(), *const s = scaled + queries * width;
    scores.scaled_queries(pair, i, queries, scaled);
    clear_rows(y, pair.query + i, queries, pair.head);
    State running;
    for (int64_t r = 0; r < queries; ++r) {
      running.largest[r] = -kInfinity<T>;
      running.sum[r] = 0;
    }
    for (int64_t j = 0; j < pair.visible(i + queries - 1); j += kKeys) {
      const Block b{i, queries, j, min(kKeys, pair.keys - j)};
      scores.compute(pair, b, scaled, s);
      update(pair, b, s, running);
      scores.add_weighted(pair, b, false, s, scores.keys_of(scores.v, pair, j),
                          {y.at(pair.query + i, pair.head), y.row}, y.width);
    }
    finish(pair, i, queries, running);
  }

  /// s becomes exp(s - largest), and what was summed before is corrected for a new largest score.
  void update(const Pair& pair, const Block& b, T* s, State& running) const {
    alignas(kVectorBytes) T shift[kQueries], correction[kQueries];
    for (int64_t r = 0; r < b.queries; ++r) {
      const T largest = max_of_row(s + r * kKeys, visible_in(b, pair, r));
      shift[r] = finite_shift(largest > running.largest[r] ? largest : running.largest[r]);
      correction[r] = running.largest[r] - shift[r];
      if (largest > running.largest[r]) running.largest[r] = largest;
    }
    for_each_vector<T>(0, b.queries, [&](auto lanes, int64_t r) {
      lanes.store(correction + r, exp_negative(lanes.load_for_max(correction + r)));
    });
    for (int64_t r = 0; r < b.queries; ++r) {
      const T sum = exponentials(s + r * kKeys, visible_in(b, pair, r), b.keys, shift[r]);
      running.sum[r] = running.sum[r] * correction[r] + sum;
      T* const row = y.at(pair.query + b.i + r, pair.head);
      if (b.j > 0 && correction[r] != T(1)) scale_row(row, correction[r], row, y.width);
    }
  }

  void finish(const Pair& pair, int64_t i, int64_t queries, const State& running) const {
    for (int64_t r = 0; r < queries; ++r) {
      T *const row = y.at(pair.query + i + r, pair.head), *const to = state + 2 * ((pair.query + i + r) * scores.heads +
                                                                                   pair.head);
      to[0] = running.largest[r];
      to[1] = inverse_or_zero(running.sum[r]);
      scale_row(row, to[1], row, y.width);
    }
  }
};

// --- backward ----------------------------------------------------------------------------------------------------------

template <class T>
struct Backward {
  Scores<T> scores;
  Heads<const T> y, dy;
  const T* state;
  Heads<T> dq, dk, dv;

  /// With enough heads and segments each is done at once; else once by blocks of queries for dq and once by blocks of keys
  /// for dk and dv, to the same bits.
  void run() const {
    const Attention& a = scores.attention;
    const int64_t heads = scores.heads, work = 3 * scores.work();
    const bool single = max(a.queries.max_length, a.keys.max_length) <= kQueries;
    if (single || a.queries.count * heads >= 4 * num_threads()) {
      const int64_t whole = max<int64_t>(1, a.queries.max_length);
      for_each_block(a, false, heads, whole, work, [this](const Pair& pair, int64_t, int64_t) {
        sweep(pair, 0, pair.queries, 0, pair.keys, true, true);
      });
      return;
    }
    for_each_block(a, false, heads, kQueries, work, [this](const Pair& pair, int64_t i, int64_t end) {
      sweep(pair, i, end, 0, pair.keys, true, false);
    });
    for_each_block(a, true, heads, kKeys, work, [this](const Pair& pair, int64_t j, int64_t end) {
      sweep(pair, 0, pair.queries, j, end, false, true);
    });
  }

  /// The blocks of queries [i0, i1) by keys [j0, j1), in ascending order.
  void sweep(const Pair& pair, int64_t i0, int64_t i1, int64_t j0, int64_t j1, bool queries, bool keys) const {
    const Scratch room(sizeof(T) * static_cast<std::size_t>(min(kQueries, i1 - i0) * (scores.q.width + 2 * kKeys)));
    if (queries) clear_rows(dq, pair.query + i0, i1 - i0, pair.head);
    if (keys) {
      clear_rows(dk, pair.key + j0, j1 - j0, pair.head);
      clear_rows(dv, pair.key + j0, j1 - j0, pair.head);
    }
    for (int64_t i = i0; i < i1; i += kQueries) {
      const int64_t count = min(kQueries, i1 - i);
      scores.scaled_queries(pair, i, count, room.as<T>());
      const int64_t visible = min(j1, pair.visible(i + count - 1));
      for (int64_t j = j0; j < visible; j += kKeys)
        block(pair, {i, count, j, min(kKeys, pair.keys - j)}, room.as<T>(), queries, keys);
      if (!queries) continue;
      for (int64_t r = pair.query + i; r < pair.query + i + count; ++r)
        scale_row(dq.at(r, pair.head), static_cast<T>(scores.attention.scale), dq.at(r, pair.head), dq.width);
    }
  }

  void block(const Pair& pair, const Block& b, T* room, bool queries, bool keys) const {
    const int64_t width = scores.q.width;
    const T* const scaled = room;
    T *const p = room + b.queries * width, *const dp = p + b.queries * kKeys;
    const Matrix<const T> gradient = scores.queries_of(dy, pair, b.i);
    probabilities(pair, b, scaled, p);
    if (keys) scores.add_weighted(pair, b, true, p, gradient, {dv.at(pair.key + b.j, pair.head), dv.row}, dv.width);
    multiply<T>(scores.ops, Turn::b, b.queries, b.keys, dv.width, gradient, scores.keys_of(scores.v, pair, b.j),
                {dp, kKeys}, false);
    score_gradients(pair, b, p, dp);
    if (keys) scores.add_weighted(pair, b, true, p, {scaled, width}, {dk.at(pair.key + b.j, pair.head), dk.row}, width);
    if (queries)
      scores.add_weighted(pair, b, false, p, scores.keys_of(scores.k, pair, b.j),
                          {dq.at(pair.query + b.i, pair.head), dq.row}, width);
  }

  /// p = exp(scores - largest) / sum
  void probabilities(const Pair& pair, const Block& b, const T* scaled, T* p) const {
    scores.compute(pair, b, scaled, p);
    for (int64_t r = 0; r < b.queries; ++r) {
      const T* const from = state + 2 * ((pair.query + b.i + r) * scores.heads + pair.head);
      exponentials(p + r * kKeys, visible_in(b, pair, r), b.keys, finite_shift(from[0]), from[1]);
    }
    scores.hide(pair, b, p);
  }

  /// p (dp - sum over all keys of p dp), which is p (dp - dot(y, dy)); in place of p.
  void score_gradients(const Pair& pair, const Block& b, T* p, const T* dp) const {
    for (int64_t r = 0; r < b.queries; ++r) {
      const T *const result = y.at(pair.query + b.i + r, pair.head), *const grad =
                                                                         dy.at(pair.query + b.i + r, pair.head);
      const T dot = sum_row<T>(dv.width, [=](Vec<T> acc, auto lanes, int64_t e) {
        return fma(lanes.load(result + e), lanes.load(grad + e), acc);
      });
      T* const to = p + r * kKeys;
      const T* const from = dp + r * kKeys;
      for_each_vector<T>(0, visible_in(b, pair, r), [=](auto lanes, int64_t j) {
        const Vec<T> product = lanes.load(to + j) * (lanes.load(from + j) - Vec<T>::broadcast(dot));
        lanes.store(to + j, product + Vec<T>::broadcast(0));  // no -0
      });
    }
    scores.hide(pair, b, p);
  }
};

}  // namespace

void CpuOps::attention(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                       const Array& y, const Array& state) {
  dispatch_floating(q.dtype, [&]<class T>() {
    Forward<T>{Scores<T>(*this, attention, q, k, v, mask), Heads<T>(y), state.as<T>()}.run();
  });
}

void CpuOps::attention_backward(const Attention& attention, const Array& q, const Array& k, const Array& v,
                                const Array* mask, const Array& y, const Array& state, const Array& dy, const Array& dq,
                                const Array& dk, const Array& dv) {
  dispatch_floating(q.dtype, [&]<class T>() {
    Backward<T>{Scores<T>(*this, attention, q, k, v, mask),
                Heads<const T>(y),
                Heads<const T>(dy),
                state.as<T>(),
                Heads<T>(dq),
                Heads<T>(dk),
                Heads<T>(dv)}
        .run();
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
