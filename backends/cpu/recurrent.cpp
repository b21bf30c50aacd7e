// All steps of a recurrent layer. Sequences do not depend on each other: a thread takes a few of them through all steps, so that
// nothing goes from core to core in between, and the weights stay in its second-level cache.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/transpose.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// Weights up to which a layer is computed here: what a core keeps near. Beyond, products are shared out step by step.
constexpr int64_t kWeightBytes = 256 * 1024;

/// Sequences of a piece: a product of fewer rows would wait for its weights.
constexpr int64_t kSequences = 8;

Array rows_of(void* data, DType dtype, int64_t rows, int64_t width) {
  Array x;
  x.data = data;
  x.size = rows * width;
  x.shape = Shape{rows, width};
  x.strides[0] = width;
  x.strides[1] = 1;
  x.dtype = dtype;
  return x;
}

/// The rows of each step, in the order in which steps are computed.
struct Steps {
  const Segments& steps;
  bool reverse;

  REEL_INLINE int64_t at(int64_t i) const { return reverse ? steps.count - 1 - i : i; }
  REEL_INLINE int64_t begin(int64_t t) const { return steps.offsets ? steps.offsets[t] : t * steps.max_length; }
  REEL_INLINE int64_t rows(int64_t t) const {
    return steps.offsets ? steps.offsets[t + 1] - steps.offsets[t] : steps.max_length;
  }
};

/// Some sequences' rows [rows, width] of matrices of which a row is as wide as the state's, or as all gates.
template <class T>
struct Piece {
  const Recurrence& recurrence;
  DType dtype;
  int64_t first, last;    // sequences
  int64_t hidden, gates;  // width of the state, of all gates
  int64_t count = last - first;
  Steps steps{recurrence.steps, recurrence.reverse};

  /// How many of the sequences have step t.
  REEL_INLINE int64_t rows_in(int64_t t) const { return min(last, steps.rows(t)) - first; }
  REEL_INLINE T* at(const Array& x, int64_t row, int64_t width) const { return x.as<T>() + row * width; }
  REEL_INLINE Array states(const Array& x, int64_t row, int64_t rows) const {
    return rows_of(at(x, row, hidden), dtype, rows, hidden);
  }
  REEL_INLINE Array all_gates(const Array& x, int64_t row, int64_t rows) const {
    return rows_of(at(x, row, gates), dtype, rows, gates);
  }
  REEL_INLINE void copy_states(const T* from, T* to, int64_t rows) const {
    __builtin_memcpy(to, from, static_cast<std::size_t>(rows * hidden) * sizeof(T));
  }
  REEL_INLINE void clear_states(T* to) const {
    __builtin_memset(to, 0, static_cast<std::size_t>(count * hidden) * sizeof(T));
  }
  /// The states before the i-th step, of sequences that have it: those after the step before, or the initial ones.
  REEL_INLINE void copy_previous(int64_t i, int64_t rows, const Array& after, const Array& initial, T* to) const {
    int64_t known = 0;
    if (i > 0) {
      const int64_t earlier = steps.at(i - 1);
      known = max<int64_t>(0, min(rows, rows_in(earlier)));
      if (known > 0) copy_states(at(after, steps.begin(earlier) + first, hidden), to, known);
    }
    if (known < rows) copy_states(at(initial, first + known, hidden), to + known * hidden, rows - known);
  }
};

/// f(piece) for pieces of the sequences, in parallel where that pays.
template <class T, class F>
REEL_INLINE void for_each_piece(const Recurrence& recurrence, const Array& h0, int64_t gates, F f) {
  const int64_t n = h0.shape[0], hidden = h0.shape[1];
  const bool small = recurrence.steps.total * gates * hidden <= 8 * kGrain;
  parallel_for(n, small ? n : kSequences, [&](int64_t begin, int64_t end) {
    f(Piece<T>{
        .recurrence = recurrence, .dtype = h0.dtype, .first = begin, .last = end, .hidden = hidden, .gates = gates});
  });
}

}  // namespace

bool CpuOps::fuses_steps(DType dtype, int64_t hidden) const {
  return hidden > 0 && 4 * hidden * hidden * static_cast<int64_t>(size_of(dtype)) <= kWeightBytes;
}

