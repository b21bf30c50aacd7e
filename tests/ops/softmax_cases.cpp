#include "reel/ops/softmax.h"

#include <cmath>

#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/tests/ops/reference.h"

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
          .rows_alone = axis == 1,
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

OpCase cross_entropy_row(const std::string& variant, CrossEntropyOptions options) {
  return {.name = "cross_entropy" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor logits = make.uniform({n.rows, n.cols}, -6, 6);
                return Tensors{logits, make.index({n.rows}, n.cols)};
              },
          .call = [options](const Tensors& in) { return cross_entropy(in[0], in[1], options); },
          .reference =
              [options](const std::vector<Ref>& in) {
                const Ref log_p = log_softmax_of(in[0], 1, 1);
                Ref losses{{in[0].shape[0]}, {}};
                double total = 0, count = 0;
                for (std::int64_t r = 0; r < in[0].shape[0]; ++r) {
                  const auto target = static_cast<std::int64_t>(at(in[1], {r}));
                  const bool counts = target != options.ignore;
                  losses.v.push_back(counts ? -at(log_p, {r, target}) : 0);
                  total += losses.v.back();
                  count += counts;
                }
                if (options.reduction == Reduction::none) return losses;
                return Ref{{}, {options.reduction == Reduction::sum ? total : total / count}};
              },
          .tolerance = options.reduction == Reduction::none ? 20.0 : 60.0,
          .rows_alone = options.reduction == Reduction::none};
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
                  {[] { embedding(full({}, 1), arange(1)); }, {"embedding", "table must have shape [rows, ...]"}}}};
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
                      {"cross_entropy", "target must be i32 or i64, got f32"}},
                     {[] { cross_entropy(ones({3}), arange(3)); },
                      {"cross_entropy", "logits must have shape [rows, classes], got [3]"}}};
  rows.push_back(cross_entropy_row("/sum", {.reduction = Reduction::sum}));
  rows.push_back(cross_entropy_row("/none", {.reduction = Reduction::none}));
  rows.push_back(cross_entropy_row("/ignore", {.reduction = Reduction::sum, .ignore = 0}));
  rows.push_back(embedding_row());
  return rows;
}

}  // namespace reel::test
