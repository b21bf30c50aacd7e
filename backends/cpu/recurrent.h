#pragma once

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

/// What both directions of a recurrent layer need: rows of matrices, and sequences' steps. Element types are cpu_ops' matter.
namespace reel::cpu::REEL_CPU_ISA::recurrence {

/// Weights up to which a layer is computed here: what a core keeps near. Beyond, products are shared out step by step.
inline constexpr int64_t kWeightBytes = 256 * 1024;

/// Sequences of a piece, whose rows of a step stay in the first cache: a product of fewer rows would wait for its weights.
inline constexpr int64_t kSequences = 8;

inline Array matrix(void* data, DType dtype, int64_t rows, int64_t width) {
  Array x;
  x.data = data;
  x.size = rows * width;
  x.shape = Shape{rows, width};
  x.strides[0] = width;
  x.strides[1] = 1;
  x.dtype = dtype;
  return x;
}

/// Rows first .. first + count - 1.
__attribute__((noinline)) inline Array rows_of(const Array& x, int64_t first, int64_t count) {
  const int64_t width = x.shape[1];
  return matrix(x.as<char>() + first * width * static_cast<int64_t>(size_of(x.dtype)), x.dtype, count, width);
}

/// Rows of a matrix that change from step to step: an Array made anew for each would take longer than a small product.
class Rows {
 public:
  __attribute__((noinline)) explicit Rows(const Array& all) : rows_(all), first_(all.as<char>()) {}
  explicit Rows(const Array* all) : Rows(all != nullptr ? *all : Array()) {}
  const Array& at(int64_t first, int64_t count) {
    const int64_t width = rows_.shape[1];
    rows_.data = first_ + first * width * static_cast<int64_t>(size_of(rows_.dtype));
    rows_.size = count * width;
    rows_.shape[0] = count;
    return rows_;
  }

 private:
  Array rows_;
  char* first_;
};

inline void copy_rows(const Array& from, const Array& to) {
  __builtin_memcpy(to.data, from.data, static_cast<std::size_t>(from.size) * size_of(from.dtype));
}

/// Working memory, handed out matrix by matrix.
class Room {
 public:
  Room(DType dtype, int64_t elements)
      : dtype_(dtype), memory_(static_cast<std::size_t>(elements) * size_of(dtype)), next_(memory_.as<char>()) {}
  Array take(int64_t rows, int64_t width) {
    const Array x = matrix(next_, dtype_, rows, width);
    next_ += x.size * static_cast<int64_t>(size_of(dtype_));
    return x;
  }

 private:
  DType dtype_;
  Scratch memory_;
  char* next_;
};

/// c = a b + bias, or c += a b; b transposed if it is stored so.
inline Gemm product(const Array& a, const Array& b, bool trans_b, const Array& c) {
  return gemm_of(a, false, b, trans_b, c.data);
}
inline Gemm biased(Gemm gemm, const Array* bias) {
  if (bias != nullptr) gemm.bias = bias->data;
  return gemm;
}
inline Gemm added(Gemm gemm) {
  gemm.accumulate = true;
  return gemm;
}

/// The rows of each step, in the order in which steps are computed.
struct Steps {
  const Segments& steps;
  bool reverse;
  explicit Steps(const Recurrence& recurrence) : steps(recurrence.steps), reverse(recurrence.reverse) {}

  int64_t count() const { return steps.count; }
  int64_t at(int64_t i) const { return reverse ? steps.count - 1 - i : i; }
  int64_t begin(int64_t t) const { return steps.offsets ? steps.offsets[t] : t * steps.max_length; }
  int64_t rows(int64_t t) const { return steps.offsets ? begin(t + 1) - begin(t) : steps.max_length; }
  /// How many of sequences first .. last - 1 have step t: the first ones.
  int64_t rows(int64_t t, int64_t first, int64_t last) const { return max<int64_t>(0, min(last, rows(t)) - first); }
};

/// Sequences first .. last - 1.
struct Piece {
  Steps steps;
  int64_t first, last;
  int64_t count() const { return last - first; }
  int64_t rows_in(int64_t t) const { return steps.rows(t, first, last); }

  /// Where the rows of the step before the i-th begin, and how many of the i-th's sequences have one.
  int64_t row_before(int64_t i) const { return steps.begin(steps.at(i - 1)) + first; }
  int64_t known_before(int64_t i, int64_t rows) const { return i > 0 ? min(rows, rows_in(steps.at(i - 1))) : 0; }

  /// The states before the i-th step, of sequences that have it: those after the step before, or the initial ones.
  void copy_previous(int64_t i, int64_t rows, Rows& after, const Array& initial, const Array& to) const {
    const int64_t known = known_before(i, rows);
    if (known > 0) copy_rows(after.at(row_before(i), known), to);
    if (known < rows) copy_rows(rows_of(initial, first + known, rows - known), rows_of(to, known, rows - known));
  }
};

/// True if one thread does the layer sooner alone.
inline bool is_small(const Recurrence& recurrence, const Array& h0, int64_t gates) {
  return recurrence.steps.total * gates * h0.shape[1] <= 8 * kGrain;
}

/// True if the input's part of the gates, and its gradients, are products over all rows, rather than each piece's own: of fewer
/// rows a step than `few`, of inputs wider than what would go from core to core, or of more weights than stay near.
inline bool is_apart(const Recurrence& recurrence, const Array& x, int64_t gates, int64_t few) {
  const int64_t in = x.shape[1];
  return recurrence.steps.total < few * recurrence.steps.count || in > gates ||
         in * gates * static_cast<int64_t>(size_of(x.dtype)) > kWeightBytes;
}

}  // namespace reel::cpu::REEL_CPU_ISA::recurrence
