#include "reel/ops/recurrent.h"

#include <cmath>

#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

enum class Cell { lstm, gru, tanh, relu };
std::int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

struct Form {
  Cell cell;
  std::int64_t layers = 1;
  bool bidirectional = false;
  bool padded = false;  // x [n, steps, in] rather than Ragged
  std::int64_t count() const { return layers * (bidirectional ? 2 : 1); }
};

std::int64_t hidden_of(Size size) {
  const std::int64_t sizes[] = {2, 5, 3, 1, 33};
  return sizes[static_cast<int>(size)];
}

// x, then h0 and c0, then the four weights of each layer and direction.
Tensors inputs_of(const Form& form, Maker& make, Size size) {
  const Extent extent = extent_of(size);
  const std::int64_t hidden = hidden_of(size), gates = gates_of(form.cell) * hidden;
  const std::int64_t steps = size == Size::one ? 1 : 3;
  const std::int64_t n =
      form.padded ? (extent.rows + 2) / steps : static_cast<std::int64_t>(sequence_lengths(extent.rows).size());
  Tensors in;
  in.push_back(form.padded ? make.uniform({n, steps, extent.cols}) : make.uniform({extent.rows, extent.cols}));
  for (int i = 0; i < 2; ++i) in.push_back(make.uniform({form.count(), n, hidden}, -1, 1));
  for (std::int64_t k = 0; k < form.count(); ++k) {
    const bool first = k < form.count() / form.layers;
    const std::int64_t width = first ? extent.cols : hidden * form.count() / form.layers;
    for (const std::int64_t from : {width, hidden}) {  // not so large that errors grow from step to step
      const double reach = 1.5 / std::sqrt(static_cast<double>(from));
      in.push_back(make.uniform({gates, from}, -reach, reach));
    }
    for (int i = 0; i < 2; ++i) in.push_back(make.uniform({gates}, -1, 1));
  }
  return in;
}

// All results in a row: y, h, c.
Tensor called(const Form& form, const Tensors& in) {
  std::vector<RecurrentWeights> weights;
  for (std::size_t i = 3; i < in.size(); i += 4) weights.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
  RecurrentOptions options{.bidirectional = form.bidirectional, .batch_first = true, .h0 = in[1]};
  if (form.cell == Cell::lstm) options.c0 = in[2];
  const auto joined = [](const Tensor& y, const Tensor& h, const Tensor& c) {
    Tensors all{reshape(y, {y.size()}), reshape(h, {h.size()})};
    if (c.defined()) all.push_back(reshape(c, {c.size()}));
    return concatenate(all);
  };
  const auto run = [&](const auto& x) {
    if (form.cell == Cell::lstm) return lstm(x, weights, options);
    if (form.cell == Cell::gru) return gru(x, weights, options);
    return rnn(x, weights, form.cell == Cell::tanh ? Nonlinearity::tanh : Nonlinearity::relu, options);
  };
  if (form.padded) {
    const auto out = run(in[0]);
    return joined(out.y, out.h, out.c);
  }
  const auto out = run(in_sequences(in[0]));
  return joined(out.y.values(), out.h, out.c);
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// One sequence's row x through a cell; h and c become the new states.
void step(Cell cell, const double* x, std::int64_t width, const Ref* w, std::vector<double>& h,
          std::vector<double>& c) {
  const auto hidden = static_cast<std::int64_t>(h.size());
  const auto part = [&](const Ref& weight, const Ref& bias, const double* v, std::int64_t size, std::int64_t gate,
                        std::int64_t j) {
    double total = at(bias, {gate * hidden + j});
    for (std::int64_t k = 0; k < size; ++k) total += at(weight, {gate * hidden + j, k}) * v[k];
    return total;
  };
  const std::vector<double> before = h;
  for (std::int64_t j = 0; j < hidden; ++j) {
    const auto s = static_cast<std::size_t>(j);
    const auto own = [&](std::int64_t gate) { return part(w[0], w[2], x, width, gate, j); };
    const auto back = [&](std::int64_t gate) { return part(w[1], w[3], before.data(), hidden, gate, j); };
    if (cell == Cell::lstm) {
      c[s] = sigmoid_of(own(1) + back(1)) * c[s] + sigmoid_of(own(0) + back(0)) * std::tanh(own(2) + back(2));
      h[s] = sigmoid_of(own(3) + back(3)) * std::tanh(c[s]);
    } else if (cell == Cell::gru) {
      const double r = sigmoid_of(own(0) + back(0)), z = sigmoid_of(own(1) + back(1));
      h[s] = (1 - z) * std::tanh(own(2) + r * back(2)) + z * before[s];
    } else {
      const double sum = own(0) + back(0);
      h[s] = cell == Cell::tanh ? std::tanh(sum) : std::max(0.0, sum);
    }
  }
}

Ref expected(const Form& form, const std::vector<Ref>& in) {
  const std::int64_t n = in[1].shape[1], hidden = in[1].shape[2], directions = form.bidirectional ? 2 : 1;
  std::vector<std::int64_t> lengths = form.padded
                                          ? std::vector<std::int64_t>(static_cast<std::size_t>(n), in[0].shape[1])
                                          : sequence_lengths(in[0].shape[0]);
  Ref x = in[0], h{in[1].shape, in[1].v}, c{in[2].shape, in[2].v};
  for (std::int64_t layer = 0; layer < form.layers; ++layer) {
    const std::int64_t width = x.shape.back(), rows = width == 0 ? 0 : x.shape.size() / width;
    Ref y{{rows, directions * hidden}, std::vector<double>(static_cast<std::size_t>(rows * directions * hidden))};
    for (std::int64_t d = 0; d < directions; ++d) {
      const std::int64_t k = layer * directions + d;
      std::int64_t begin = 0;
      for (std::int64_t s = 0; s < n; begin += lengths[static_cast<std::size_t>(s++)]) {
        const auto first = (k * n + s) * hidden;
        std::vector<double> hs(h.v.begin() + first, h.v.begin() + first + hidden);
        std::vector<double> cs(c.v.begin() + first, c.v.begin() + first + hidden);
        const std::int64_t length = lengths[static_cast<std::size_t>(s)];
        for (std::int64_t t = 0; t < length; ++t) {
          const std::int64_t row = begin + (d == 0 ? t : length - 1 - t);
          step(form.cell, x.v.data() + row * width, width, in.data() + 3 + 4 * k, hs, cs);
          std::copy(hs.begin(), hs.end(), y.v.begin() + (row * directions + d) * hidden);
        }
        std::copy(hs.begin(), hs.end(), h.v.begin() + first);
        std::copy(cs.begin(), cs.end(), c.v.begin() + first);
      }
    }
    x = y;
  }
  Ref all{{}, x.v};
  all.v.insert(all.v.end(), h.v.begin(), h.v.end());
  if (form.cell == Cell::lstm) all.v.insert(all.v.end(), c.v.begin(), c.v.end());
  all.shape = Shape{all.v.size()};
  return all;
}

OpCase row(const std::string& name, const Form& form) {
  std::vector<int> differentiable{0, 1};
  if (form.cell == Cell::lstm) differentiable.push_back(2);
  for (int i = 0; i < 4 * form.count(); ++i) differentiable.push_back(3 + i);
  return {.name = name,
          .inputs = [form](Maker& make, Size size) { return inputs_of(form, make, size); },
          .call = [form](const Tensors& in) { return called(form, in); },
          .reference = [form](const std::vector<Ref>& in) { return expected(form, in); },
          .differentiable = differentiable,
          .tolerance = 40};
}

RecurrentWeights weights(std::int64_t gates, std::int64_t in, std::int64_t hidden) {
  return {ones({gates, in}), ones({gates, hidden})};
}

}  // namespace

