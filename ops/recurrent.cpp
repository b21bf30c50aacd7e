// Rows are worked on step by step. For that they are put in order of steps: sequences sorted by length, the longest first, then
// the first rows of all sequences, the second rows of those that have one, and so on, so that the sequences of a step are the
// first ones of the step before. A batch [steps, n, in] lies like this already.

#include "reel/ops/recurrent.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/sequence.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::taping;

// What one pass over the rows is.
struct Pass {
  CellOp op;
  bool reverse;
  Offsets steps;  // the rows of each step, as many as sequences that have it

  bool is_lstm() const { return op == CellOp::lstm; }
  bool is_gru() const { return op == CellOp::gru; }
  std::int64_t gates() const { return is_lstm() ? 4 : is_gru() ? 3 : 1; }
  const char* name() const { return is_lstm() ? "lstm" : is_gru() ? "gru" : "rnn"; }
  std::int64_t begin(std::int64_t step) const { return steps.span()[static_cast<std::size_t>(step)]; }
  std::int64_t rows(std::int64_t step) const { return step < 0 || step >= steps.count() ? 0 : steps.length(step); }
  // The i-th step to be computed.
  std::int64_t at(std::int64_t i) const { return reverse ? steps.count() - 1 - i : i; }
};

// The inputs of a pass, in the order in which its gradients are given; a bias may be undefined.
enum Input { kX, kWeightIh, kWeightHh, kBiasIh, kBiasHh, kH0, kC0, kInputs };
using Inputs = std::array<Tensor, kInputs>;

// y: the states of all rows [total, hidden]; h, c: the last ones of all sequences [n, hidden].
struct Outputs {
  Tensor y, h, c;
};

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
  backend(c.device).gemm({.m = c.shape[0],
                          .n = c.shape[1],
                          .k = a.shape[trans_a ? 0 : 1],
                          .dtype = c.dtype,
                          .trans_a = trans_a,
                          .trans_b = trans_b,
                          .a = a.data,
                          .b = b.data,
                          .c = c.data,
                          .lda = a.shape[1],
                          .ldb = b.shape[1],
                          .ldc = c.shape[1],
                          .bias = bias,
                          .accumulate = accumulate});
}

Tensor like(const Tensor& x, std::int64_t rows, std::int64_t cols) {
  return empty({rows, cols}, {.dtype = x.dtype(), .device = x.device()});
}

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
  for (std::int64_t t = 0; t < pass.steps.count(); ++t) {
    const std::int64_t earlier = pass.reverse ? t + 1 : t - 1, n = pass.rows(t);
    const std::int64_t known = std::min(n, pass.rows(earlier)), begin = pass.begin(t);
    if (known > 0) ops.copy(rows_of(states, pass.begin(earlier), known), rows_of(before, begin, known));
    ops.copy(rows_of(initial, known, n - known), rows_of(before, begin + known, n - known));
  }
  return before;
}

// --- the pass by kernels, unrecorded --------------------------------------------------------------------------------------

// `kept`: null if nothing need be kept; then one step's memory serves all.
Outputs forward(const Pass& pass, const Inputs& in, Kept* kept) {
  Ops& ops = backend(in[kX].device());
  const Tensor x = input_part(pass, in);
  const std::int64_t total = x.shape()[0], gates = x.shape()[1], hidden = in[kH0].shape()[1];
  const std::int64_t room = kept != nullptr ? total : pass.steps.max_length();
  const bool keeps_c = kept != nullptr && pass.is_lstm(), keeps_back = kept != nullptr && pass.is_gru();
  Outputs out{like(x, total, hidden), detail::copied(in[kH0], x.dtype()), {}};
  if (pass.is_lstm()) out.c = detail::copied(in[kC0], x.dtype());
  const Tensor saved = like(x, room, gates), back = like(x, keeps_back ? total : pass.steps.max_length(), gates);
  const Tensor states = keeps_c ? like(x, total, hidden) : out.c;
  const void* bias = pass.is_gru() && in[kBiasHh].defined() ? in[kBiasHh].array().data : nullptr;

  for (std::int64_t i = 0; i < pass.steps.count(); ++i) {
    const std::int64_t t = pass.at(i), begin = pass.begin(t), n = pass.rows(t);
    const Array h = rows_of(out.h, 0, n), y = rows_of(out.y, begin, n), r = rows_of(back, keeps_back ? begin : 0, n);
    multiply(h, false, in[kWeightHh].array(), true, r, false, bias);
    const Array gate = rows_of(saved, kept != nullptr ? begin : 0, n);
    if (pass.is_lstm()) {
      const Array before = rows_of(out.c, 0, n), after = rows_of(states, keeps_c ? begin : 0, n);
      ops.cell(pass.op, rows_of(x, begin, n), r, h, &before, y, &after, gate);
      if (keeps_c) ops.copy(after, before);
    } else {
      ops.cell(pass.op, rows_of(x, begin, n), r, h, nullptr, y, nullptr, gate);
    }
    ops.copy(y, h);
  }
  if (kept != nullptr) *kept = {saved, keeps_c ? states : Tensor(), keeps_back ? back : Tensor()};
  return out;
}

