#pragma once

#include "reel/backends/cuda/attention.h"

// Attention in f32 with heads of at most kNarrow columns: a thread has whole rows of a head (queries, or keys in backward) in
// registers, and a warp lets the rows on the other side pass by in shared memory, where all its lanes read the same one.
// Scores then take neither shuffles nor barriers of the block, and what a thread does not see it passes over by itself.

namespace reel::cuda {

inline constexpr int kNarrow = 16;

/// Which problems have these kernels; forward and backward must agree.
inline bool is_narrow(const Attention& attention, const Array& q, const Array& v) {
  constexpr int64_t most = int64_t{1} << 30;  // rows are counted in int
  return q.dtype == DType::f32 && q.shape[2] <= kNarrow && v.shape[2] <= kNarrow && q.shape[1] <= most &&
         attention.queries.total <= most && attention.keys.total <= most;
}

void narrow_attention(const Context& context, const AttentionProblem<float>& problem, int64_t queries, Heads<float> y,
                      float* state);
void narrow_attention_backward(const Context& context, const AttentionProblem<float>& problem, int64_t queries,
                               int64_t keys, Heads<const float> y, const float* state, Heads<const float> dy,
                               Heads<float> dq, Heads<float> dk, Heads<float> dv);

inline constexpr int kNarrowThreads = 128;  // of a block, at most

/// Whether all rows can be read and written by packs.
template <class... Operands>
bool heads_in_packs(const Operands&... operands) {
  return (in_packs<float>({operands.data}, {operands.width, operands.row, operands.head}) && ...);
}

namespace device {

inline constexpr int kFour = kPack<float>;
inline constexpr int kStaged = kWarp;  // rows that a warp has in shared memory
inline constexpr int kStagedElements = kStaged * kNarrow;

/// A Pair, counted in int.
struct NarrowPair {
  int head, query, queries, key, keys;

  explicit REEL_DEVICE NarrowPair(const Pair& pair)
      : head(static_cast<int>(pair.head)),
        query(static_cast<int>(pair.query)),
        queries(static_cast<int>(pair.queries)),
        key(static_cast<int>(pair.key)),
        keys(static_cast<int>(pair.keys)) {}

  /// Query i sees the keys before this one.
  REEL_DEVICE int visible(bool causal, int i) const {
    return causal ? larger(0, smaller(keys, i + 1 + keys - queries)) : keys;
  }
  /// The queries from this one on see key j.
  REEL_DEVICE int seen_from(bool causal, int j) const { return causal ? larger(0, j - keys + queries) : 0; }
};

/// What is added to the score of query i and key j, or -infinity: it is hidden.
template <bool masked>
REEL_DEVICE float added_to(const AttentionProblem<float>& p, const NarrowPair& pair, int i, int j) {
  if (i >= pair.queries || j >= pair.visible(p.causal, i)) return -scalar::infinity<float>();
  if (!masked) return 0.0f;
  return p.mask[pair.head * p.mask_strides[0] + i * p.mask_strides[1] + j * p.mask_strides[2]];
}

/// A row of a head in registers.
struct Row {
  float v[kNarrow];
};

/// Four neighbours, of which `left` exist; the others are 0.
REEL_DEVICE Pack<float> load_four(const float* from, int left, bool packs) {
  Pack<float> four = {};
  if (packs) {
    if (left > 0) four = load_pack<float, kFour>(from);
  } else {
    REEL_UNROLL
    for (int i = 0; i < kFour; ++i)
      if (i < left) four.v[i] = from[i];
  }
  return four;
}

REEL_DEVICE Row load_row(const float* from, int width, bool packs, float factor = 1) {
  Row row;
  REEL_UNROLL
  for (int e = 0; e < kNarrow; e += kFour) {
    const Pack<float> four = load_four(from + e, width - e, packs);
    REEL_UNROLL
    for (int i = 0; i < kFour; ++i) row.v[e + i] = four.v[i] * factor;
  }
  return row;
}

REEL_DEVICE void store_row(float* to, int width, bool packs, const Row& row, float factor) {
  REEL_UNROLL
  for (int e = 0; e < kNarrow; e += kFour) {
    Pack<float> four;
    REEL_UNROLL
    for (int i = 0; i < kFour; ++i) four.v[i] = row.v[e + i] * factor;
    if (packs) {
      if (e < width) store_pack(to + e, four);
      continue;
    }
    REEL_UNROLL
    for (int i = 0; i < kFour; ++i)
      if (e + i < width) to[e + i] = four.v[i];
  }
}

/// A lane's part of up to kStaged rows on their way into shared memory; those that do not exist are 0.
struct Staging {
  static constexpr int kLanesOfRow = kNarrow / kFour, kRowsAtOnce = kWarp / kLanesOfRow;
  Pack<float> v[kStaged / kRowsAtOnce];

  REEL_DEVICE Staging(const Heads<const float>& x, int row, int head, int rows, bool packs) {
    const int first = threadIdx.x % kWarp / kLanesOfRow, column = threadIdx.x % kLanesOfRow * kFour;
    const float* from = x.at(row + first, head) + column;
    REEL_UNROLL
    for (int i = 0; i < kStaged / kRowsAtOnce; ++i, from += kRowsAtOnce * x.row)
      v[i] = load_four(from, first + i * kRowsAtOnce < rows ? static_cast<int>(x.width) - column : 0, packs);
  }
  REEL_DEVICE void put(float* to, float factor = 1) const {
    to += threadIdx.x % kWarp * kFour;
    REEL_UNROLL
    for (int i = 0; i < kStaged / kRowsAtOnce; ++i) {
      Pack<float> four = v[i];
      REEL_UNROLL
      for (int k = 0; k < kFour; ++k) four.v[k] *= factor;
      store_pack(to + i * kWarp * kFour, four);
    }
  }
};

/// A row in shared memory, from which all lanes read alike.
REEL_DEVICE Row shared_row(const float* from) { return load_row(from, kNarrow, true); }

REEL_DEVICE float dot(const Row& a, const Row& b) {
  float sum = 0;
  REEL_UNROLL
  for (int e = 0; e < kNarrow; ++e) sum = scalar::fma(a.v[e], b.v[e], sum);
  return sum;
}

/// sum += factor x
REEL_DEVICE void add_scaled(float factor, const Row& x, Row& sum) {
  REEL_UNROLL
  for (int e = 0; e < kNarrow; ++e) sum.v[e] = scalar::fma(factor, x.v[e], sum.v[e]);
}

/// e^x of a score less the largest one, so x is at most 0 but for rounding; 0 where it is below 2^-125.5. NaN stays.
REEL_DEVICE float weight_of(float x) {
  const auto e = scalar::reduce_exponent(x);
  const float power =
      scalar::from_bits<float>((e.bits + scalar::Format<float>::kBias) << scalar::Format<float>::kMantissa);
  const float weight = (1.0f + scalar::expm1_polynomial(e.r)) * power;
  return x < -87.0f ? 0.0f : weight;
}

/// n within [0, most].
REEL_DEVICE int clamped(int n, int most) { return smaller(most, larger(0, n)); }

}  // namespace device

/// How many warps for tiles of `rows` rows and heads.
inline int64_t narrow_warps(int64_t total, int64_t segments, int64_t heads, int rows) {
  return (total / rows + segments) * heads;
}

/// The threads of a block: one warp where these are too few for all processors.
inline int narrow_threads(const Context& context, int64_t warps) {
  return warps < kNarrowThreads / device::kWarp * context.processors() ? device::kWarp : kNarrowThreads;
}

}  // namespace reel::cuda