void CpuOps::recurrent(const Recurrence& recurrence, const Array& x, const Array& weight, const Array* bias,
                       const Array& h0, const Array* c0, const Array& h, const Array* c, const Array& y,
                       const Array* states, const Array* saved, const Array* back) {
  const int64_t hidden = h0.shape[1], gates = x.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    const Scratch turned(sizeof(T) * gates * hidden);  // the weights [hidden, gates]
    transpose_block(weight.as<T>(), hidden, turned.as<T>(), gates, hidden, gates);

    for_each_piece<T>(recurrence, h0, gates, [&](const Piece<T>& piece) {
      const int64_t n = piece.count;
      const Scratch memory(sizeof(T) * n * 2 * (hidden + gates));
      T *const now = memory.as<T>(), *const cell_now = now + n * hidden;
      T *const part = cell_now + n * hidden, *const room = part + n * gates;
      piece.copy_states(piece.at(h0, piece.first, hidden), now, n);
      if (c0 != nullptr) piece.copy_states(piece.at(*c0, piece.first, hidden), cell_now, n);

      for (int64_t i = 0; i < recurrence.steps.count; ++i) {
        const int64_t t = piece.steps.at(i), rows = piece.rows_in(t);
        if (rows <= 0) continue;
        const int64_t row = piece.steps.begin(t) + piece.first;
        const Array r = back != nullptr ? piece.all_gates(*back, row, rows) : rows_of(part, x.dtype, rows, gates);
        const Array kept = saved != nullptr ? piece.all_gates(*saved, row, rows) : rows_of(room, x.dtype, rows, gates);
        const Array before = rows_of(now, x.dtype, rows, hidden),
                    cell_before = rows_of(cell_now, x.dtype, rows, hidden);
        const Array after = piece.states(y, row, rows);
        gemm({.m = rows,
              .n = gates,
              .k = hidden,
              .dtype = x.dtype,
              .a = now,
              .b = turned.as<T>(),
              .c = r.data,
              .lda = hidden,
              .ldb = gates,
              .ldc = gates,
              .bias = bias != nullptr ? bias->data : nullptr});
        if (recurrence.op == CellOp::lstm) {
          const Array cell_after = states != nullptr ? piece.states(*states, row, rows) : cell_before;
          cell(recurrence.op, piece.all_gates(x, row, rows), r, before, &cell_before, after, &cell_after, kept);
          if (states != nullptr) piece.copy_states(cell_after.template as<T>(), cell_now, rows);
        } else {
          cell(recurrence.op, piece.all_gates(x, row, rows), r, before, nullptr, after, nullptr, kept);
        }
        piece.copy_states(after.template as<T>(), now, rows);
      }
      piece.copy_states(now, piece.at(h, piece.first, hidden), n);
      if (c != nullptr) piece.copy_states(cell_now, piece.at(*c, piece.first, hidden), n);
    });
  });
}

void CpuOps::recurrent_backward(const Recurrence& recurrence, const Array& weight, const Array& h0, const Array* c0,
                                const Array& y, const Array* states, const Array& saved, const Array* back,
                                const Array* dy, const Array* dh, const Array* dc, const Array& dx, const Array& dback,
                                const Array& before, const Array* dh0, const Array* dc0) {
  const int64_t hidden = h0.shape[1], gates = dx.shape[1];
  dispatch_floating(y.dtype, [&]<class T>() {
    for_each_piece<T>(recurrence, h0, gates, [&](const Piece<T>& piece) {
      const int64_t n = piece.count;
      const Scratch memory(sizeof(T) * n * 3 * hidden);
      T *const grad = memory.as<T>(), *const cell_grad = grad + n * hidden, *const cell_before = cell_grad + n * hidden;
      const auto start = [&](const Array* from, T* to) {
        if (from != nullptr) piece.copy_states(piece.at(*from, piece.first, hidden), to, n);
        else piece.clear_states(to);
      };
      start(dh, grad);
      start(dc, cell_grad);

      for (int64_t i = recurrence.steps.count; i-- > 0;) {
        const int64_t t = piece.steps.at(i), rows = piece.rows_in(t);
        if (rows <= 0) continue;
        const int64_t row = piece.steps.begin(t) + piece.first;
        const Array from = rows_of(grad, y.dtype, rows, hidden), cell_from = rows_of(cell_grad, y.dtype, rows, hidden);
        const Array h_prev = piece.states(before, row, rows), to = piece.all_gates(dx, row, rows);
        const Array to_back = piece.all_gates(dback, row, rows), kept = piece.all_gates(saved, row, rows);
        const Array r = back != nullptr ? piece.all_gates(*back, row, rows) : kept;
        if (dy != nullptr) {
          const T* const added = piece.at(*dy, row, hidden);
          for (int64_t k = 0; k < rows * hidden; ++k) grad[k] += added[k];
        }
        piece.copy_previous(i, rows, y, h0, h_prev.template as<T>());
        if (recurrence.op == CellOp::lstm) {
          piece.copy_previous(i, rows, *states, *c0, cell_before);
          const Array c_prev = rows_of(cell_before, y.dtype, rows, hidden), c = piece.states(*states, row, rows);
          cell_backward(recurrence.op, r, h_prev, &c_prev, piece.states(y, row, rows), &c, kept, from, &cell_from, to,
                        to_back, from, &cell_from);
        } else {
          cell_backward(recurrence.op, r, h_prev, nullptr, piece.states(y, row, rows), nullptr, kept, from, nullptr, to,
                        to_back, from, nullptr);
        }
        gemm({.m = rows,
              .n = hidden,
              .k = gates,
              .dtype = y.dtype,
              .a = to_back.data,
              .b = weight.data,
              .c = grad,
              .lda = gates,
              .ldb = hidden,
              .ldc = hidden,
              .accumulate = true});
      }
      if (dh0 != nullptr) piece.copy_states(grad, piece.at(*dh0, piece.first, hidden), n);
      if (dc0 != nullptr) piece.copy_states(cell_grad, piece.at(*dc0, piece.first, hidden), n);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
