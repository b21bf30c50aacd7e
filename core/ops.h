#pragma once

#include <cstddef>
#include <cstdint>

#include "reel/core/array.h"
#include "reel/core/scalar/list.h"
#include "reel/core/source_location.h"

/// The Ops API: what a backend must be able to compute. `reel::ops` functions check arguments, allocate results, call one
/// of these and record; backends trust what they are given. Entries are few and wide: a formula is a value of an enum, not
/// a virtual function.
///
/// Unless an entry says otherwise: arrays are of one floating dtype and live on this backend's device; outputs are
/// contiguous and overlap no input, except that an elementwise output may be exactly one of the inputs; inputs may have any
/// strides where "strided" is written and are contiguous elsewhere; sizes may be 0. bf16 and f16 are for gemm and for what
/// moves or converts elements: a kernel that would compute with them refuses (detail::refuse_half).
namespace reel {

enum class ReduceOp : std::uint8_t { sum, mean, max, min, prod };
enum class ScanOp : std::uint8_t { sum, prod };
enum class GateOp : std::uint8_t { sigmoid, gelu, silu };
enum class PoolOp : std::uint8_t { max, average };
enum class CellOp : std::uint8_t { rnn_tanh, rnn_relu, lstm, gru };
enum class SoftmaxOp : std::uint8_t { softmax, log_softmax };
enum class RandomOp : std::uint8_t { uniform, normal, bits };
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

/// Of a recurrent layer's inputs. Two may be one array: the first to come here is written first, then all is added. h0, c0 [n, h]: null
/// if not wanted.
struct RecurrentGradients {
  GradientSink x, input, recurrent, input_bias, recurrent_bias;
  const Array* h0 = nullptr;
  const Array* c0 = nullptr;
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

/// A backend. Thread-safe; results do not depend on the number of threads.
class REEL_API Ops {
 public:
  virtual ~Ops();

  // --- memory -------------------------------------------------------------------------------------------------------
  /// A block of this device's memory with undefined contents; null for 0 bytes. Throws OutOfMemory. Host memory, unless the
  /// backend has memory of its own.
  virtual void* allocate(std::size_t bytes);
  /// Back to where it came from; `bytes` as given to allocate.
  virtual void deallocate(void* block, std::size_t bytes) noexcept;

  /// y = value, any dtype; y strided.
  virtual void fill(const Array& y, Scalar value) = 0;
  /// y = x, same shape, any two dtypes (to integers truncates, to bool8 is x != 0, to fractions rounds once: but i64 to bf16
  /// and f16 by way of f64); both strided. Both contiguous: x on any GPU.
  virtual void copy(const Array& x, const Array& y) = 0;
  /// y[i] = start + i step; any dtype but bool8.
  virtual void arange(const Array& y, Scalar start, Scalar step) = 0;
  /// uniform: [0, 1) with 24 (f32) or 53 (f64) bits; normal: Box-Muller on pairs of lanes; bits: i64, 32 random bits each.
  virtual void random(RandomOp op, const Array& y, const PhiloxState& state) = 0;
  /// Throws IndexError naming `op`, position and value unless 0 <= index[i] < limit, or index[i] == *exempt (may be null), for
  /// all i. i32 or i64, contiguous.
  virtual void check_indices(const Array& index, std::int64_t limit, const std::int64_t* exempt, const char* op,
                             SourceLocation where) = 0;
  /// Bytes between host memory and this device; plain copies on the CPU.
  virtual void from_host(const void* host, void* device, std::int64_t bytes) = 0;
  virtual void to_host(const void* device, void* host, std::int64_t bytes) = 0;
  /// Returns when all entries called so far have done their work; throws what went wrong in it. On the CPU they have.
  virtual void synchronize();

