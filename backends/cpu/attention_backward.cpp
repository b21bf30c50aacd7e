#include "reel/backends/cpu/attention.h"

namespace reel::cpu::REEL_CPU_ISA {

using namespace attention_parts;

namespace {

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
    int64_t reached = j0;  // keys whose gradients have been begun
    for (int64_t i = i0; i < i1; i += kQueries) {
      const int64_t count = min(kQueries, i1 - i);
      scores.scaled_queries(pair, i, count, room.as<T>());
      const int64_t visible = min(j1, pair.visible(i + count - 1));
      for (int64_t j = j0; j < visible; j += kKeys)
        block(pair, {i, count, j, min(kKeys, pair.keys - j)}, room.as<T>(), queries, j == j0, keys, j >= reached);
      reached = max(reached, min(j1, j0 + ceil_div(max<int64_t>(0, visible - j0), kKeys) * kKeys));
      if (!queries) continue;
      const Matrix<T> rows = rows_of(dq, pair.query + i, pair);
      if (visible <= j0) clear_rows(rows, count, dq.width);
      const auto scale = static_cast<T>(scores.attention.scale);
      scale_rows(rows, &scale, 0, count, dq.width);
    }
    if (!keys) return;
    clear_rows(rows_of(dk, pair.key + reached, pair), j1 - reached, dk.width);
    clear_rows(rows_of(dv, pair.key + reached, pair), j1 - reached, dv.width);
  }

  static Matrix<T> rows_of(const Heads<T>& x, int64_t row, const Pair& pair) { return {x.at(row, pair.head), x.row}; }

  /// `first`: the block is the first that adds to its queries' gradients, or its keys'.
  void block(const Pair& pair, const Block& b, T* room, bool queries, bool first_of_queries, bool keys,
             bool first_of_keys) const {
    const int64_t width = scores.q.width;
    const T* const scaled = room;
    T *const p = room + b.queries * width, *const dp = p + b.queries * kKeys;
    const Matrix<const T> gradient = scores.queries_of(dy, pair, b.i);
    probabilities(pair, b, scaled, p);
    if (keys)
      scores.add_weighted(pair, b, true, p, gradient, rows_of(dv, pair.key + b.j, pair), dv.width, first_of_keys);
    multiply<T>(scores.ops, Turn::b, b.queries, b.keys, dv.width, gradient, scores.keys_of(scores.v, pair, b.j),
                {dp, b.stride()}, false);
    score_gradients(pair, b, p, dp);
    if (keys)
      scores.add_weighted(pair, b, true, p, {scaled, width}, rows_of(dk, pair.key + b.j, pair), width, first_of_keys);
    if (queries)
      scores.add_weighted(pair, b, false, p, scores.keys_of(scores.k, pair, b.j), rows_of(dq, pair.query + b.i, pair),
                          width, first_of_queries);
  }

  /// p = exp(scores - largest) / sum
  void probabilities(const Pair& pair, const Block& b, const T* scaled, T* p) const {
    scores.compute(pair, b, scaled, p);
    for (int64_t r = 0; r < b.queries; ++r) {
      const T* const from = state + 2 * ((pair.query + b.i + r) * scores.heads + pair.head);
      exponentials(p + r * b.stride(), visible_in(b, pair, r), b.keys, finite_shift(from[0]), from[1]);
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
      T* const to = p + r * b.stride();
      const T* const from = dp + r * b.stride();
      for_each_vector<T>(0, visible_in(b, pair, r), [=](auto lanes, int64_t j) {
        const Vec<T> product = lanes.load(to + j) * (lanes.load(from + j) - Vec<T>::broadcast(dot));
        lanes.store(to + j, product + Vec<T>::broadcast(0));  // no -0
      });
    }
    scores.hide(pair, b, p);
  }
};

}  // namespace

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
