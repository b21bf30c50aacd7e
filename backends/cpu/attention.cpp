#include "reel/backends/cpu/attention.h"

namespace reel::cpu::REEL_CPU_ISA {

using namespace attention_parts;

namespace {

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
    State running;
    for (int64_t r = 0; r < queries; ++r) {
      running.largest[r] = -kInfinity<T>;
      running.sum[r] = 0;
    }
    const Matrix<T> rows{y.at(pair.query + i, pair.head), y.row};
    const int64_t visible = pair.visible(i + queries - 1);
    if (visible <= 0) clear_rows(rows, queries, y.width);
    for (int64_t j = 0; j < visible; j += kKeys) {
      const Block b{i, queries, j, min(kKeys, pair.keys - j)};
      scores.compute(pair, b, scaled, s);
      update(pair, b, s, running);
      scores.add_weighted(pair, b, false, s, scores.keys_of(scores.v, pair, j), rows, y.width, j == 0);
    }
    finish(pair, i, queries, running);
  }

  /// s becomes exp(s - largest), and what was summed before is corrected for a new largest score.
  void update(const Pair& pair, const Block& b, T* s, State& running) const {
    alignas(kVectorBytes) T shift[kQueries], correction[kQueries];
    for (int64_t r = 0; r < b.queries; ++r) {
      const T largest = max_of_row(s + r * b.stride(), visible_in(b, pair, r));
      shift[r] = finite_shift(largest > running.largest[r] ? largest : running.largest[r]);
      correction[r] = running.largest[r] - shift[r];
      if (largest > running.largest[r]) running.largest[r] = largest;
    }
    for_each_vector<T>(0, b.queries, [&](auto lanes, int64_t r) {
      lanes.store(correction + r, exp_negative(lanes.load_for_max(correction + r)));
    });
    for (int64_t r = 0; r < b.queries; ++r) {
      const T sum = exponentials(s + r * b.stride(), visible_in(b, pair, r), b.keys, shift[r]);
      running.sum[r] = running.sum[r] * correction[r] + sum;
    }
    if (b.j == 0) return;
    const Matrix<T> rows{y.at(pair.query + b.i, pair.head), y.row};
    scale_rows(rows, correction, 1, b.queries, y.width);
  }

  void finish(const Pair& pair, int64_t i, int64_t queries, const State& running) const {
    const Matrix<T> rows{y.at(pair.query + i, pair.head), y.row};
    T* const to = state + 2 * ((pair.query + i) * scores.heads + pair.head);
    const int64_t step = 2 * scores.heads;
    for (int64_t r = 0; r < queries; ++r) {
      to[r * step] = running.largest[r];
      to[r * step + 1] = inverse_or_zero(running.sum[r]);
    }
    scale_rows(rows, to + 1, step, queries, y.width);
  }
};

}  // namespace

void CpuOps::attention(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                       const Array& y, const Array& state) {
  dispatch_floating(q.dtype, [&]<class T>() {
    Forward<T>{Scores<T>(*this, attention, q, k, v, mask), Heads<T>(y), state.as<T>()}.run();
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
