// Gradients of attention with narrow heads, as in attention_backward.cu, but a thread has a whole query, for dq, or a whole
// key, for dk and dv. One launch does both: the first blocks the queries, the others the keys.

#include "reel/backends/cuda/attention_narrow.h"

namespace reel::cuda {

namespace device {
namespace {

/// The operands of backward; state [queries, heads, 2].
struct NarrowBackward {
  AttentionProblem<float> forward;
  Heads<const float> y, dy;
  const float* state;
  Heads<float> dq, dk, dv;
  int64_t query_blocks;
  bool packs;
};

/// Of a query: what is taken from its scores, 1 / sum of their exponentials, and dot(y, dy), the sum over all keys of p dp.
using Statistics = Pack<float>;

REEL_DEVICE Statistics statistics_of(const NarrowBackward& g, const NarrowPair& pair, int i, const Row& dy) {
  const int row = pair.query + i;
  const auto state = load_pack<float, 2>(g.state + 2 * (row * g.forward.heads + pair.head));
  const Row y = load_row(g.y.at(row, pair.head), static_cast<int>(g.y.width), g.packs);
  return {{finite_shift(state.v[0]), state.v[1], dot(y, dy), 0.0f}};
}

/// The probability of a pair of a query and a key, and its score's gradient; of no meaning if the pair is not seen.
struct Weight {
  bool seen;
  float p, ds;

