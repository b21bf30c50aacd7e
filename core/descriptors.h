#pragma once

#include <cstdint>

#include "reel/core/array.h"
#include "reel/core/scalar/list.h"

/// What entries of the Ops API (core/ops.h) are given besides arrays.
namespace reel {

enum class CellOp : std::uint8_t { rnn_tanh, rnn_relu, lstm, gru };
enum class Epilogue : std::uint8_t { none, relu };

/// What lies beyond the ends of an axis of n elements. zero: zeros. symmetric: the mirror image with the edge, -1 -> 0,
/// -2 -> 1; at most n. reflect: the mirror image without it, -1 -> 1, -2 -> 2; at most n - 1. replicate: the edge, -1 -> 0,
/// -2 -> 0; n >= 1.
enum class PaddingMode : std::uint8_t { zero, symmetric, reflect, replicate };

/// One side of a binary op: an array, or a plain number when `array` is null.
struct Operand {
  const Array* array = nullptr;
  Scalar scalar = {};
};

/// c = epilogue(a b + bias) (+ c), row-major, for each of `batch` matrices.
/// Every element of c is one fma chain over k = 0, 1, ..., K-1 starting from 0 (from c when `accumulate`), so that it does
/// not depend on m, on the batch or on the number of threads. K = 0 gives 0 (+ bias). bf16 and f16 are added up in f32, c and
/// bias included, and rounded once.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType dtype = DType::f32;
  bool trans_a = false;  // a is stored [k, m]
  bool trans_b = false;  // b is stored [n, k]
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t lda = 0, ldb = 0, ldc = 0;                 // elements between the rows as stored
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements between the matrices of a batch; a's, b's may be 0
  const void* bias = nullptr;                             // [n] or null
  Epilogue epilogue = Epilogue::none;                     // applied last; needs accumulate == false
  bool accumulate = false;
};

/// c = a b for matrices, as they are stored, whose rows may lie apart; c's follow one another.
REEL_INLINE Gemm gemm_of(const Array& a, bool trans_a, const Array& b, bool trans_b, void* c) {
  const std::int64_t n = b.shape[trans_b ? 0 : 1];
  const auto apart = [](const Array& x) {
    return x.shape[0] > 1 ? x.strides[0] : x.shape[1];
  };  // a single row's is any
  return {.m = a.shape[trans_a ? 1 : 0],
          .n = n,
          .k = a.shape[trans_a ? 0 : 1],
          .dtype = a.dtype,
          .trans_a = trans_a,
          .trans_b = trans_b,
          .a = a.data,
          .b = b.data,
          .c = c,
          .lda = apart(a),
          .ldb = apart(b),
          .ldc = n};
}