  // --- elementwise --------------------------------------------------------------------------------------------------
  /// y = f(x); x strided.
  virtual void unary(UnaryOp op, const Array& x, const Array& y) = 0;
  /// dx = dy f'(saved), where saved is x or y as the op's list entry says. All contiguous, one shape.
  virtual void unary_backward(UnaryOp op, const Array& saved, const Array& dy, const Array& dx) = 0;
  /// y = f(a, b); both of y's shape (broadcast by strides of 0), strided, of one dtype; comparisons give bool8. A scalar
  /// takes the other side's dtype. Not both sides are scalars.
  virtual void binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) = 0;
  /// da = dy f_a(a, b), db = dy f_b(a, b), each null if not wanted: of mul, maximum, minimum. dy, da, db and the sides that are
  /// arrays contiguous, of one shape, f32 or f64.
  virtual void binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Array& dy, const Array* da,
                               const Array* db) = 0;
  /// y += x; both strided.
  virtual void accumulate(const Array& x, const Array& y) = 0;
  /// y = f(x; parameters), with as many parameters as the op's list entry says; x strided.
  virtual void parametric(ParametricOp op, const double* parameters, const Array& x, const Array& y) = 0;
  /// dx = dy f'(x; parameters). All contiguous, one shape.
  virtual void parametric_backward(ParametricOp op, const double* parameters, const Array& x, const Array& dy,
                                   const Array& dx) = 0;
  /// y[r, j] = x[r, j] f(x[r, n + j]); x [rows, 2 n], y [rows, n].
  virtual void gated(GateOp op, const Array& x, const Array& y) = 0;
  virtual void gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) = 0;
  /// y[i] = x[i] (1 / (1 - p)) where the i-th uniform number of `state` is at least p, else 0; contiguous.
  virtual void dropout(const Array& x, double p, const PhiloxState& state, const Array& y) = 0;

  // --- reductions ---------------------------------------------------------------------------------------------------
  /// y has x's rank and size 1 on each reduced axis; x strided. max and min propagate NaN (the first one wins `which`).
  /// `which` (null or i64, y's shape; needs exactly one reduced axis, max or min): index of the first winner.
  /// An empty axis gives 0 for sum, 1 for prod, NaN for mean, -inf / +inf for max / min. Integers: sum, max, min in their
  /// own dtype, prod of i64.
  virtual void reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) = 0;

  /// Along `axis`, from its end if `reverse`, with s before the first element: sum: s = x[i] + factor[i] s from 0, where
  /// `factor` (null: ones) has x's shape; prod: s = x[i] s from 1, factor null. y[i] is the s after element i, or before it
  /// if `exclusive`. f32 (s is kept in f64), f64, i64 (factor null). All contiguous.
  virtual void scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                    const Array& y) = 0;

  // --- order --------------------------------------------------------------------------------------------------------
  /// The k first of each line of x along `axis` in ascending or descending order (k = y's size there; all of them: a sort).
  /// Stable; NaN counts as the largest. f32, f64, i32, i64. `which`: i64, y's shape, where each came from.
  virtual void sort(const Array& x, int axis, bool descending, const Array& y, const Array& which) = 0;
  /// The positions where the contiguous `mask` (bool8) is not 0, ascending, to the front of `index` (i64, as many as mask
  /// has elements); returns how many.
  virtual std::int64_t nonzero(const Array& mask, const Array& index) = 0;

  // --- products -----------------------------------------------------------------------------------------------------
  virtual void gemm(const Gemm& gemm) = 0;
  // Convolutions: arrays of images may have any stride along axis 0, and are contiguous behind it.
  /// y = epilogue(correlation(x, weight) + bias); bias null or [out].
  virtual void conv(const Conv& conv, const Array& x, const Array& weight, const Array* bias, Epilogue epilogue,
                    const Array& y) = 0;
  /// dx from dz = dy, or dz = dy where y > 0 (NaN counts as > 0), else 0, if `relu_output` y is given.
  virtual void conv_backward_input(const Conv& conv, const Array& dy, const Array* relu_output, const Array& weight,
                                   const Array& dx) = 0;
  /// dweight and, if not null, dbias, from the same dz. Deterministic.
  virtual void conv_backward_weight(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                                    const Array& dweight, const Array* dbias) = 0;
  /// Both. dx has the same bits.
  virtual void conv_backward(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                             const Array& weight, const Array& dx, const Array& dweight, const Array* dbias);

  /// Largest elements or averages of windows; geometry.in == geometry.out channels, groups unused. Padding never wins a
  /// maximum; an average divides by how many elements the window covers, those of the padding too if `count_padding`. A
  /// window may reach beyond the padding, but covers at least one element. `which` (max only; i64, y's shape): the winner's
  /// position in its input plane, the first of equals; NaN wins.
  virtual void pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
                    const Array* which) = 0;
  virtual void pool_backward(PoolOp op, const Conv& geometry, bool count_padding, const Array& dy, const Array* which,
                             const Array& dx) = 0;

  // --- decompositions, of batches of row-major matrices; contiguous -----------------------------------------------------
  /// a [batch, n, n] = l l^T, of which only a's lower triangle is read; l's upper triangle is 0. Returns the first matrix
  /// that is not positive definite, or -1: its l has NaN on the diagonal from the first leading minor on that is not positive.
  virtual std::int64_t cholesky(const Array& a, const Array& l) = 0;
  /// Solves op(a) x = b for triangular a [batch, n, n], b and x [batch, n, k]; only that triangle is read.
  virtual void triangular_solve(const Array& a, const Array& b, bool upper, bool transposed, bool unit,
                                const Array& x) = 0;
  /// By LU with partial pivoting: the inverse (may be null) and, for each matrix, the determinant's sign and the logarithm
  /// of its magnitude (both [batch]; 0 and -inf if singular, where the inverse is inf or NaN).
  virtual void invert(const Array& a, const Array* inverse, const Array& sign, const Array& logdet) = 0;

  // --- normalisation ------------------------------------------------------------------------------------------------
  /// Each row of x [rows, n]: y = (x - mean) rstd scale + shift with rstd = 1 / sqrt(variance + epsilon) of the row; not
  /// `center`: mean = 0 (root mean square). scale, shift [n] or null; mean (null unless center), rstd [rows].
  virtual void normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift,
                         const Array& y, const Array* mean, const Array& rstd) = 0;
  /// From dy; each of dx, dscale, dshift may be null: not wanted.
  virtual void normalize_backward(const Array& x, bool center, const Array* scale, const Array* mean, const Array& rstd,
                                  const Array& dy, const Array* dx, const Array* dscale, const Array* dshift) = 0;
  /// y = (x - center) scale + shift, numbers of a channel: x, y [n, channels, length], x's last axis without gaps, y without
  /// any; center, scale, shift [channels] or null (0, 1, 0).
  virtual void scale_channels(const Array& x, const Array* center, const Array* scale, const Array* shift,
                              const Array& y) = 0;
  /// From dy, without gaps; each of dx, dscale, dshift may be null: not wanted.
  virtual void scale_channels_backward(const Array& x, const Array* center, const Array* scale, const Array& dy,
                                       const Array* dx, const Array* dscale, const Array* dshift) = 0;

  // --- attention and recurrent cells ------------------------------------------------------------------------------------
  /// y [total queries, heads, value width]; state [total queries, heads, 2]: each query's largest score and
  /// 1 / sum exp(score - largest), 0 where it sees nothing.
  /// `mask` (null or strided, dtype of q): added to the scores, [heads, queries, keys] of every segment alike. Where it is
  /// -infinity the key is hidden: neither NaN nor infinities pass between it and the query, forward or backward.
  virtual void attention(const Attention& attention, const Array& q, const Array& k, const Array& v, const Array* mask,
                         const Array& y, const Array& state) = 0;
  /// Memory linear in the number of rows. Deterministic.
  virtual void attention_backward(const Attention& attention, const Array& q, const Array& k, const Array& v,
                                  const Array* mask, const Array& y, const Array& state, const Array& dy,
                                  const Array& dq, const Array& dk, const Array& dv) = 0;
  /// One step of a recurrent cell for n rows. x [n, gates h]: the input's part of the gates, biases included; r [n, gates h]:
  /// the recurrent part (gru: with its bias); gates in PyTorch's order (i f g o; r z n). h_prev, c_prev [n, h] (c: lstm only,
  /// else null). h, c: the new states; c may be c_prev. saved [n, gates h]: the gates after their nonlinearities, for
  /// backward; it may be x.
  virtual void cell(CellOp op, const Array& x, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                    const Array* c, const Array& saved) = 0;
  /// dx, dr [n, gates h], which may be one array but for gru; dh_prev [n, h]: the part that does not go through r; dc (in)
  /// and dc_prev: lstm only, else null. r and h_prev are read for gru only. dh_prev may be dh, dc_prev may be dc.
  virtual void cell_backward(CellOp op, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                             const Array* c, const Array& saved, const Array& dh, const Array* dc, const Array& dx,
                             const Array& dr, const Array& dh_prev, const Array* dc_prev) = 0;

  /// Whether `recurrent` and `recurrent_backward` are there for this size; else a layer goes step by step, by cell and gemm.
  virtual bool fuses_steps(DType dtype, std::int64_t hidden) const;
  /// All steps of n sequences. x [total, in]; h0, c0, h, c [n, h] (c: lstm only, else null): the first and the last states of
  /// each sequence; y [total, h]: the states h after each row. For backward, all null if there is to be none: states
  /// [total, h] (lstm only), the states c after each row; saved [total, gates h], as from cell; back [total, gates h] (gru
  /// only), the recurrent part of the gates.
  virtual void recurrent(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer, const Array& h0,
                         const Array* c0, const Array& h, const Array* c, const Array& y, const Array* states,
                         const Array* saved, const Array* back);
  /// From dy [total, h], dh, dc [n, h], each of which may be null: zeros.
  virtual void recurrent_backward(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer,
                                  const Array& h0, const Array* c0, const Array& y, const Array* states,
                                  const Array& saved, const Array* back, const Array* dy, const Array* dh,
                                  const Array* dc, const RecurrentGradients& to);
  /// Those of `to` but h0 and c0, from all rows' gradients of the input's part of the gates dz and of the recurrent part dback
  /// [total, gates h], one array but for gru, and from the states before each row, before [total, h].
  void recurrent_gradients(const Array& x, const RecurrentLayer& layer, const Array& dz, const Array& dback,
                           const Array& before, const RecurrentGradients& to);

  // --- softmax and losses -------------------------------------------------------------------------------------------
  /// Over `axis`, of x / temperature. A row that is all -inf gives 0 (softmax) or -inf (log_softmax).
  virtual void softmax(SoftmaxOp op, const Array& x, int axis, double temperature, const Array& y) = 0;
  virtual void softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, int axis, double temperature,
                                const Array& dx) = 0;
  /// loss[r] = lse[r] - logits[r, target[r]], lse[r] = log sum exp of row r; logits [rows, cols], target [rows] (i32, i64). Where
  /// the target is `ignore`: 0. loss [rows]; or [], the mean of the other rows: then lse [rows + 1] ends with their number.
  /// dlogits [rows, cols], or null: the gradient of that mean, or of the sum of all losses, (softmax(logits) - (c == target[r])) /
  /// number; 0 in rows that are ignored or all -inf.
  virtual void cross_entropy(const Array& logits, const Array& target, std::int64_t ignore, const Array& loss,
                             const Array& lse, const Array* dlogits) = 0;
  /// That gradient times dloss, in place: [rows], strided, or [], that of the mean. Rows that are ignored or all -inf stay 0.
  virtual void cross_entropy_scale(const Array& lse, const Array& target, std::int64_t ignore, const Array& dloss,
                                   const Array& dlogits) = 0;

  // --- rows by index ------------------------------------------------------------------------------------------------
  /// y[i, :] = table[index[i], :]; table [rows, width] any dtype, index [n] (i32, i64), y [n, width].
  virtual void take_rows(const Array& table, const Array& index, const Array& y) = 0;
  /// table[index[i], :] += y[i, :], in ascending order of i.
  virtual void add_rows(const Array& y, const Array& index, const Array& table) = 0;

  /// y[.., i, ..] = x[.., index[.., i, ..], ..] along `axis`; index (i32, i64) has y's shape, and x's but for `axis`. Any dtype.
  virtual void gather(const Array& x, const Array& index, int axis, const Array& y) = 0;
  /// x[.., index[.., i, ..], ..] += y[.., i, ..], in ascending order of i.
  virtual void scatter_add(const Array& y, const Array& index, int axis, const Array& x) = 0;

  /// Sparse rows: segment s of (index, weight) is row s of a matrix. y[s, :] = sum of weight[j] table[index[j], :] over the j
  /// of segment s, ascending, divided by the segment's length if `mean`. weight null: ones. table [rows, width],
  /// index [total] (i32, i64), weight [total], y [count, width].
  virtual void segment_gather(const Array& table, const Array& index, const Array* weight, const Segments& segments,
                              bool mean, const Array& y) = 0;
  /// dweight[j] = dot(table[index[j], :], dy[s, :]), divided as above.
  virtual void segment_gather_backward_weight(const Array& table, const Array& index, const Array& dy,
                                              const Segments& segments, bool mean, const Array& dweight) = 0;
  /// dtable[index[j], :] += weight[j] dy[s, :] in ascending order of j.
  virtual void segment_gather_backward_table(const Array& dy, const Array& index, const Array* weight,
                                             const Segments& segments, bool mean, const Array& dtable) = 0;
  /// MurmurHash3_x64_128 of the bytes of each row of keys [n, words] (i64): y [n, 4] (i64), 32 bits each, the lowest first.
  virtual void murmur3(const Array& keys, std::uint32_t seed, const Array& y) = 0;

  // --- segments (ragged) --------------------------------------------------------------------------------------------
  /// y[s, :] = op over the rows of segment s; x [total, width], y [count, width]; which as in reduce, counted from the
  /// segment's first row, -1 if it is empty.
  /// Empty: sum, mean 0; prod 1; max -inf; min +inf.
  virtual void segment_reduce(ReduceOp op, const Array& x, const Segments& segments, const Array& y,
                              const Array* which) = 0;
  /// y[r, :] = x[s, :] for each row r of segment s, divided by the segment's length if `mean`.
  virtual void segment_broadcast(const Array& x, const Segments& segments, bool mean, const Array& y) = 0;
  /// dx [total, width] = 0 but dx[offsets[s] + which[s, j], j] = dy[s, j].
  virtual void segment_select_backward(const Array& dy, const Array& which, const Segments& segments,
                                       const Array& dx) = 0;
  /// As scan, down each column of each segment; x, y [total, width].
  virtual void segment_scan(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                            bool exclusive, const Array& y) = 0;
  /// As sort with all of each segment, down each column; which counts from the segment's first row.
  virtual void segment_sort(const Array& x, const Segments& segments, bool descending, const Array& y,
                            const Array& which) = 0;
  /// y[r, j] = x[r + j - before] where that row is of r's segment, else 0; x [total, width], y [total, window, width].
  virtual void segment_window(const Array& x, const Segments& segments, std::int64_t before, const Array& y) = 0;
  virtual void segment_window_backward(const Array& dy, const Segments& segments, std::int64_t before,
                                       const Array& dx) = 0;
  /// Softmax down each column of each segment; x, y [total, width].
  virtual void segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, const Array& y) = 0;
  virtual void segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                        const Array& dx) = 0;
  /// y [count, length, width] = rows of each segment, then `padding`; any dtype; length >= max_length.
  virtual void segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) = 0;
  /// The reverse: y [total, width] from x [count, length, width].
  virtual void segment_unpad(const Array& x, const Segments& segments, const Array& y) = 0;

  // --- optimisers, over flat buffers w, g, ... of one size ------------------------------------------------------------
  /// momentum may be null when all ranges have momentum 0.
  virtual void sgd(const SgdRange* ranges, std::int64_t count, const Array& w, const Array& g,
                   const Array* momentum) = 0;
  virtual void adam(const AdamRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& m,
                    const Array& v) = 0;
  /// `average` and `momentum` may be null when all ranges leave them out.
  virtual void rmsprop(const RmspropRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& v,
                       const Array* average, const Array* momentum) = 0;
  virtual void adagrad(const AdagradRange* ranges, std::int64_t count, const Array& w, const Array& g,
                       const Array& sum) = 0;
  /// average = decay average + (1 - decay) w.
  virtual void ema(const Array& w, double decay, const Array& average) = 0;
  /// sums[i] (on the host) = the sum of the squares of range i of x (bf16 and f16 too), squared and added up in double, in an
  /// order that the range's size decides. Waits for them.
  virtual void sums_of_squares(const FlatRange* ranges, std::int64_t count, const Array& x, double* sums) = 0;

  // --- random numbers with rejection: element i has the 64 blocks from state.counter + 64 i on (core/scalar/rejection.h) ------
  /// y[i] is drawn from the standard gamma distribution of shape alpha[i] (Marsaglia and Tsang, 2000); f64.
  virtual void random_gamma(const Array& alpha, const PhiloxState& state, const Array& y) = 0;
  /// y[i] is drawn from Poisson's distribution of mean rate[i]; f64.
  virtual void random_poisson(const Array& rate, const PhiloxState& state, const Array& y) = 0;

 protected:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
};

/// The backend of a device. Throws DeviceError if this build or this machine has none, saying what is missing.
REEL_API Ops& backend(Device device, SourceLocation where = {});

}  // namespace reel
