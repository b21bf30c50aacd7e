#include "reel/ops/recurrent_pass.h"

#include <algorithm>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::detail::recurrent {

namespace {

// What the backward kernels need of each row. c: lstm only; back (the recurrent part of the gates): gru only.
struct Kept {
  Tensor gates, c, back;
};

// --- rows and products --------------------------------------------------------------------------------------------------

Array rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Array rows = x.array();
  const std::int64_t width = rows.shape[1];
  rows.data = rows.as<char>() + begin * width * static_cast<std::int64_t>(size_of(rows.dtype));
  rows.shape[0] = count;
  rows.size = count * width;
  return rows;
}

// c = a b, of matrices as they are stored, + bias.
void multiply(const Array& a, bool trans_a, const Array& b, bool trans_b, const Array& c, bool accumulate,
              const void* bias = nullptr) {
  Gemm gemm = gemm_of(a, trans_a, b, trans_b, c.data);
  gemm.bias = bias;
  gemm.accumulate = accumulate;
  backend(c.device).gemm(gemm);
}

Tensor like(const Tensor& x, std::int64_t rows, std::int64_t cols) { return empty({rows, cols}, x.options()); }

// Lstm and rnn add up their biases; gru keeps the recurrent one for the recurrent part.
Tensor input_part(const Pass& pass, const Inputs& in) {
  const bool both = !pass.is_gru() && in[kBiasIh].defined() && in[kBiasHh].defined();
  const Tensor bias = both                    ? in[kBiasIh] + in[kBiasHh]
                      : in[kBiasIh].defined() ? in[kBiasIh]
                      : pass.is_gru()         ? Tensor()
                                              : in[kBiasHh];
  return linear(in[kX], in[kWeightIh], bias);
}

// The state before each row: what `states` [total, hidden] has one step earlier, or the initial one.
Tensor previous(const Pass& pass, const Tensor& states, const Tensor& initial) {
  Tensor before = empty_like(states);
  Ops& ops = backend(states.device());
  const std::int64_t all = initial.shape()[0], rest = states.shape()[0] - all;
  if (rest == (pass.steps.count() - 1) * all) {  // all steps have the same rows: a shift
    ops.copy(rows_of(states, pass.reverse ? all : 0, rest), rows_of(before, pass.reverse ? 0 : all, rest));
    ops.copy(initial.array(), rows_of(before, pass.reverse ? rest : 0, all));
    return before;
  }
  for (std::int64_t t = 0; t < pass.steps.count(); ++t) {
    const std::int64_t earlier = pass.reverse ? t + 1 : t - 1, n = pass.rows(t);
    const std::int64_t known = std::min(n, pass.rows(earlier)), begin = pass.begin(t);
    if (known > 0) ops.copy(rows_of(states, pass.begin(earlier), known), rows_of(before, begin, known));
    ops.copy(rows_of(initial, known, n - known), rows_of(before, begin + known, n - known));
  }
  return before;
}

const Array* array_or_null(const Tensor& x) { return x.defined() ? &x.array() : nullptr; }

// --- the pass by one kernel, unrecorded -----------------------------------------------------------------------------------

bool is_fused(const Inputs& in) {
  const Tensor& h0 = in[kH0];
  return backend(h0.device()).fuses_steps(h0.dtype(), h0.shape()[1]);
}

Recurrence recurrence_of(const Pass& pass, const Tensor& h0) {
  const std::int64_t count = pass.steps.count(), total = pass.steps.total(), n = h0.shape()[0];
  if (total == count * n) return {pass.op, pass.reverse, {.count = count, .total = total, .max_length = n}};
  return {pass.op, pass.reverse, pass.steps.segments(h0.device())};
}

RecurrentLayer layer_of(const Inputs& in) {
  return {in[kWeightIh].array(), in[kWeightHh].array(), array_or_null(in[kBiasIh]), array_or_null(in[kBiasHh])};
}