// dweight (+)= dz^T rows.
void weight_gradient(const Tensor& dz, const Tensor& rows, const Gradients::Destination& to) {
  multiply(dz.array(), true, rows.array(), false, to.dx.array(), !to.fresh);
}

void backward(Gradients& g, const Pass& pass, const Inputs& in, const Tensor& y, const Kept& kept) {
  Ops& ops = backend(y.device());
  const auto last = [&](int output) {
    return g.dy(output).defined() ? detail::copied(g.dy(output), y.dtype()) : zeros_like(in[kH0]);
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

  if (g.needs(kX)) g.add(kX, matmul(dx, in[kWeightIh]));
  if (g.needs(kWeightIh)) weight_gradient(dx, in[kX], g.destination(kWeightIh));
  if (g.needs(kWeightHh)) weight_gradient(dback, h_prev, g.destination(kWeightHh));
  if (g.needs(kBiasIh)) g.add(kBiasIh, sum(dx, 0));
  if (g.needs(kBiasHh)) g.add(kBiasHh, sum(dback, 0));
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
    const auto rest = [&](const Tensor& now,
                          const Tensor& before) {  // sequences that have no such step stay as they are
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
  out.y = count > 0 ? concatenate(parts) : narrow(x, 1, 0, in[kH0].shape()[1]);
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

// One layer in one direction.
Outputs run(const Pass& pass, const Inputs& given, SourceLocation where) {
  if (pass.steps.total() == 0) return composed(pass, given);  // nothing to be fast for
  Inputs in;
  for (std::size_t i = 0; i < kInputs; ++i) in[i] = given[i].defined() ? packed(given[i]) : given[i];
  Kept kept;
  const bool keeps = taping();
  const Outputs out = untaped([&] { return forward(pass, in, keeps ? &kept : nullptr); });
  if (!keeps) return out;

  const auto callback = [pass, given, in, y = out.y, kept](Gradients& g) {
    if (g.recording()) composed_backward(g, pass, given);
    else backward(g, pass, in, y, kept);
  };
  const Tensor *saved[kInputs + 1] = {}, *outputs[] = {&out.y, &out.h, &out.c};
  for (std::size_t i = 0; i < kInputs; ++i) saved[i] = &given[i];
  saved[kInputs] = &out.y;
  detail::Node* node = detail::begin_node(pass.name(), where, saved, kInputs, outputs, pass.is_lstm() ? 3 : 2, saved,
                                          kInputs + 1, sizeof callback);
  if (node != nullptr) detail::fill_node(node, callback);
  return out;
}

// --- layers ---------------------------------------------------------------------------------------------------------------

std::string text(std::int64_t number) { return std::to_string(number); }

void check_weights(const Pass& pass, const Tensor& x, const RecurrentWeights& w, std::int64_t in, std::int64_t hidden,
                   SourceLocation where) {
  const char* op = pass.name();
  const std::int64_t gates = pass.gates() * hidden;
  for (const auto& [name, weight, size] :
       {std::tuple{"weight_ih", &w.weight_ih, in}, {"weight_hh", &w.weight_hh, hidden}}) {
    check::like(op, name, *weight, "x", x, where);
    check::shape(op, name, *weight, {gates, size}, where);
  }
  for (const auto& [name, bias] : {std::pair{"bias_ih", &w.bias_ih}, {"bias_hh", &w.bias_hh}}) {
    if (!bias->defined()) continue;
    check::like(op, name, *bias, "x", x, where);
    check::shape(op, name, *bias, {gates}, where);
  }
}

// The sequences' order by length and its inverse; undefined where they are in order.
struct Order {
  Tensor sorted, original;
  Tensor sort(const Tensor& x, SourceLocation where) const {
    return sorted.defined() ? detail::permuted_rows(x, sorted, original, where) : x;
  }
  Tensor restore(const Tensor& x, SourceLocation where) const {
    return sorted.defined() ? detail::permuted_rows(x, original, sorted, where) : x;
  }
};

// All layers over rows in order of steps.
RecurrentResult<Tensor> layers(Pass pass, Tensor x, std::int64_t n, const Order& order,
                               const std::vector<RecurrentWeights>& weights, const RecurrentOptions& options,
                               SourceLocation where) {
  const char* op = pass.name();
  const std::int64_t directions = options.bidirectional ? 2 : 1, count = static_cast<std::int64_t>(weights.size());
  if (count == 0 || count % directions != 0)
    throw Error(std::string(op) + ": weights for each layer" + (directions == 2 ? " and both directions" : "") +
                    " are required, got " + text(count),
                where);
  check::rank(op, "weight_hh", weights[0].weight_hh, 2, "[gates hidden, hidden]", where);
  const std::int64_t hidden = weights[0].weight_hh.shape()[1];
  const Shape states{count, n, hidden};
  const auto check_start = [&](const char* name, const Tensor& start) {
    if (!start.defined()) return;
    check::like(op, name, start, "x", x, where);
    check::shape(op, name, start, states, where);
  };
  check_start("h0", options.h0);
  check_start("c0", options.c0);
  if (options.c0.defined() && !pass.is_lstm())
    throw Error(std::string(op) + ": c0 must be undefined: lstm has it", where);
  for (std::int64_t k = 0; k < count; ++k)
    check_weights(pass, x, weights[static_cast<std::size_t>(k)], k < directions ? x.shape()[1] : directions * hidden,
                  hidden, where);

  const Tensor zero = zeros({n, hidden}, {.dtype = x.dtype(), .device = x.device()});
  const auto start = [&](const Tensor& all, std::int64_t k) {
    return all.defined() ? order.sort(select(all, 0, k, where), where) : zero;
  };
  Tensors h, c, sides;
  for (std::int64_t k = 0; k < count; ++k) {
    const RecurrentWeights& w = weights[static_cast<std::size_t>(k)];
    pass.reverse = k % directions == 1;
    const Outputs out = run(pass,
                            {x, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh, start(options.h0, k),
                             pass.is_lstm() ? start(options.c0, k) : Tensor()},
                            where);
    h.push_back(order.restore(out.h, where));
    if (pass.is_lstm()) c.push_back(order.restore(out.c, where));
    sides.push_back(out.y);
    if (k % directions != directions - 1) continue;
    x = directions == 1 ? out.y : concatenate(sides, 1, where);
    sides = {};
  }
  return {x, stack(h, 0, where), pass.is_lstm() ? stack(c, 0, where) : Tensor()};
}

// From the lengths that fill(lengths) writes.
template <class F>
Offsets offsets_of(std::int64_t count, F&& fill) {
  return Offsets(detail::numbers_on(Device::cpu(), count, fill).template data<std::int64_t>());
}

RecurrentResult<Tensor> over_batch(CellOp op, const Tensor& x, const std::vector<RecurrentWeights>& weights,
                                   const RecurrentOptions& options, SourceLocation where) {
  Pass pass{op, false, {}};
  check::floating(pass.name(), "x", x, where);
  check::rank(pass.name(), "x", x, 3, options.batch_first ? "[n, steps, in]" : "[steps, n, in]", where);
  const Tensor by_step = options.batch_first ? transpose(x, 0, 1, where) : x;
  const std::int64_t steps = by_step.shape()[0], n = by_step.shape()[1];
  pass.steps = offsets_of(steps, [&](std::int64_t* lengths) { std::fill_n(lengths, steps, n); });
  RecurrentResult<Tensor> result =
      layers(pass, reshape(by_step, {steps * n, x.shape()[2]}, where), n, {}, weights, options, where);
  const Tensor y = reshape(result.y, {steps, n, result.y.shape()[1]}, where);
  result.y = options.batch_first ? transpose(y, 0, 1, where) : y;
  return result;
}

RecurrentResult<Ragged> over_sequences(CellOp op, const Ragged& x, const std::vector<RecurrentWeights>& weights,
                                       const RecurrentOptions& options, SourceLocation where) {
  Pass pass{op, false, {}};
  check::floating(pass.name(), "x", x.values(), where);
  check::rank(pass.name(), "x's values", x.values(), 2, "[total, in]", where);
  const std::int64_t n = x.count(), total = x.total();
  const auto numbers = [&](std::int64_t count, auto&& fill) { return detail::numbers_on(Device::cpu(), count, fill); };
  const auto data = [](const Tensor& list) { return list.array().as<std::int64_t>(); };
  const Tensor order = numbers(n, [&](std::int64_t* sequence) {
    std::iota(sequence, sequence + n, std::int64_t{0});
    std::sort(sequence, sequence + n, [&](std::int64_t a, std::int64_t b) {
      return x.length(a) != x.length(b) ? x.length(a) > x.length(b) : a < b;
    });
  });
  const auto inverse = [&](const Tensor& list) {
    return numbers(list.size(), [&](std::int64_t* places) {
      for (std::int64_t i = 0; i < list.size(); ++i) places[data(list)[i]] = i;
    });
  };
  const Tensor rows = empty({total}, {.dtype = i64});
  pass.steps = offsets_of(x.offsets().max_length(), [&](std::int64_t* lengths) {
    std::int64_t* next = data(rows);
    for (std::int64_t t = 0; t < x.offsets().max_length(); ++t) {
      const std::int64_t* const first = next;
      for (std::int64_t i = 0; i < n && x.length(data(order)[i]) > t; ++i)
        *next++ = x.offsets().span()[static_cast<std::size_t>(data(order)[i])] + t;
      lengths[t] = next - first;
    }
  });
  const auto on_device = [&](const Tensor& list) {
    return Order{detail::transferred(list, x.device()), detail::transferred(inverse(list), x.device())};
  };
  const Order by_row = on_device(rows), by_sequence = on_device(order);
  RecurrentResult<Tensor> result =
      layers(pass, by_row.sort(x.values(), where), n, by_sequence, weights, options, where);
  return {x.with(by_row.restore(result.y, where)), result.h, result.c};
}

CellOp rnn_of(Nonlinearity nonlinearity) {
  return nonlinearity == Nonlinearity::tanh ? CellOp::rnn_tanh : CellOp::rnn_relu;
}

}  // namespace

RecurrentResult<Ragged> lstm(const Ragged& x, const std::vector<RecurrentWeights>& weights,
                             const RecurrentOptions& options, SourceLocation where) {
  return over_sequences(CellOp::lstm, x, weights, options, where);
}
RecurrentResult<Tensor> lstm(const Tensor& x, const std::vector<RecurrentWeights>& weights,
                             const RecurrentOptions& options, SourceLocation where) {
  return over_batch(CellOp::lstm, x, weights, options, where);
}
RecurrentResult<Ragged> gru(const Ragged& x, const std::vector<RecurrentWeights>& weights,
                            const RecurrentOptions& options, SourceLocation where) {
  return over_sequences(CellOp::gru, x, weights, options, where);
}
RecurrentResult<Tensor> gru(const Tensor& x, const std::vector<RecurrentWeights>& weights,
                            const RecurrentOptions& options, SourceLocation where) {
  return over_batch(CellOp::gru, x, weights, options, where);
}
RecurrentResult<Ragged> rnn(const Ragged& x, const std::vector<RecurrentWeights>& weights, Nonlinearity nonlinearity,
                            const RecurrentOptions& options, SourceLocation where) {
  return over_sequences(rnn_of(nonlinearity), x, weights, options, where);
}
RecurrentResult<Tensor> rnn(const Tensor& x, const std::vector<RecurrentWeights>& weights, Nonlinearity nonlinearity,
                            const RecurrentOptions& options, SourceLocation where) {
  return over_batch(rnn_of(nonlinearity), x, weights, options, where);
}

}  // namespace reel
