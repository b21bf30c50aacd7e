#pragma once

#include <cstddef>
#include <cstdint>

#include "reel/core/array.h"
#include "reel/core/descriptors.h"
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

/// The last two, of floating numbers, are for `reduce` alone.
enum class ReduceOp : std::uint8_t { sum, mean, max, min, prod, sum_of_squares, mean_of_squares };
/// Means are sums that are divided at the end.
REEL_INLINE constexpr bool is_mean(ReduceOp op) { return op == ReduceOp::mean || op == ReduceOp::mean_of_squares; }
REEL_INLINE constexpr bool is_of_squares(ReduceOp op) {
  return op == ReduceOp::sum_of_squares || op == ReduceOp::mean_of_squares;
}
enum class ScanOp : std::uint8_t { sum, prod };
enum class GateOp : std::uint8_t { sigmoid, gelu, silu };
enum class PoolOp : std::uint8_t { max, average };
enum class SoftmaxOp : std::uint8_t { softmax, log_softmax };
enum class RandomOp : std::uint8_t { uniform, normal };

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
  /// uniform: [0, 1) with 24 (f32) or 53 (f64) bits; normal: Box-Muller on pairs of lanes.
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
  /// dx = dy f'(saved), where saved is x or y as the op's list entry says. One shape; dy strided, the others contiguous.
  virtual void unary_backward(UnaryOp op, const Array& saved, const Array& dy, const Array& dx) = 0;
  /// y = f(a, b); both of y's shape (broadcast by strides of 0), strided, of one dtype; comparisons give bool8. A scalar
  /// takes the other side's dtype. Not both sides are scalars.
  virtual void binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) = 0;
  /// da = dy f_a(a, b), db = dy f_b(a, b), each null if not wanted: of mul, maximum, minimum. dy, da, db and the sides that are
  /// arrays contiguous, of one shape, f32 or f64.
  virtual void binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Array& dy, const Array* da,
                               const Array* db) = 0;
  /// y[i] = a[i] where condition[i] (bool8) is not 0, else b[i]: the bits of any dtype. condition has y's shape, a and b have it or
  /// one element.
  virtual void choose(const Array& condition, const Array& a, const Array& b, const Array& y) = 0;
  /// y += x; both strided.
  virtual void accumulate(const Array& x, const Array& y) = 0;
  /// y = f(x; parameters), with as many parameters as the op's list entry says; x strided.
  virtual void parametric(ParametricOp op, const double* parameters, const Array& x, const Array& y) = 0;
  /// dx = dy f'(x; parameters). One shape; dy strided, the others contiguous.
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
  /// An empty axis gives 0 for sums, 1 for prod, NaN for means, -inf / +inf for max / min. Integers: sum, max, min in their
  /// own dtype, prod of i64. Squares are rounded before they are added: where x is contiguous, the bits are those of the sum of
  /// their array.
  virtual void reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) = 0;

  /// Along `axis`, from its end if `reverse`, with s before the first element: sum: s = x[i] + factor[i] s from 0, where
  /// `factor` (null: ones) has x's shape; prod: s = x[i] s from 1, factor null. y[i] is the s after element i, or before it
  /// if `exclusive`. f32 (s is kept in f64), f64, i64 (factor null). All contiguous.
  virtual void scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                    const Array& y) = 0;
  /// The gradients of scan in f32, made in f64 and rounded once; `factor` and its gradient are null for prod alone. All contiguous.
  virtual void scan_backward(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                             const ScanGradients& gradients) = 0;

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
  /// Solves op(a) x = b for triangular a [batch, n, n], b and x [batch, n, k], which may be the same; only that triangle is read.
  virtual void triangular_solve(const Array& a, const Array& b, bool upper, bool transposed, bool unit,
                                const Array& x) = 0;
  /// p a = l u for a [batch, n, n], with partial pivoting. lu [batch, n, n] is l below the diagonal, on which l's elements are
  /// 1, and u; row i of p a is row rows[i] of a (i64 [batch, n]). For each matrix the determinant's sign and the logarithm of
  /// its magnitude (both [batch]; 0 and -inf if singular).
  virtual void lu(const Array& a, const Array& lu, const Array& rows, const Array& sign, const Array& logdet) = 0;

  // --- normalisation ------------------------------------------------------------------------------------------------
  /// Each row of x [rows, n]: y = (x - mean) rstd scale + shift with rstd = 1 / sqrt(variance + epsilon) of the row; not
  /// `center`: mean = 0 (root mean square). scale, shift [n] or null; mean (null unless center), rstd [rows].
  virtual void normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift,
                         const Array& y, const Array* mean, const Array& rstd) = 0;
  /// From dy; dscale, dshift may be null: not wanted. dx has as many elements as x, in any contiguous shape.
  virtual void normalize_backward(const Array& x, bool center, const Array* scale, const Array* mean, const Array& rstd,
                                  const Array& dy, const GradientSink& dx, const Array* dscale,
                                  const Array* dshift) = 0;
  /// Images x, y [n, channels, length], y without gaps: y = (x - mean) rstd scale + shift, where mean, the biased variance and
  /// rstd = 1 / sqrt(variance + epsilon) are of each of `groups` runs of channels of an image, which has no gaps in x either, or,
  /// where groups is 0, of a channel of all images, of which x's last axis has no gaps. scale, shift [channels] or null; mean,
  /// rstd, variance (null: not wanted) [n groups] or [channels], not written where x is empty.
  virtual void normalize_channels(const Array& x, std::int64_t groups, double epsilon, const Array* scale,
                                  const Array* shift, const Array& y, const Array& mean, const Array& rstd,
                                  const Array* variance) = 0;
  /// From dy, without gaps; dscale, dshift [channels] may be null: not wanted. dx has as many elements as x, without gaps.
  virtual void normalize_channels_backward(const Array& x, std::int64_t groups, const Array* scale, const Array& mean,
                                           const Array& rstd, const Array& dy, const GradientSink& dx,
                                           const Array* dscale, const Array* dshift) = 0;
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
  /// Memory linear in the number of rows. Deterministic. dq, dk, dv are strided, but the elements of a row are adjacent.
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

  /// y[.., i, ..] = x[.., index[.., i, ..], ..] along `axis`; index (i32, i64) has y's shape, and x's but for `axis`, or, if only
  /// axes of size 1 lie behind `axis`, is [n], the same for all lines. Any dtype.
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

  // --- padding ------------------------------------------------------------------------------------------------------
  /// y = x and what `padding` puts around it; x strided, but contiguous along its last axis; any dtype.
  virtual void pad(const Array& x, const Padding& padding, const Array& y) = 0;
  /// dx = the sum, for each element, of dy at all places where it stands, in an order of its own; f32, f64; not for zeros.
  virtual void pad_backward(const Array& dy, const Padding& padding, const Array& dx) = 0;

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
  virtual void segment_scan_backward(ScanOp op, const Array& x, const Array* factor, const Segments& segments,
                                     bool reverse, bool exclusive, const ScanGradients& gradients) = 0;
  /// As sort with all of each segment, down each column; which counts from the segment's first row.
  virtual void segment_sort(const Array& x, const Segments& segments, bool descending, const Array& y,
                            const Array& which) = 0;
  /// y[r, j] = x[r + j - before] where that row is of r's segment, else 0; x [total, width], y [total, window, width].
  virtual void segment_window(const Array& x, const Segments& segments, std::int64_t before, const Array& y) = 0;
  virtual void segment_window_backward(const Array& dy, const Segments& segments, std::int64_t before,
                                       const Array& dx) = 0;
  /// Softmax of x / temperature down each column of each segment; x, y [total, width].
  virtual void segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, double temperature,
                               const Array& y) = 0;
  virtual void segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                        double temperature, const Array& dx) = 0;
  /// y [count, length, width] = rows of each segment, then `padding`; any dtype; length >= max_length.
  virtual void segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) = 0;
  /// The reverse: y [total, width] from x [count, length, width].
  virtual void segment_unpad(const Array& x, const Segments& segments, const Array& y) = 0;

  // --- optimisers, over flat buffers w, g, ... of one size; ema may be null --------------------------------------------
  /// momentum may be null when all ranges have momentum 0.
  virtual void sgd(const SgdRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array* momentum,
                   const WeightAverage* ema = nullptr) = 0;
  virtual void adam(const AdamRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& m,
                    const Array& v, const WeightAverage* ema = nullptr) = 0;
  /// `average` and `momentum` may be null when all ranges leave them out.
  virtual void rmsprop(const RmspropRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& v,
                       const Array* average, const Array* momentum, const WeightAverage* ema = nullptr) = 0;
  virtual void adagrad(const AdagradRange* ranges, std::int64_t count, const Array& w, const Array& g, const Array& sum,
                       const WeightAverage* ema = nullptr) = 0;
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