Outputs fused_forward(const Pass& pass, const Inputs& in, Kept* kept) {
  const Tensor& x = in[kX];
  const std::int64_t total = x.shape()[0], hidden = in[kH0].shape()[1], gates = pass.gates() * hidden;
  const bool lstm = pass.is_lstm();
  const Outputs out{like(x, total, hidden), empty_like(in[kH0]), lstm ? empty_like(in[kC0]) : Tensor()};
  Kept all;
  if (kept != nullptr)
    all = {like(x, total, gates), lstm ? like(x, total, hidden) : Tensor(),
           pass.is_gru() ? like(x, total, gates) : Tensor()};
  backend(x.device())
      .recurrent(recurrence_of(pass, in[kH0]), x.array(), layer_of(in), in[kH0].array(), array_or_null(in[kC0]),
                 out.h.array(), array_or_null(out.c), out.y.array(), array_or_null(all.c), array_or_null(all.gates),
                 array_or_null(all.back));
  if (kept != nullptr) *kept = all;
  return out;
}

void fused_backward(Gradients& g, const Pass& pass, const Inputs& in, const Tensor& y, const Kept& kept,
                    RecurrentGradients to) {
  const auto given = [&](int output) { return g.dy(output).defined() ? packed(g.dy(output)) : Tensor(); };
  const Tensor dy = given(0), dh = given(1), dc = pass.is_lstm() ? given(2) : Tensor();
  const auto state = [&](int input) { return g.needs(input) ? empty_like(in[input]) : Tensor(); };
  const Tensor dh0 = state(kH0), dc0 = state(kC0);
  to.h0 = array_or_null(dh0);
  to.c0 = array_or_null(dc0);
  backend(y.device())
      .recurrent_backward(recurrence_of(pass, in[kH0]), in[kX].array(), layer_of(in), in[kH0].array(),
                          array_or_null(in[kC0]), y.array(), array_or_null(kept.c), kept.gates.array(),
                          array_or_null(kept.back), array_or_null(dy), array_or_null(dh), array_or_null(dc), to);
  if (g.needs(kH0)) g.add(kH0, dh0);
  if (g.needs(kC0)) g.add(kC0, dc0);
}

// --- the pass step by step, unrecorded ------------------------------------------------------------------------------------

// `kept`: null if nothing need be kept; then one step's memory serves all.
Outputs stepwise_forward(const Pass& pass, const Inputs& in, Kept* kept) {
  Ops& ops = backend(in[kX].device());
  const Tensor x = input_part(pass, in);
  const std::int64_t total = x.shape()[0], gates = x.shape()[1], hidden = in[kH0].shape()[1];
  const std::int64_t room = kept != nullptr ? total : pass.steps.max_length();
  const bool keeps_c = kept != nullptr && pass.is_lstm(), keeps_back = kept != nullptr && pass.is_gru();
  Outputs out{like(x, total, hidden), copied(in[kH0], x.dtype()), {}};
  if (pass.is_lstm()) out.c = copied(in[kC0], x.dtype());
  const Tensor saved = like(x, room, gates), back = like(x, keeps_back ? total : pass.steps.max_length(), gates);
  const Tensor states = keeps_c ? like(x, total, hidden) : out.c;
  const void* bias = pass.is_gru() && in[kBiasHh].defined() ? in[kBiasHh].array().data : nullptr;
  const Tensor weight = packed(transpose(in[kWeightHh]));  // once for all steps

  // A step hands its results to one of as many rows where they lie. Else they go to out.h and out.c, where those of
  // sequences that have ended stay, and those of sequences that begin are.
  bool handed_on = false;
  std::int64_t earlier = 0;
  for (std::int64_t i = 0; i < pass.steps.count(); ++i) {
    const std::int64_t t = pass.at(i), begin = pass.begin(t), n = pass.rows(t);
    const Array h = handed_on ? rows_of(out.y, earlier, n) : rows_of(out.h, 0, n);
    const Array y = rows_of(out.y, begin, n), r = rows_of(back, keeps_back ? begin : 0, n);
    multiply(h, false, weight.array(), false, r, false, bias);
    const Array gate = rows_of(saved, kept != nullptr ? begin : 0, n);
    const bool hands_on = i + 1 < pass.steps.count() && pass.rows(pass.at(i + 1)) == n;
    if (pass.is_lstm()) {
      const Array before = handed_on && keeps_c ? rows_of(states, earlier, n) : rows_of(out.c, 0, n);
      const Array after = rows_of(states, keeps_c ? begin : 0, n);
      ops.cell(pass.op, rows_of(x, begin, n), r, h, &before, y, &after, gate);
      if (keeps_c && !hands_on) ops.copy(after, rows_of(out.c, 0, n));
    } else {
      ops.cell(pass.op, rows_of(x, begin, n), r, h, nullptr, y, nullptr, gate);
    }
    if (!hands_on) ops.copy(y, rows_of(out.h, 0, n));
    handed_on = hands_on;
    earlier = begin;
  }
  if (kept != nullptr) *kept = {saved, keeps_c ? states : Tensor(), keeps_back ? back : Tensor()};
  return out;
}

