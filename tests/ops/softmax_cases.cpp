#include "reel/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

// log softmax along an axis of a tensor [a, b] of `x / temperature`.
Ref log_softmax_of(const Ref& x, int axis, double temperature) {
  Ref y = x;
  const std::int64_t n = x.shape[axis], step = axis == 0 ? x.shape[1] : 1, next = axis == 0 ? 1 : n;
  for (std::int64_t line = 0; n > 0 && line < x.shape.size() / n; ++line) {
    const auto each = [&](auto f) {
      for (std::int64_t i = 0; i < n; ++i) f(y.v[static_cast<std::size_t>(line * next + i * step)]);
    };
    double largest = -INFINITY, total = 0;
    each([&](double& v) { largest = std::max(largest, v /= temperature); });
    each([&](double v) { total += std::exp(v - largest); });
    each([&](double& v) { v -= largest + std::log(total); });
  }
  return y;
}

OpCase softmax_row(bool log, int axis, double temperature, const std::string& variant) {
  using Op = Tensor (*)(const Tensor&, int, double, SourceLocation);
  const Op op = log ? static_cast<Op>(log_softmax) : static_cast<Op>(softmax);
  const std::string name = log ? "log_softmax" : "softmax";
  return {.name = name + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols}, -6, 6)};
              },
          .call = [=](const Tensors& in) { return op(in[0], axis, temperature, SourceLocation::current()); },
          .reference =
              [=](const std::vector<Ref>& in) {
                Ref y = log_softmax_of(in[0], axis, temperature);
                if (!log)
                  for (double& v : y.v) v = std::exp(v);
                return y;
              },
          .tolerance = 20,
          .mixes_rows = axis == 0 ? "over the rows" : "",
          .bad = {{[op] {
                     op(ones({2, 3}), 2, 1, SourceLocation::current());
                   },
                   {name, "axis must be in [-2, 2), got 2", "cases.cpp"}},
                  {[op] {
                     op(ones({2, 3}), 1, 0, SourceLocation::current());
                   },
                   {name, "temperature must be above 0"}},
                  {[op] { op(arange(3), 0, 1, SourceLocation::current()); }, {name, "x must be f32 or f64, got i64"}}}};
}

// Weights of the classes: 1/2, 3/4, 1, ...
double weight_of(std::int64_t c) { return 0.5 + 0.25 * static_cast<double>(c); }
Tensor class_weights(const Tensor& scores) {
  return 0.5 + 0.25 * arange(scores.shape()[1], {.dtype = scores.dtype(), .device = scores.device()});
}

// How a row of the table asks for a loss over classes.
struct Classes {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore = -100;
  double smoothing = 0;
  bool weighted = false;

  CrossEntropyOptions options(const Tensor& logits) const {
    return {.reduction = reduction, .ignore = ignore, .label_smoothing = smoothing, .weight = weight(logits)};
  }
  NllOptions nll_options(const Tensor& log_p) const {
    return {.reduction = reduction, .ignore = ignore, .weight = weight(log_p)};
  }
  Tensor weight(const Tensor& scores) const { return weighted ? class_weights(scores) : Tensor(); }
  double weight(std::int64_t c) const { return weighted ? weight_of(c) : 1; }
};

// From log-probabilities and, for each row and class, what is wanted there.
template <class Wanted>
Ref class_losses(const Ref& log_p, const Classes& with, bool hard, const Wanted& wanted) {
  Ref losses{{log_p.shape[0]}, {}};
  const std::int64_t classes = log_p.shape[1];
  double total = 0, count = 0;
  for (std::int64_t r = 0; r < log_p.shape[0]; ++r) {
    double loss = 0, sum = 0, weight = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = wanted(r, c);
      sum += target;
      weight += with.weight(c) * target;
      const double smooth = (1 - with.smoothing) * target + with.smoothing / static_cast<double>(classes);
      loss -= with.weight(c) * smooth * at(log_p, {r, c});
    }
    const bool counts = !hard || sum > 0;  // an ignored row wants nothing
    losses.v.push_back(counts ? loss : 0);
    total += losses.v.back();
    count += hard ? weight : 1;
  }
  if (with.reduction == Reduction::none) return losses;
  return Ref{{}, {with.reduction == Reduction::sum ? total : total / count}};
}

