// All steps of a recurrent layer backward, a few sequences a thread as forward. The gradients of the weights are sums over parts of
// the sequences, cut by size, whose rows lie side by side: mostly a core reads what it wrote.

#include "reel/backends/cpu/recurrent.h"

namespace reel::cpu::REEL_CPU_ISA {

using namespace recurrence;

namespace {

/// Parts of the sequences over which gradients of weights are summed.
constexpr int64_t kMostParts = 8;

/// Rows of a weight whose gradients are a thread's unit of work.
constexpr int64_t kWeightRows = 64;

void clear(const Array& x) { __builtin_memset(x.data, 0, static_cast<std::size_t>(x.size) * size_of(x.dtype)); }
/// The parts of the sequences. A part's rows lie side by side, a step's after another's, the last step's first.
struct Parts {
  Steps steps;
  int64_t sequences, count;

  int64_t first(int64_t part) const { return sequences * part / count; }
  /// Of a part's pieces.
  int64_t pieces() const { return ceil_div(ceil_div(sequences, count), kSequences); }
  Piece piece(int64_t part, int64_t i) const {
    const int64_t begin = first(part), n = first(part + 1) - begin;
    return {steps, begin + n * i / pieces(), begin + n * (i + 1) / pieces()};
  }
  /// Where a part's rows begin: behind those of all sequences before.
  int64_t begin(int64_t part) const {
    if (steps.steps.offsets == nullptr) return steps.count() * first(part);
    int64_t rows = 0;
    for (int64_t t = 0; t < steps.count(); ++t) rows += steps.rows(t, 0, first(part));
    return rows;
  }
};

/// All rows' gradients of the input's part of the gates and of the recurrent part, one array but for gru; the states before each
/// row; the rows of x. All in the parts' order.
struct OfRows {
  Array dz, dback, before, x;
};

/// The gradients of the weights and biases: sums of parts, of which the first go where the gradients go.
class WeightSums {
 public:
  WeightSums(CpuOps& ops, const Parts& parts, const OfRows& rows, const RecurrentGradients& to)
      : ops_(ops),
        parts_(parts),
        rows_(rows),
        to_(to),
        gates_(rows.dz.shape[1]),
        blocks_(ceil_div(gates_, kWeightRows)),
        more_(parts.count - 1),
        room_(rows.dz.dtype, more_ * gates_ * (rows.x.shape[1] + rows.before.shape[1]) + 2 * parts.count * gates_),
        input_(room_.take(more_ * gates_, rows.x.shape[1])),
        recurrent_(room_.take(more_ * gates_, rows.before.shape[1])),
        bias_(room_.take(parts.count, gates_)),
        back_bias_(room_.take(parts.count, gates_)) {}

  int64_t units() const { return parts_.count * blocks_; }
  /// A part's sums of some of the weights' rows.
  void compute(int64_t unit) const {
    const int64_t part = unit / blocks_, block = unit % blocks_;
    const int64_t first = gates_ * block / blocks_, count = gates_ * (block + 1) / blocks_ - first;
    const int64_t begin = parts_.begin(part), rows = parts_.begin(part + 1) - begin;
    const auto weight = [&](const Array& of_gates, const Array& of_rows, const GradientSink& sink,
                            const Array& others) {
      if (!sink.wanted()) return;
      const Array b = rows_of(of_rows, begin, rows);
      const Array sum =
          part == 0 ? rows_of(sink.to, first, count) : rows_of(others, (part - 1) * gates_ + first, count);
      ops_.gemm({.m = count,
                 .n = b.shape[1],
                 .k = rows,
                 .dtype = b.dtype,
                 .trans_a = true,
                 .a = columns(rows_of(of_gates, begin, rows), first, count).data,
                 .b = b.data,
                 .c = sum.data,
                 .lda = gates_,
                 .ldb = b.shape[1],
                 .ldc = b.shape[1],
                 .accumulate = part == 0 && sink.add});
    };
    const auto bias = [&](const Array& of_gates, const Array& sums) {
      ops_.reduce(ReduceOp::sum, columns(rows_of(of_gates, begin, rows), first, count),
                  columns(rows_of(sums, part, 1), first, count), nullptr);
    };
    weight(rows_.dz, rows_.x, to_.input, input_);
    weight(rows_.dback, rows_.before, to_.recurrent, recurrent_);
    if (to_.input_bias.wanted() || (!two_biases() && to_.recurrent_bias.wanted())) bias(rows_.dz, bias_);
    if (two_biases() && to_.recurrent_bias.wanted()) bias(rows_.dback, back_bias_);
  }
  /// In the order of the parts.
  void join() const {
    join(to_.input, input_);
    join(to_.recurrent, recurrent_);
    join_bias(to_.input_bias, bias_);
    join_bias(to_.recurrent_bias, two_biases() ? back_bias_ : bias_);
  }

 private:
  static Array columns(Array x, int64_t first, int64_t count) {
    x.data = x.as<char>() + first * static_cast<int64_t>(size_of(x.dtype));
    x.contiguous = count == x.shape[1];
    x.shape[1] = count;
    x.size = x.shape[0] * count;
    return x;
  }
  /// Elements of what lies side by side.
  static Array elements(const Array& x, int64_t first, int64_t count) {
    return matrix(x.as<char>() + first * static_cast<int64_t>(size_of(x.dtype)), x.dtype, 1, count);
  }
  bool two_biases() const { return rows_.dback.data != rows_.dz.data; }
  void join(const GradientSink& sink, const Array& others) const {
    if (!sink.wanted() || more_ == 0) return;
    const int64_t size = sink.to.size;
    parallel_for(size, kGrain / 4, [&](int64_t begin, int64_t end) {
      for (int64_t part = 0; part < more_; ++part)
        ops_.accumulate(elements(others, part * size + begin, end - begin), elements(sink.to, begin, end - begin));
    });
  }
  void join_bias(const GradientSink& sink, const Array& of_parts) const {
    if (!sink.wanted()) return;
    const Array here = elements(sink.to, 0, gates_);
    for (int64_t part = 0; part < parts_.count; ++part) {
      const Array sum = rows_of(of_parts, part, 1);
      if (part > 0 || sink.add) ops_.accumulate(sum, here);
      else copy_rows(sum, here);
    }
  }