  REEL_DEVICE Weight(float score, float added, float dp, const Statistics& of_query)
      : seen(added != -scalar::infinity<float>()),
        p(weight_of(score + added - of_query.v[0]) * of_query.v[1]),
        ds(p * (dp - of_query.v[2])) {}
};

/// A warp makes dq of queries first .. of a pair, a lane each. stage: 2 kStagedElements.
template <bool masked>
REEL_DEVICE void query_gradients(const NarrowBackward& g, const NarrowPair& pair, int first, float* stage) {
  const AttentionProblem<float>& f = g.forward;
  const int i = first + threadIdx.x % kWarp;
  const bool exists = i < pair.queries;
  const Row q = load_row(f.q.at(pair.query + i, pair.head), exists ? static_cast<int>(f.q.width) : 0, g.packs, f.scale);
  const Row dy = load_row(g.dy.at(pair.query + i, pair.head), exists ? static_cast<int>(g.dy.width) : 0, g.packs);
  const Statistics statistics = exists ? statistics_of(g, pair, i, dy) : Statistics{};
  const int some = pair.visible(f.causal, smaller(first + kWarp, pair.queries) - 1);
  const int all = masked ? 0 : pair.visible(f.causal, first);
  Row sum = {};
  float* const shared_values = stage + kStagedElements;
  for (int key = 0; key < some; key += kStaged) {
    const int end = clamped(some - key, kStaged);
    const Staging keys(f.k, pair.key + key, pair.head, end, g.packs);
    const Staging values(f.v, pair.key + key, pair.head, end, g.packs);
    __syncwarp();  // of what was read before
    keys.put(stage);
    values.put(shared_values);
    __syncwarp();
    const auto take = [&](int c, float added) {
      const Row k = shared_row(stage + c * kNarrow);
      const Weight weight(dot(q, k), added, dot(dy, shared_row(shared_values + c * kNarrow)), statistics);
      if (weight.seen) add_scaled(weight.ds, k, sum);
    };
    const int whole = clamped(all - key, end);
    int c = 0;
    REEL_ROLLED
    for (; c + 2 <= whole; c += 2) {
      take(c, 0.0f);
      take(c + 1, 0.0f);
    }
    REEL_ROLLED
    for (; c < end; ++c) take(c, added_to<masked>(f, pair, i, key + c));
  }
  if (exists) store_row(g.dq.at(pair.query + i, pair.head), static_cast<int>(g.dq.width), g.packs, sum, f.scale);
}

/// A warp makes dk and dv of keys first .. of a pair, a lane each. stage: 2 kStagedElements and kStaged Statistics.
template <bool masked>
REEL_DEVICE void key_gradients(const NarrowBackward& g, const NarrowPair& pair, int first, float* stage) {
  const AttentionProblem<float>& f = g.forward;
  const int lane = threadIdx.x % kWarp;
  const int j = first + lane;
  const bool exists = j < pair.keys;
  const Row k = load_row(f.k.at(pair.key + j, pair.head), exists ? static_cast<int>(f.k.width) : 0, g.packs);
  const Row v = load_row(f.v.at(pair.key + j, pair.head), exists ? static_cast<int>(f.v.width) : 0, g.packs);
  const int some = pair.seen_from(f.causal, first);
  const int all = masked ? pair.queries : pair.seen_from(f.causal, smaller(first + kWarp, pair.keys) - 1);
  Row key_sum = {}, value_sum = {};
  float *const shared_gradients = stage + kStagedElements, *const shared_statistics = stage + 2 * kStagedElements;
  for (int query = some; query < pair.queries; query += kStaged) {
    const int end = clamped(pair.queries - query, kStaged);
    __syncwarp();  // of what was read before
    // One after the other, for want of registers.
    Statistics statistics = {};
    if (lane < end) {
      const float* const dy = g.dy.at(pair.query + query + lane, pair.head);
      statistics = statistics_of(g, pair, query + lane, load_row(dy, static_cast<int>(g.dy.width), g.packs));
    }
    store_pack(shared_statistics + lane * kFour, statistics);
    Staging(f.q, pair.query + query, pair.head, end, g.packs).put(stage, f.scale);
    Staging(g.dy, pair.query + query, pair.head, end, g.packs).put(shared_gradients);
    __syncwarp();
    const auto take = [&](int c, float added) {
      const Row q = shared_row(stage + c * kNarrow), dy = shared_row(shared_gradients + c * kNarrow);
      const Weight weight(dot(k, q), added, dot(v, dy), load_pack<float, kFour>(shared_statistics + c * kFour));
      if (!weight.seen) return;
      add_scaled(weight.p, dy, value_sum);
      add_scaled(weight.ds, q, key_sum);
    };
    const int whole = clamped(all - query, end);  // from this one on
    REEL_ROLLED
    for (int c = 0; c < whole; ++c) take(c, added_to<masked>(f, pair, query + c, j));
    REEL_ROLLED
    for (int c = whole; c < end; ++c) take(c, 0.0f);
  }
  if (!exists) return;
  store_row(g.dk.at(pair.key + j, pair.head), static_cast<int>(g.dk.width), g.packs, key_sum, 1.0f);
  store_row(g.dv.at(pair.key + j, pair.head), static_cast<int>(g.dv.width), g.packs, value_sum, 1.0f);
}

constexpr int kBackwardElements = 2 * kStagedElements + kStaged * kFour;  // of shared memory, a warp's

/// A warp per tile of kWarp queries or keys and head.
template <bool masked>
__global__ void __launch_bounds__(kNarrowThreads, 4)
    narrow_attention_backward(const __grid_constant__ NarrowBackward g) {
  REEL_DYNAMIC_SHARED(float, shared);
  float* const stage = shared + threadIdx.x / kWarp * kBackwardElements;
  const bool of_keys = blockIdx.x >= g.query_blocks;
  const int64_t block = of_keys ? blockIdx.x - g.query_blocks : blockIdx.x;
  const int64_t unit = (block * blockDim.x + threadIdx.x) / kWarp, heads = g.forward.heads;
  const Place place = find_tile<kWarp>(g.forward, of_keys, unit / heads, unit % heads);
  if (!place.exists(of_keys)) return;
  const NarrowPair pair(place.pair);
  const int tile = static_cast<int>(place.first);
  if (of_keys) key_gradients<masked>(g, pair, tile, stage);
  else query_gradients<masked>(g, pair, tile, stage);
}

}  // namespace
}  // namespace device

void narrow_attention_backward(const Context& context, const AttentionProblem<float>& problem, int64_t queries,
                               int64_t keys, Heads<const float> y, const float* state, Heads<const float> dy,
                               Heads<float> dq, Heads<float> dk, Heads<float> dv) {
  const auto warps_of = [&](int64_t rows) {
    return narrow_warps(rows, problem.segments, problem.heads, device::kWarp);
  };
  const int threads = narrow_threads(context, warps_of(queries) + warps_of(keys)), of_block = threads / device::kWarp;
  const device::NarrowBackward g{.forward = problem,
                                 .y = y,
                                 .dy = dy,
                                 .state = state,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .query_blocks = ceil_div(warps_of(queries), of_block),
                                 .packs = heads_in_packs(problem.q, problem.k, problem.v, y, dy, dq, dk, dv)};
  const Grid grid{.blocks = g.query_blocks + ceil_div(warps_of(keys), of_block),
                  .threads = threads,
                  .shared_bytes = sizeof(float) * device::kBackwardElements * static_cast<std::size_t>(of_block)};
  if (problem.mask != nullptr) launch(context, "attention_backward", grid, &device::narrow_attention_backward<true>, g);
  else launch(context, "attention_backward", grid, &device::narrow_attention_backward<false>, g);
}

}  // namespace reel::cuda