Ref hard_losses(const Ref& log_p, const Ref& target, const Classes& with) {
  return class_losses(log_p, with, true, [&](std::int64_t r, std::int64_t c) {
    const auto wanted = static_cast<std::int64_t>(at(target, {r}));
    return wanted == c && wanted != with.ignore ? 1.0 : 0.0;
  });
}

OpCase cross_entropy_row(const std::string& variant, const Classes& with) {
  return {
      .name = "cross_entropy" + variant,
      .inputs =
          [](Maker& make, Size size) {
            const Extent n = extent_of(size);
            const Tensor logits = make.uniform({n.rows, n.cols}, -6, 6);
            return Tensors{logits, make.index({n.rows}, n.cols)};
          },
      .call = [with](const Tensors& in) { return cross_entropy(in[0], in[1], with.options(in[0])); },
      .reference = [with](const std::vector<Ref>& in) { return hard_losses(log_softmax_of(in[0], 1, 1), in[1], with); },
      .tolerance = with.reduction == Reduction::none ? 20.0 : 60.0};
}

// More classes than two vectors of any width have.
OpCase many_classes(OpCase row) {
  row.name += row.name.find('/') == std::string::npos ? "/many_classes" : "_many_classes";
  row.inputs = [](Maker& make, Size size) {
    const Extent n = extent_of(size);
    return Tensors{make.uniform({n.rows, n.cols + 34}, -6, 6), make.index({n.rows}, n.cols + 34)};
  };
  row.bad.clear();
  return row;
}

OpCase soft_row(const std::string& variant, const Classes& with) {
  OpCase row = cross_entropy_row("/soft" + variant, with);
  row.inputs = [](Maker& make, Size size) {
    const Extent n = extent_of(size);
    const Tensor logits = make.uniform({n.rows, n.cols}, -6, 6);
    return Tensors{logits, make.uniform({n.rows, n.cols}, 0, 0.25)};
  };
  row.reference = [with](const std::vector<Ref>& in) {
    return class_losses(log_softmax_of(in[0], 1, 1), with, false, [&](std::int64_t r, std::int64_t c) {
      return at(in[1], {r, c});
    });
  };
  row.differentiable = {0, 1};
  row.tolerance = 100;
  return row;
}

OpCase nll_row(const std::string& variant, const Classes& with) {
  OpCase row = cross_entropy_row("", with);
  row.name = "nll_loss" + variant;
  row.call = [with](const Tensors& in) { return nll_loss(in[0], in[1], with.nll_options(in[0])); };
  row.reference = [with](const std::vector<Ref>& in) { return hard_losses(in[0], in[1], with); };
  return row;
}