void stepwise_backward(Gradients& g, const Pass& pass, const Inputs& in, const Tensor& y, const Kept& kept,
                       const RecurrentGradients& to) {
  Ops& ops = backend(y.device());
  const auto last = [&](int output) {
    return g.dy(output).defined() ? copied(g.dy(output), y.dtype()) : zeros_like(in[kH0]);
  };
  const Tensor dy = g.dy(0).defined() ? packed(g.dy(0)) : Tensor();
  const Tensor dh = last(1), dc = pass.is_lstm() ? last(2) : Tensor();  // of all sequences, from step to step
  const Tensor h_prev = previous(pass, y, in[kH0]);
  const Tensor c_prev = pass.is_lstm() ? previous(pass, kept.c, in[kC0]) : Tensor();
  const Tensor dx = empty_like(kept.gates), dback = pass.is_gru() ? empty_like(kept.gates) : dx;

  for (std::int64_t i = pass.steps.count(); i-- > 0;) {
    const std::int64_t t = pass.at(i), begin = pass.begin(t), n = pass.rows(t);
    const auto at = [&](const Tensor& x) { return rows_of(x, begin, n); };
    const Array grad = rows_of(dh, 0, n), gates = at(kept.gates), r = pass.is_gru() ? at(kept.back) : gates;
    if (dy.defined()) ops.accumulate(at(dy), grad);
    if (pass.is_lstm()) {
      const Array cell_grad = rows_of(dc, 0, n), before = at(c_prev), after = at(kept.c);
      ops.cell_backward(pass.op, r, at(h_prev), &before, at(y), &after, gates, grad, &cell_grad, at(dx), at(dback),
                        grad, &cell_grad);
    } else {
      ops.cell_backward(pass.op, r, at(h_prev), nullptr, at(y), nullptr, gates, grad, nullptr, at(dx), at(dback), grad,
                        nullptr);
    }
    multiply(at(dback), false, in[kWeightHh].array(), false, grad, true);
  }

  ops.recurrent_gradients(in[kX].array(), layer_of(in), dx.array(), dback.array(), h_prev.array(), to);
  if (g.needs(kH0)) g.add(kH0, dh);
  if (g.needs(kC0)) g.add(kC0, dc);
}

// --- the same in recorded ops ---------------------------------------------------------------------------------------------

// The new h, and in `c` the new c.
Tensor composed_cell(const Pass& pass, const Tensor& x, const Tensor& r, const Tensor& h, Tensor& c) {
  const std::int64_t hidden = h.shape()[1];
  const auto gate = [&](const Tensor& all, int i) { return narrow(all, 1, i * hidden, hidden); };
  if (pass.is_lstm()) {
    const Tensor z = x + r;
    c = sigmoid(gate(z, 1)) * c + sigmoid(gate(z, 0)) * tanh(gate(z, 2));
    return sigmoid(gate(z, 3)) * tanh(c);
  }
  if (pass.is_gru()) {
    const Tensor reset = sigmoid(gate(x, 0) + gate(r, 0)), z = sigmoid(gate(x, 1) + gate(r, 1));
    return (1 - z) * tanh(gate(x, 2) + reset * gate(r, 2)) + z * h;
  }
  return pass.op == CellOp::rnn_tanh ? tanh(x + r) : relu(x + r);
}

