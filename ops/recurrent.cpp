#include "reel/ops/recurrent.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/recurrent_pass.h"
#include "reel/ops/sequence.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::recurrent::Outputs;
using detail::recurrent::Pass;

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
  Tensor sort(const Tensor& x) const { return sorted.defined() ? detail::permuted_rows(x, sorted, original) : x; }
  Tensor restore(const Tensor& x) const { return sorted.defined() ? detail::permuted_rows(x, original, sorted) : x; }
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

  const Tensor zero = zeros({n, hidden}, x.options());
  const auto start = [&](const Tensor& all, std::int64_t k) {
    return all.defined() ? order.sort(select(all, 0, k)) : zero;
  };
  Tensors h, c, sides;
  for (std::int64_t k = 0; k < count; ++k) {
    const RecurrentWeights& w = weights[static_cast<std::size_t>(k)];
    pass.reverse = k % directions == 1;
    const Outputs out = detail::recurrent::run(pass,
                                               {x, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh, start(options.h0, k),
                                                pass.is_lstm() ? start(options.c0, k) : Tensor()},
                                               where);
    h.push_back(order.restore(out.h));
    if (pass.is_lstm()) c.push_back(order.restore(out.c));
    sides.push_back(out.y);
    if (k % directions != directions - 1) continue;
    x = directions == 1 ? out.y : concatenate(sides, 1);
    sides = {};
  }
  const auto all = [&](const Tensors& states_of_layers) {
    // Without steps they are the states at the start, which are the caller's.
    return count == 1 && pass.steps.total() > 0 ? reshape(states_of_layers[0], states) : stack(states_of_layers, 0);
  };
  return {x, all(h), pass.is_lstm() ? all(c) : Tensor()};
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
  const Tensor by_step = options.batch_first ? transpose(x, 0, 1) : x;
  const std::int64_t steps = by_step.shape()[0], n = by_step.shape()[1];
  pass.steps = offsets_of(steps, [&](std::int64_t* lengths) { std::fill_n(lengths, steps, n); });
  RecurrentResult<Tensor> result =
      layers(pass, reshape(by_step, {steps * n, x.shape()[2]}), n, {}, weights, options, where);
  const Tensor y = reshape(result.y, {steps, n, result.y.shape()[1]});
  result.y = options.batch_first ? transpose(y, 0, 1) : y;
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
  RecurrentResult<Tensor> result = layers(pass, by_row.sort(x.values()), n, by_sequence, weights, options, where);
  return {x.with(by_row.restore(result.y)), result.h, result.c};
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