// The same rows as pixels, [n, classes, 1, pixels], of images behind one another; the result is as before.
OpCase in_images(OpCase row) {
  const auto rows_of = row.call;
  const auto images = [](const Tensor& x) {  // [rows, ...] to [1 or rows / 3, 3 or rows, ...]
    const std::int64_t rows = x.shape()[0], pixels = rows % 3 == 0 ? 3 : rows;
    Shape shape{pixels == 0 ? 1 : rows / pixels, pixels};
    for (int i = 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
    return reshape(x, shape);
  };
  row.name += row.name.find('/') == std::string::npos ? "/images" : "_images";
  row.call = [=](const Tensors& in) {
    const Tensor scores = unsqueeze(transpose(images(in[0]), 1, 2), 2);
    const Tensor target = images(in[1]);
    const Tensor y =
        rows_of({scores, target.rank() == 3 ? unsqueeze(transpose(target, 1, 2), 2) : unsqueeze(target, 1)});
    return y.rank() == 0 ? y : reshape(y, {in[0].shape()[0]});
  };
  row.bad.clear();
  return row;
}

void add_class_losses(std::vector<OpCase>& rows) {
  rows.push_back(cross_entropy_row("/sum", {.reduction = Reduction::sum}));
  rows.push_back(cross_entropy_row("/none", {.reduction = Reduction::none}));
  rows.push_back(cross_entropy_row("/ignore", {.reduction = Reduction::sum, .ignore = 0}));
  rows.push_back(many_classes(cross_entropy_row("", {})));
  rows.back().skip = {Size::empty};  // 0 / 0
  rows.push_back(many_classes(cross_entropy_row("/none", {.reduction = Reduction::none, .ignore = 0})));
  rows.push_back(cross_entropy_row("/weight", {.weighted = true}));
  rows.back().skip = {Size::empty};  // 0 / 0
  rows.push_back(cross_entropy_row("/smoothing", {.smoothing = 0.25}));
  rows.back().bad = {{[] {
                        cross_entropy(ones({2, 3}), arange(2), {.label_smoothing = 1});
                      },
                      {"cross_entropy", "label_smoothing must be in [0, 1), got 1", "cases.cpp"}},
                     {[] {
                        cross_entropy(ones({2, 3}), arange(2), {.weight = ones({2})});
                      },
                      {"cross_entropy", "weight must have shape [3], got [2]", "cases.cpp"}},
                     {[] {
                        cross_entropy(ones({2, 3}), arange(2), {.weight = arange(3)});
                      },
                      {"cross_entropy", "weight must be f32 like logits, got i64"}}};
  rows.push_back(cross_entropy_row("/weight_smoothing_ignore",
                                   {.reduction = Reduction::none, .ignore = 1, .smoothing = 0.5, .weighted = true}));
  rows.push_back(cross_entropy_row("/weight_smoothing_mean", {.smoothing = 0.5, .weighted = true}));
  rows.push_back(cross_entropy_row("/ragged", {.reduction = Reduction::none, .smoothing = 0.125}));
  rows.back().call = [](const Tensors& in) {
    return cross_entropy(in_three_sequences(in[0]), in_three_sequences(in[1]),
                         {.reduction = Reduction::none, .label_smoothing = 0.125});
  };
  rows.back().bad = {
      {[] {
         cross_entropy(Ragged::from_lengths(ones({3, 2}), {1, 2}), Ragged::from_lengths(arange(3), {2, 1}));
       },
       {"cross_entropy", "the same lengths", "cases.cpp"}}};
  rows.push_back(soft_row("", {}));
  rows.back().bad = {{[] {
                        cross_entropy(ones({2, 3}), ones({2, 2}));
                      },
                      {"cross_entropy", "target must have shape [2, 3], got [2, 2]", "cases.cpp"}}};
  rows.push_back(soft_row("_none", {.reduction = Reduction::none, .smoothing = 0.25, .weighted = true}));
  rows.push_back(soft_row("_sum", {.reduction = Reduction::sum, .weighted = true}));

  rows.push_back(in_images(cross_entropy_row("", {})));
  rows.push_back(in_images(
      cross_entropy_row("/none", {.reduction = Reduction::none, .ignore = 1, .smoothing = 0.5, .weighted = true})));
  rows.push_back(in_images(soft_row("_none", {.reduction = Reduction::none, .smoothing = 0.25, .weighted = true})));
  rows.push_back(in_images(soft_row("", {})));
  rows.push_back(in_images(nll_row("/sum", {.reduction = Reduction::sum, .ignore = 1, .weighted = true})));
  rows.push_back(in_images(nll_row("/none", {.reduction = Reduction::none})));

  rows.push_back(nll_row("", {}));
  rows.back().bad = {{[] {
                        nll_loss(ones({2, 3}), tensor({0, 3}, {.dtype = i64}));
                      },
                      {"nll_loss", "[0, 3)", "got 3 at position 1", "cases.cpp"}},
                     {[] { nll_loss(ones({3}), arange(3)); }, {"nll_loss", "target must have shape [], got [3]"}},
                     {[] { nll_loss(ones({}), arange(3)); }, {"nll_loss", "[n, classes, ...], got []", "cases.cpp"}},
                     {[] {
                        nll_loss(ones({2, 3}), Tensor());
                      },
                      {"nll_loss", "target must be defined"}},
                     {[] {
                        nll_loss(ones({2, 3}), ones({2}));
                      },
                      {"nll_loss", "target must be i32 or i64, got f32"}}};
  rows.push_back(nll_row("/sum", {.reduction = Reduction::sum, .ignore = 1, .weighted = true}));
  rows.push_back(nll_row("/none", {.reduction = Reduction::none, .ignore = 0}));
  rows.push_back(nll_row("/weight", {.weighted = true}));
  rows.back().skip = {Size::empty};
  rows.push_back(nll_row("/ragged", {.reduction = Reduction::none}));
  rows.back().call = [](const Tensors& in) {
    return nll_loss(in_three_sequences(in[0]), in_three_sequences(in[1]), {.reduction = Reduction::none});
  };
  rows.back().bad = {{[] {
                        nll_loss(Ragged::from_lengths(ones({3, 2}), {1, 2}), Ragged::from_lengths(arange(3), {2, 1}));
                      },
                      {"nll_loss", "the same lengths", "cases.cpp"}}};
}

OpCase embedding_row() {
  return {.name = "embedding",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor table = make.uniform({5, n.cols});
                return Tensors{table, make.index({n.rows, 2}, 5)};
              },
          .call = [](const Tensors& in) { return embedding(in[0], in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[1].shape[0], 2, in[0].shape[1]}, [&](const auto& i) {
                  return at(in[0], {static_cast<std::int64_t>(at(in[1], {i[0], i[1]})), i[2]});
                });
              },
          .tolerance = 0,
          .bad = {{[] {
                     embedding(ones({5, 2}), tensor({1, 5}, {.dtype = i64}));
                   },
                   {"embedding", "[0, 5)", "got 5 at position 1", "cases.cpp"}},
                  {[] {
                     embedding(ones({5, 2}), tensor({-1}, {.dtype = i32}));
                   },
                   {"embedding", "got -1 at position 0"}},
                  {[] {
                     embedding(ones({5, 2}), ones({2}));
                   },
                   {"embedding", "index must be i32 or i64, got f32"}},
                  {[] { embedding(full({}, 1), arange(1)); }, {"embedding", "table must have shape [rows, ...]"}},
                  {[] {
                     embedding(ones({1, 1, 1, 1, 1}), zeros({1, 1, 1, 1, 1}, {.dtype = i64}));
                   },
                   {"embedding", "more than 8 axes"}}}};
}

}  // namespace