std::vector<OpCase> recurrent_cases() {
  std::vector<OpCase> rows;
  rows.push_back(row("lstm", {.cell = Cell::lstm, .padded = true}));
  rows.push_back(row("lstm/ragged", {.cell = Cell::lstm}));
  rows.push_back(row("lstm/layers", {.cell = Cell::lstm, .layers = 2, .bidirectional = true}));
  rows.push_back(row("gru", {.cell = Cell::gru, .padded = true}));
  rows.push_back(row("gru/ragged", {.cell = Cell::gru, .bidirectional = true}));
  rows.push_back(row("rnn", {.cell = Cell::tanh, .padded = true}));
  rows.push_back(row("rnn/ragged", {.cell = Cell::tanh, .layers = 2}));
  rows.push_back(row("rnn/relu", {.cell = Cell::relu, .bidirectional = true}));
  rows[0].bad = {{[] {
                    lstm(ones({2, 3}), {weights(8, 3, 2)});
                  },
                  {"lstm", "[steps, n, in]", "[2, 3]", "cases.cpp"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(8, 4, 2)});
                  },
                  {"lstm", "weight_ih", "[8, 3]", "[8, 4]"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(6, 3, 2)});
                  },
                  {"lstm", "weight_ih", "[8, 3]", "[6, 3]"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(8, 3, 2), weights(8, 3, 2)});
                  },
                  {"lstm", "weight_ih", "[8, 2]"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {});
                  },
                  {"lstm", "weights for each layer", "got 0"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(8, 3, 2)}, {.bidirectional = true});
                  },
                  {"lstm", "both directions", "got 1"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(8, 3, 2)}, {.h0 = ones({1, 2, 2})});
                  },
                  {"h0", "[1, 3, 2]", "[1, 2, 2]"}},
                 {[] {
                    lstm(ones({2, 3, 3}), {weights(8, 3, 2)}, {.c0 = ones({3, 2})});
                  },
                  {"c0", "[1, 3, 2]", "[3, 2]"}},
                 {[] {
                    lstm(ones({2, 3, 3}, {.dtype = f64}), {weights(8, 3, 2)});
                  },
                  {"lstm", "weight_ih", "f64", "f32"}},
                 {[] { lstm(arange(3), {weights(8, 3, 2)}); }, {"lstm", "x", "f32 or f64", "i64"}}};
  rows[3].bad = {{[] {
                    gru(ones({2, 3, 3}), {weights(6, 3, 2)}, {.c0 = ones({1, 3, 2})});
                  },
                  {"gru", "c0", "lstm"}},
                 {[] {
                    gru(ones({2, 3, 3}), {weights(6, 3, 2)}, {.batch_first = true, .h0 = ones({1, 3, 2})});
                  },
                  {"gru", "h0", "[1, 2, 2]"}}};
  rows[5].bad = {{[] {
                    rnn(ones({2, 3, 3}), {{ones({2, 3}), ones({2, 2}), ones({3})}});
                  },
                  {"rnn", "bias_ih", "[2]", "[3]"}}};
  rows[6].bad = {{[] { rnn(in_sequences(ones({5})), {weights(2, 3, 2)}); }, {"rnn", "[total, in]", "[5]"}}};
  return rows;
}

}  // namespace reel::test
