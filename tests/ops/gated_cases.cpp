#include "reel/ops/gated.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/create.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Op = Tensor (*)(const Tensor&, SourceLocation);
using RaggedOp = Ragged (*)(const Ragged&, SourceLocation);

// a f(b) of [rows, 2 cols].
void add_rows(std::vector<OpCase>& rows, const std::string& name, Op op, RaggedOp ragged_op, double (*f)(double)) {
  const OpCase row = {.name = name,
                      .inputs =
                          [](Maker& make, Size size) {
                            const Extent n = extent_of(size);
                            return Tensors{make.uniform({n.rows, 2 * n.cols}, -4, 4)};
                          },
                      .call = [op](const Tensors& in) { return op(in[0], SourceLocation::current()); },
                      .reference =
                          [f](const std::vector<Ref>& in) {
                            const std::int64_t n = in[0].shape[1] / 2;
                            return filled({in[0].shape[0], n}, [&](const auto& i) {
                              return at(in[0], i) * f(at(in[0], {i[0], i[1] + n}));
                            });
                          },
                      .bad = {{[op] {
                                 op(ones({2, 3}), SourceLocation::current());
                               },
                               {name, "[.., 2 n], got [2, 3]", "cases.cpp"}},
                              {[op] { op(full({}, 1), SourceLocation::current()); }, {name, "[.., 2 n], got []"}},
                              {[op] { op(arange(4), SourceLocation::current()); }, {name, "x must be f32 or f64"}}}};
  rows.push_back(row);
  rows.push_back(row);
  rows.back().name = name + "/ragged";
  rows.back().call = [ragged_op](const Tensors& in) {
    return ragged_op(in_three_sequences(in[0]), SourceLocation::current()).values();
  };
  rows.back().bad = {{[ragged_op] { ragged_op(in_three_sequences(ones({4})), SourceLocation::current()); },
                      {name, "[total, .., columns], got [4]", "cases.cpp"}}};
}

OpCase maxout_row(const std::string& name, std::function<Tensor(const Tensor&)> op, bool which) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.distinct({n.rows, 3 * n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [which](const std::vector<Ref>& in) {
                return filled({in[0].shape[0], in[0].shape[1] / 3}, [&](const auto& i) {
                  std::int64_t best = 0;
                  for (std::int64_t k = 1; k < 3; ++k)
                    if (at(in[0], {i[0], 3 * i[1] + k}) > at(in[0], {i[0], 3 * i[1] + best})) best = k;
                  return which ? static_cast<double>(best) : at(in[0], {i[0], 3 * i[1] + best});
                });
              },
          .order = which ? 0 : 2,
          .differentiable = which ? std::vector<int>{} : std::vector<int>{0},
          .tolerance = 0};
}

}  // namespace

std::vector<OpCase> gated_cases() {
  std::vector<OpCase> rows;
  add_rows(rows, "glu", glu, glu, [](double b) { return 1 / (1 + std::exp(-b)); });
  add_rows(rows, "geglu", geglu, geglu, [](double b) { return 0.5 * b * std::erfc(-b / std::sqrt(2.0)); });
  add_rows(rows, "swiglu", swiglu, swiglu, [](double b) { return b / (1 + std::exp(-b)); });
  rows.push_back(maxout_row(
      "maxout", [](const Tensor& x) { return maxout(x, 3); }, false));
  rows.back().bad = {{[] {
                        maxout(ones({2, 3}), 2);
                      },
                      {"maxout", "[.., n pieces]", "got [2, 3] and 2 pieces", "cases.cpp"}},
                     {[] { maxout(ones({2}), 0); }, {"maxout", "pieces >= 1"}}};
  rows.push_back(maxout_row(
      "maxout/ragged", [](const Tensor& x) { return maxout(in_three_sequences(x), 3).values(); }, false));
  rows.back().bad = {
      {[] { maxout(in_three_sequences(ones({3})), 3); }, {"maxout", "[total, .., columns]", "cases.cpp"}}};
  rows.push_back(maxout_row(
      "maxout_which", [](const Tensor& x) { return maxout_which(x, 3).y; }, false));
  rows.back().bad = {
      {[] { maxout_which(arange(4), 2); }, {"maxout_which", "x must be f32 or f64, got i64", "cases.cpp"}}};
  rows.push_back(maxout_row(
      "maxout_which/place", [](const Tensor& x) { return maxout_which(x, 3).which; }, true));
  return rows;
}

}  // namespace reel::test