  CpuOps& ops_;
  const Parts& parts_;
  const OfRows& rows_;
  const RecurrentGradients& to_;
  int64_t gates_, blocks_, more_;  // blocks of the weights' rows; parts but the first
  Room room_;
  Array input_, recurrent_, bias_, back_bias_;
};

}  // namespace

void CpuOps::recurrent_backward(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer,
                                const Array& h0, const Array* c0, const Array& y, const Array* states,
                                const Array& saved, const Array* back, const Array* dy, const Array* dh,
                                const Array* dc, const RecurrentGradients& to) {
  const int64_t total = x.shape[0], in = x.shape[1], hidden = h0.shape[1], gates = saved.shape[1];
  const bool lstm = recurrence.op == CellOp::lstm, gru = recurrence.op == CellOp::gru;
  const bool apart = is_apart(recurrence, x, gates, 2 * kSequences);
  const Parts parts{Steps(recurrence), h0.shape[0], apart ? 1 : min(kMostParts, h0.shape[0] / kSequences)};

  Room room(x.dtype, total * ((gru ? 2 : 1) * gates + hidden + (apart ? 0 : in)));
  const Array dz = room.take(total, gates), dback = gru ? room.take(total, gates) : dz;
  const Array before = room.take(total, hidden), x_rows = apart ? x : room.take(total, in);

  const auto go_back = [&](int64_t part, const Piece& piece) {
    const int64_t n = piece.count(), part_first = parts.first(part);
    Room states_room(x.dtype, n * 3 * hidden);
    const Array grad = states_room.take(n, hidden), cell_grad = states_room.take(n, hidden);
    const Array cell_before = states_room.take(n, hidden);
    const auto start = [&](const Array* from, const Array& here) {
      if (from != nullptr) copy_rows(rows_of(*from, piece.first, n), here);
      else clear(here);
    };
    start(dh, grad);
    start(dc, cell_grad);

    Rows grad_rows(grad), cell_grad_rows(cell_grad), cell_before_rows(cell_before), before_rows(before);
    Rows dz_rows(dz), dback_rows(dback), saved_rows(saved), back_rows(back), y_rows(y), earlier_y(y), dy_rows(dy);
    Rows state_rows(states), earlier_states(states), of_x(x), gathered(x_rows), dx_rows(to.x.to);

    int64_t part_row = parts.begin(part);
    for (int64_t i = piece.steps.count(); i-- > 0;) {
      const int64_t t = piece.steps.at(i), rows = piece.rows_in(t), row = piece.steps.begin(t) + piece.first;
      const int64_t at = apart ? row : part_row + piece.first - part_first;
      part_row += piece.steps.rows(t, part_first, parts.first(part + 1));
      if (rows == 0) continue;
      const Array &from = grad_rows.at(0, rows), &cell_from = cell_grad_rows.at(0, rows);
      const Array& h_prev = before_rows.at(at, rows);
      const bool all_known = piece.known_before(i, rows) == rows;
      const Array& c_prev =
          lstm && all_known ? earlier_states.at(piece.row_before(i), rows) : cell_before_rows.at(0, rows);
      const Array &of_gates = dz_rows.at(at, rows), &of_back = dback_rows.at(at, rows);
      const Array& kept = saved_rows.at(row, rows);
      const Array& r = gru ? back_rows.at(row, rows) : kept;
      const Array* const c = lstm ? &state_rows.at(row, rows) : nullptr;
      if (dy != nullptr) accumulate(dy_rows.at(row, rows), from);
      piece.copy_previous(i, rows, earlier_y, h0, h_prev);
      if (lstm && !all_known) piece.copy_previous(i, rows, earlier_states, *c0, c_prev);
      cell_backward(recurrence.op, r, h_prev, lstm ? &c_prev : nullptr, y_rows.at(row, rows), c, kept, from,
                    lstm ? &cell_from : nullptr, of_gates, of_back, from, lstm ? &cell_from : nullptr);
      gemm(added(product(of_back, layer.recurrent, false, from)));
      if (apart) continue;
      copy_rows(of_x.at(row, rows), gathered.at(at, rows));
      if (!to.x.wanted()) continue;
      Gemm dx = product(of_gates, layer.input, false, dx_rows.at(row, rows));
      dx.accumulate = to.x.add;
      gemm(dx);
    }
    if (to.h0 != nullptr) copy_rows(grad, rows_of(*to.h0, piece.first, n));
    if (to.c0 != nullptr) copy_rows(cell_grad, rows_of(*to.c0, piece.first, n));
  };
  const int64_t pieces = parts.pieces(), all_pieces = parts.count * pieces;
  parallel_for(all_pieces, is_small(recurrence, h0, gates) ? all_pieces : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) go_back(i / pieces, parts.piece(i / pieces, i % pieces));
  });
  if (apart) return recurrent_gradients(x, layer, dz, dback, before, to);
  const OfRows of_rows{dz, dback, before, x_rows};
  const WeightSums sums(*this, parts, of_rows, to);
  parallel_for(sums.units(), is_small(recurrence, h0, gates) ? sums.units() : 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) sums.compute(unit);
  });
  sums.join();
}

}  // namespace reel::cpu::REEL_CPU_ISA
