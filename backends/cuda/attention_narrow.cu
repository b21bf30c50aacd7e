// Attention with narrow heads, as in attention.cu, but a thread has whole queries.

#include "reel/backends/cuda/attention_narrow.h"

namespace reel::cuda {

namespace device {
namespace {

constexpr int kChunk = 8;  // keys by which the largest score, the sum and the result are corrected at once

/// A thread's query, and of the keys so far: the largest score, the sum of exp(score - largest), and of these times v.
struct Query {
  Row q, result = {};
  float largest = -scalar::infinity<float>(), sum = 0;
};

/// The next kChunk keys. `whole`: all exist and all queries see them; else added(a, c) is what is added to the score of a
/// thread's query a and key c, -infinity where it does not see it.
template <bool whole, int per_thread, class Added>
REEL_DEVICE void take_chunk(const float* keys, const float* values, Added added_to, Query (&own)[per_thread]) {
  float s[per_thread][kChunk];
  REEL_UNROLL
  for (int c = 0; c < kChunk; ++c) {
    const Row key = shared_row(keys + c * kNarrow);
    REEL_UNROLL
    for (int a = 0; a < per_thread; ++a) s[a][c] = dot(own[a].q, key);
  }
  unsigned seen[per_thread] = {};  // a bit for each key
  REEL_UNROLL
  for (int a = 0; a < per_thread; ++a) {
    if (!whole) {
      REEL_UNROLL
      for (int c = 0; c < kChunk; ++c) {
        const float added = added_to(a, c);
        const bool sees = added != -scalar::infinity<float>();
        s[a][c] = sees ? s[a][c] + added : added;
        seen[a] |= static_cast<unsigned>(sees) << c;
      }
    }
    float largest = own[a].largest;
    REEL_UNROLL
    for (int c = 0; c < kChunk; ++c) largest = larger(largest, s[a][c]);
    const float shift = finite_shift(largest), correction = weight_of(own[a].largest - shift);
    float sum = own[a].sum * correction;
    REEL_UNROLL
    for (int c = 0; c < kChunk; ++c) {
      s[a][c] = weight_of(s[a][c] - shift);
      sum += s[a][c];
    }
    own[a].largest = largest;
    own[a].sum = sum;
    REEL_UNROLL
    for (int e = 0; e < kNarrow; ++e) own[a].result.v[e] *= correction;
  }
  REEL_UNROLL
  for (int c = 0; c < kChunk; ++c) {
    const Row value = shared_row(values + c * kNarrow);
    REEL_UNROLL
    for (int a = 0; a < per_thread; ++a)
      if (whole || (seen[a] >> c & 1) != 0) add_scaled(s[a][c], value, own[a].result);
  }
}

/// A warp makes queries first .. of a pair, every lane `per_thread` of them, kWarp apart. stage: 2 kStagedElements.
template <int per_thread, bool masked>
REEL_DEVICE void attend(const AttentionProblem<float>& p, const Heads<float>& y, float* state, bool packs,
                        const NarrowPair& pair, int first, float* stage) {
  const int lane = threadIdx.x % kWarp;
  Query own[per_thread];
  REEL_UNROLL
  for (int a = 0; a < per_thread; ++a) {
    const int i = first + lane + a * kWarp;
    const bool exists = i < pair.queries;
    own[a].q = load_row(p.q.at(pair.query + i, pair.head), exists ? static_cast<int>(p.q.width) : 0, packs, p.scale);
  }
  const int last = smaller(first + per_thread * kWarp, pair.queries) - 1;
  const int some = pair.visible(p.causal, last), all = masked ? 0 : pair.visible(p.causal, first);  // see these keys
  float* const shared_values = stage + kStagedElements;
  for (int key = 0; key < some; key += kStaged) {
    const int end = clamped(some - key, kStaged), whole = clamped(all - key, kStaged);
    const Staging keys(p.k, pair.key + key, pair.head, end, packs), values(p.v, pair.key + key, pair.head, end, packs);
    __syncwarp();  // of what was read before
    keys.put(stage);
    values.put(shared_values);
    __syncwarp();
    REEL_ROLLED
    for (int c = 0; c < end; c += kChunk) {
      const float *const k = stage + c * kNarrow, *const v = shared_values + c * kNarrow;
      const auto added = [&](int a, int of_chunk) {
        return added_to<masked>(p, pair, first + lane + a * kWarp, key + c + of_chunk);
      };
      if (c + kChunk <= whole) take_chunk<true>(k, v, added, own);
      else take_chunk<false>(k, v, added, own);
    }
  }
  REEL_UNROLL
  for (int a = 0; a < per_thread; ++a) {
    const int i = first + lane + a * kWarp;
    if (i >= pair.queries) continue;
    const float inverse = own[a].sum == 0.0f ? 0.0f : 1.0f / own[a].sum;
    const int row = pair.query + i;
    store_pack(state + 2 * (row * p.heads + pair.head), Pack<float, 2>{{own[a].largest, inverse}});
    store_row(y.at(row, pair.head), static_cast<int>(y.width), packs, own[a].result, inverse);
  }
}

/// y [queries, heads, value width], state [queries, heads, 2]; a warp per tile of per_thread * kWarp queries and head.
template <int per_thread, bool masked>
__global__ void __launch_bounds__(kNarrowThreads, per_thread == 1 ? 4 : 3)
    narrow_attention(const __grid_constant__ AttentionProblem<float> p, Heads<float> y, float* state, bool packs) {
  REEL_DYNAMIC_SHARED(float, shared);
  float* const stage = shared + threadIdx.x / kWarp * 2 * kStagedElements;
  const int64_t unit = first_unit() / kWarp;
  const Place place = find_tile<per_thread * kWarp>(p, false, unit / p.heads, unit % p.heads);
  if (!place.exists(false)) return;
  const NarrowPair pair(place.pair);
  const int first = static_cast<int>(place.first);
  // A tile that is not full is made as if it were narrower: a short segment costs what it has.
  if (per_thread > 1 && pair.queries - first <= kWarp) attend<1, masked>(p, y, state, packs, pair, first, stage);
  else attend<per_thread, masked>(p, y, state, packs, pair, first, stage);
}

}  // namespace
}  // namespace device

void narrow_attention(const Context& context, const AttentionProblem<float>& problem, int64_t queries, Heads<float> y,
                      float* state) {
  const bool packs = heads_in_packs(problem.q, problem.k, problem.v, y);
  const auto run = [&]<int per_thread, bool masked>() {
    const int64_t warps = narrow_warps(queries, problem.segments, problem.heads, per_thread * device::kWarp);
    const int threads = narrow_threads(context, warps), of_block = threads / device::kWarp;
    const Grid grid{.blocks = ceil_div(warps, of_block),
                    .threads = threads,
                    .shared_bytes = sizeof(float) * 2 * device::kStagedElements * static_cast<std::size_t>(of_block)};
    launch(context, "attention", grid, &device::narrow_attention<per_thread, masked>, problem, y, state, packs);
  };
  if (problem.mask != nullptr) return run.template operator()<1, true>();
  // Two queries per thread read shared memory half as often; with fewer than a warp per scheduler more warps count more. The
  // same bits.
  const int64_t warps = queries / (2 * device::kWarp) * problem.heads;
  if (warps > 4 * context.processors()) run.template operator()<2, false>();
  else run.template operator()<1, false>();
}

}  // namespace reel::cuda