std::vector<OpCase> softmax_cases() {
  std::vector<OpCase> rows;
  for (const bool log : {false, true}) {
    rows.push_back(softmax_row(log, 1, 1, ""));
    rows.push_back(softmax_row(log, 0, 1, "/columns"));
    rows.push_back(softmax_row(log, 1, 2.5, "/temperature"));
  }
  rows.push_back(cross_entropy_row("", {}));
  rows.back().bad = {{[] {
                        cross_entropy(ones({2, 3}), tensor({0, 3}, {.dtype = i64}));
                      },
                      {"cross_entropy", "[0, 3)", "got 3 at position 1", "cases.cpp"}},
                     {[] {
                        cross_entropy(ones({2, 3}), arange(3));
                      },
                      {"cross_entropy", "target must have shape [2], got [3]"}},
                     {[] {
                        cross_entropy(ones({2, 3}), ones({2}));
                      },
                      {"cross_entropy", "class numbers", "i32 or i64", "got f32 [2]"}},
                     {[] {
                        cross_entropy(ones({2, 3, 4}), zeros({2, 3}, {.dtype = i64}));
                      },
                      {"cross_entropy", "target must have shape [2, 4], got [2, 3]", "cases.cpp"}},
                     {[] {
                        cross_entropy(ones({2, 3, 4}), ones({2, 4}));
                      },
                      {"cross_entropy", "target must have shape [2, 3, 4], got [2, 4]"}},
                     {[] { cross_entropy(Ragged::from_lengths(ones({3}), {3}), arange(3)); },
                      {"cross_entropy", "[total, classes, ...], got [3]", "cases.cpp"}},
                     {[] { cross_entropy(ones({}), arange(1)); },
                      {"cross_entropy", "logits must have shape [classes] or [n, classes, ...], got []"}}};
  add_class_losses(rows);
  rows.push_back(embedding_row());
  return rows;
}

}  // namespace reel::test
