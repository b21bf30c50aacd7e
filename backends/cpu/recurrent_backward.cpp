// All steps of a recurrent layer backward, a few sequences a thread as forward. The gradients of the weights are sums over parts of
// the sequences, cut by size, whose rows lie side by side: mostly a core reads what it wrote.

#include "reel/backends/cpu/recurrent.h"
#include "reel/backends/cpu/recurrent_sums.h"

namespace reel::cpu::REEL_CPU_ISA {

using namespace recurrence;

namespace {

/// Parts of the sequences over which gradients of weights are summed.
constexpr int64_t kMostParts = 8;

void clear(const Array& x) { __builtin_memset(x.data, 0, static_cast<std::size_t>(x.size) * size_of(x.dtype)); }

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