Outputs composed(const Pass& pass, const Inputs& in) {
  const Tensor x = input_part(pass, in);
  const std::int64_t count = pass.steps.count(), n = in[kH0].shape()[0];
  Outputs out{{}, in[kH0], in[kC0]};
  Tensors parts(std::vector<Tensor>(static_cast<std::size_t>(count)));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t t = pass.at(i), rows = pass.rows(t);
    // Sequences that have no such step stay as they are.
    const auto rest = [&](const Tensor& now, const Tensor& before) {
      return rows == n ? now : concatenate({now, narrow(before, 0, rows, n - rows)});
    };
    const Tensor h = narrow(out.h, 0, 0, rows);
    const Tensor r = linear(h, in[kWeightHh], pass.is_gru() ? in[kBiasHh] : Tensor());
    Tensor c = pass.is_lstm() ? narrow(out.c, 0, 0, rows) : Tensor();
    const Tensor y = composed_cell(pass, narrow(x, 0, pass.begin(t), rows), r, h, c);
    parts[static_cast<std::size_t>(t)] = y;
    out.h = rest(y, out.h);
    if (pass.is_lstm()) out.c = rest(c, out.c);
  }
  if (count > 0) {
    out.y = concatenate(parts);
    return out;
  }
  out.y = narrow(x, 1, 0, in[kH0].shape()[1]);
  if (!taping()) return out;
  Tensor none = sum(out.y);
  for (const Tensor& input : in)  // of which the results are made all the same
    if (input.defined()) none = none + sum(narrow(input, 0, 0, 0));
  out.h = out.h + none;
  if (pass.is_lstm()) out.c = out.c + none;
  return out;
}

void composed_backward(Gradients& g, const Pass& pass, const Inputs& given) {
  Tape tape;
  Inputs in = given;
  Tensors wanted;
  for (std::size_t i = 0; i < kInputs; ++i) {
    if (!g.needs(static_cast<int>(i))) continue;
    in[i] = reshape(given[i], given[i].shape());  // another identity, in case one tensor is here twice
    wanted.push_back(in[i]);
  }
  const Outputs out = composed(pass, in);
  Tensor total;
  const auto weigh = [&](const Tensor& result, int output) {
    if (!result.defined() || !g.dy(output).defined()) return;
    const Tensor part = sum(result * g.dy(output));
    total = total.defined() ? total + part : part;
  };
  weigh(out.y, 0);
  weigh(out.h, 1);
  if (pass.is_lstm()) weigh(out.c, 2);
  const Tensors gradients = tape.gradient(total, wanted);
  for (int i = 0, next = 0; i < kInputs; ++i)
    if (g.needs(i)) g.add(i, gradients[static_cast<std::size_t>(next++)]);
}

}  // namespace

Outputs run(const Pass& pass, const Inputs& given, SourceLocation where) {
  if (pass.steps.total() == 0) return composed(pass, given);  // nothing to be fast for
  Inputs in;
  for (std::size_t i = 0; i < kInputs; ++i) in[i] = given[i].defined() ? packed(given[i]) : given[i];
  Kept kept;
  const bool keeps = taping();
  const Outputs out = untaped([&] {
    return is_fused(in) ? fused_forward(pass, in, keeps ? &kept : nullptr)
                        : stepwise_forward(pass, in, keeps ? &kept : nullptr);
  });
  if (!keeps) return out;

  const auto callback = [pass, given, in, y = out.y, kept](Gradients& g) {
    if (g.recording()) return composed_backward(g, pass, given);
    const RecurrentGradients to{g.sink(kX), g.sink(kWeightIh), g.sink(kWeightHh), g.sink(kBiasIh), g.sink(kBiasHh)};
    if (is_fused(in)) fused_backward(g, pass, in, y, kept, to);
    else stepwise_backward(g, pass, in, y, kept, to);
  };
  const Tensor *saved[kInputs + 1] = {}, *outputs[] = {&out.y, &out.h, &out.c};
  for (std::size_t i = 0; i < kInputs; ++i) saved[i] = &given[i];
  saved[kInputs] = &out.y;
  Node* node = begin_node(pass.name(), where, saved, kInputs, outputs, pass.is_lstm() ? 3 : 2, saved, kInputs + 1,
                          sizeof callback);
  if (node != nullptr) fill_node(node, callback);
  return out;
}

}  // namespace reel::detail::recurrent