/// The geometry of a cross-correlation over `spatial` axes (1, 2 or 3), each stored at the end of the arrays below; the
/// unused leading entries are input = kernel = output = stride = dilation = 1, padding = 0.
/// x [batch, in, input...], weight [out, in / groups, kernel...], y [batch, out, output...] with
/// output = (input + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
struct Conv {
  std::int64_t batch = 0, in = 0, out = 0, groups = 1;
  std::int64_t input[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, output[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, padding[3] = {0, 0, 0};
  PaddingMode mode = PaddingMode::zero;
};

/// Elements around an array: how many each axis gets before and after its own, and which. `value` is for PaddingMode::zero; with the
/// other modes an axis that gets some has one of its own.
struct Padding {
  std::int64_t before[kMaxRank] = {}, after[kMaxRank] = {};
  PaddingMode mode = PaddingMode::zero;
  Scalar value = 0;
};

/// Consecutive segments of rows: segment s is rows offsets[s] .. offsets[s + 1] - 1.
struct Segments {
  std::int64_t count = 0;
  const std::int64_t* offsets = nullptr;  // [count + 1] on the backend's device
  std::int64_t total = 0;                 // offsets[count]
  std::int64_t max_length = 0;
};

/// y = softmax(scale q k^T + mask) v for each pair of a segment of queries and the same segment of keys, and for each head.
/// q [total queries, heads, width], k [total keys, heads, width], v [total keys, heads, value width]; these, y and all gradients
/// have strides of their own for rows and heads and are contiguous along the last axis. Causal: query i of a segment sees
/// keys j with j <= i + (keys - queries) of that segment. A query that sees no key, or only scores of -inf, gives 0.
struct Attention {
  Segments queries, keys;
  bool causal = false;
  double scale = 1;
};

/// The steps of one layer of a recurrent network in one direction, over rows in order of steps: first the first rows of all
/// sequences, the longest first, then the second rows of those that have one, and so on; segment t is the rows of step t.
/// steps.offsets is null where all steps have steps.max_length rows. `reverse`: the last step is computed first.
struct Recurrence {
  CellOp op = CellOp::lstm;
  bool reverse = false;
  Segments steps;
};

/// Of a recurrent layer: input [gates h, in], recurrent [gates h, h]; the biases [gates h] of each, or null.
struct RecurrentLayer {
  const Array& input;
  const Array& recurrent;
  const Array* input_bias;
  const Array* recurrent_bias;
};

/// Of a recurrent layer's inputs. Two may be one array: the first to come here is written first, then all is added. h0, c0
/// [n, h]: null if not wanted.
struct RecurrentGradients {
  GradientSink x, input, recurrent, input_bias, recurrent_bias;
  const Array* h0 = nullptr;
  const Array* c0 = nullptr;
};

/// Of a scan: of its results `dy` or, null, of the state after the last element of each line `dlast`, and of its inputs (null: not
/// wanted).
struct ScanGradients {
  const Array* dy;
  const Array* dlast;
  const Array* dx;
  const Array* dfactor = nullptr;
};

/// Where a random call starts in the Philox stream. f32 and bits: element i takes lane i % 4 of block `counter + i / 4`, a
/// normal pair two neighbouring lanes. f64: two lanes per element, so element i takes half i % 2 of block `counter + i / 2`,
/// a normal pair a whole block. The numbers of a block: core/scalar/philox.h.
struct PhiloxState {
  std::uint64_t seed = 0, stream = 0, counter = 0;
};

/// Elements [begin, end) of a flat buffer.
struct FlatRange {
  std::int64_t begin = 0, end = 0;
};
/// A moving average that an optimiser's step takes along: values = decay values + (1 - decay) w, of w after the step, for the
/// elements that it changes.
struct WeightAverage {
  Array values;  // of the size of w
  double decay = 0;
};
/// These elements take one optimiser step with these factors, from gradients g times gradient_scale.
struct SgdRange {
  std::int64_t begin = 0, end = 0;
  double rate = 0, decay = 0, momentum = 0, dampening = 0;
  bool nesterov = false;
  bool first = false;  // the momentum buffer is empty: it becomes g
  double gradient_scale = 1;
};
/// As above for Adam: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
/// w -= step_size * m / (sqrt(v) / root_correction2 + epsilon), where step_size = rate / (1 - beta1^t) and
/// root_correction2 = sqrt(1 - beta2^t); `decay` is added to g (Adam) or, decoupled (AdamW), w *= 1 - rate * decay first.
struct AdamRange {
  std::int64_t begin = 0, end = 0;
  double rate = 0, step_size = 0, root_correction2 = 1, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0;
  bool decoupled = false;
  bool rectified = true;  // RAdam: false while the variance is not to be trusted: w -= step_size m
  double gradient_scale = 1;
};

/// v = alpha v + (1 - alpha) g^2 [a = alpha a + (1 - alpha) g, centred: v - a^2]; step g / (sqrt(v) + epsilon), through
/// `momentum`; `decay` is added to g.
struct RmspropRange {
  std::int64_t begin = 0, end = 0;
  double rate = 0, alpha = 0.99, epsilon = 1e-8, decay = 0, momentum = 0;
  bool centered = false;
  double gradient_scale = 1;
};
/// sum += g^2; w -= rate g / (sqrt(sum) + epsilon); `decay` is added to g.
struct AdagradRange {
  std::int64_t begin = 0, end = 0;
  double rate = 0, epsilon = 1e-10, decay = 0, gradient_scale = 1;
};

}  // namespace reel
