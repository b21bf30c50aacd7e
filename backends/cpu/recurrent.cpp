// All steps of a recurrent layer. Sequences do not depend on each other: a thread takes a few of them through all steps, so that
// nothing goes from core to core in between, and the weights stay in its second-level cache.

#include "reel/backends/cpu/recurrent.h"

namespace reel::cpu::REEL_CPU_ISA {

using namespace recurrence;

namespace {

/// Rows whose input's part of the gates is computed at a time, so that both stay near.
constexpr int64_t kInputRows = 64;

static_assert(kSequences <= kInputRows);

/// Rows of a share for which the weights are turned once more: that takes as long as some thirty rows.
constexpr int64_t kShareRows = 256;

/// f(begin, end) for shares of the sequences, in parallel where that pays: one for a thread, but up to four where some sequences
/// are longer than others.
template <class F>
void for_each_share(const Recurrence& recurrence, const Array& h0, int64_t gates, F f) {
  const int64_t n = h0.shape[0];
  const int64_t threads = detail::available_threads();
  const int64_t even = recurrence.steps.offsets == nullptr ? threads : recurrence.steps.total / kShareRows;
  const int64_t shares = max(threads, min(even, 4 * threads));
  parallel_for(n, is_small(recurrence, h0, gates) ? n : max(kSequences, ceil_div(n, shares)), f);
}

/// f(piece) for pieces of sequences begin .. end - 1.
template <class F>
void for_each_piece(const Recurrence& recurrence, int64_t begin, int64_t end, F f) {
  const int64_t pieces = ceil_div(end - begin, kSequences);
  for (int64_t i = 0; i < pieces; ++i)
    f(Piece{Steps(recurrence), begin + (end - begin) * i / pieces, begin + (end - begin) * (i + 1) / pieces});
}

}  // namespace

bool CpuOps::fuses_steps(DType dtype, int64_t hidden) const {
  return hidden > 0 && 4 * hidden * hidden * static_cast<int64_t>(size_of(dtype)) <= kWeightBytes;
}

void CpuOps::recurrent(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer, const Array& h0,
                       const Array* c0, const Array& h, const Array* c, const Array& y, const Array* states,
                       const Array* saved, const Array* back) {
  const int64_t total = x.shape[0], in = x.shape[1], hidden = h0.shape[1], gates = layer.recurrent.shape[0];
  const bool lstm = recurrence.op == CellOp::lstm;
  // Also where some threads would have no piece.
  const bool apart = is_apart(recurrence, x, gates, kSequences * max(2, detail::available_threads()));
  // Where the gates of all rows will be, the input's part of them can be before.
  Room all_rows(x.dtype, apart && saved == nullptr ? total * gates : 0);
  const Array input_gates = saved != nullptr ? *saved : all_rows.take(total, gates);
  if (apart) gemm(biased(product(x, layer.input, true, input_gates), layer.input_bias));

  for_each_share(recurrence, h0, gates, [&](int64_t begin, int64_t end) {
    // Each share turns the weights for itself: what another core wrote would come line by line.
    Room turned(x.dtype, gates * (hidden + (apart ? 0 : in)));
    const auto turn = [&](const Array& weight) {
      const Array to = turned.take(weight.shape[1], gates);
      Array from = weight;
      from.shape = to.shape;
      from.strides[0] = 1;
      from.strides[1] = weight.shape[1];
      from.contiguous = false;
      copy(from, to);
      return to;
    };
    const Array recurrent_weight = turn(layer.recurrent), input_weight = apart ? Array() : turn(layer.input);

    for_each_piece(recurrence, begin, end, [&](const Piece& piece) {
      const int64_t n = piece.count();
      Room room(x.dtype, n * 2 * (hidden + gates) + (apart ? 0 : kInputRows * (in + gates)));
      const Array now = room.take(n, hidden), cell_now = room.take(n, hidden);
      const Array part = room.take(n, gates), gates_room = room.take(n, gates);
      const Array gathered = apart ? Array() : room.take(kInputRows, in),
                  of_gathered = apart ? Array() : room.take(kInputRows, gates);
      copy_rows(rows_of(h0, piece.first, n), now);
      if (lstm) copy_rows(rows_of(*c0, piece.first, n), cell_now);

      Rows x_rows(x), gathered_rows(gathered), gathered_gates(of_gathered), input_rows(input_gates), y_rows(y);
      Rows now_rows(now), cell_rows(cell_now), parts(back != nullptr ? *back : part), state_rows(states);
      Rows earlier_y(y), earlier_states(states);
      Rows kept_rows(saved != nullptr ? *saved : gates_room);

      // The input's part of the next steps' gates.
      int64_t ready = 0, used = 0;
      const auto prepare = [&] {
        int64_t count = 0;
        for (; ready < piece.steps.count(); ++ready) {
          const int64_t t = piece.steps.at(ready), rows = piece.rows_in(t);
          if (count + rows > kInputRows) break;
          if (rows > 0) copy_rows(x_rows.at(piece.steps.begin(t) + piece.first, rows), gathered_rows.at(count, rows));
          count += rows;
        }
        gemm(biased(product(gathered_rows.at(0, count), input_weight, false, gathered_gates.at(0, count)),
                    layer.input_bias));
        used = 0;
      };

      // A step hands its states to one of as many rows where they lie. Else they go to `now`, where those of sequences that have
      // ended stay, and those of sequences that begin are.
      bool handed_on = false;
      int64_t earlier = 0;
      for (int64_t i = 0; i < piece.steps.count(); ++i) {
        const int64_t t = piece.steps.at(i), rows = piece.rows_in(t);
        if (rows == 0) continue;
        if (!apart && i >= ready) prepare();
        const int64_t row = piece.steps.begin(t) + piece.first;
        const Array& of_input = apart ? input_rows.at(row, rows) : gathered_gates.at(used, rows);
        used += rows;
        const Array& r = parts.at(back != nullptr ? row : 0, rows);
        const Array& kept = kept_rows.at(saved != nullptr ? row : 0, rows);
        const Array& before = handed_on ? earlier_y.at(earlier, rows) : now_rows.at(0, rows);
        const Array& after = y_rows.at(row, rows);
        const Array& cell_here = cell_rows.at(0, rows);
        const Array& cell_before = handed_on && states != nullptr ? earlier_states.at(earlier, rows) : cell_here;
        const Array& cell_after = states != nullptr ? state_rows.at(row, rows) : cell_here;
        gemm(biased(product(before, recurrent_weight, false, r), layer.recurrent_bias));
        cell(recurrence.op, of_input, r, before, lstm ? &cell_before : nullptr, after, lstm ? &cell_after : nullptr,
             kept);
        handed_on = i + 1 < piece.steps.count() && piece.rows_in(piece.steps.at(i + 1)) == rows;
        earlier = row;
        if (handed_on) continue;
        copy_rows(after, now_rows.at(0, rows));
        if (states != nullptr) copy_rows(cell_after, cell_here);
      }
      copy_rows(now, rows_of(h, piece.first, n));
      if (lstm) copy_rows(cell_now, rows_of(*c, piece.first, n));
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
