// Ops along an axis of a tensor without axes, which counts as a vector of one.

#include <cmath>

#include "reel/ops/create.h"
#include "reel/ops/order.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

OpCase number(const std::string& op, std::function<Tensor(const Tensor&)> call, double (*f)(double), int order = 2) {
  OpCase row{.name = op + "/number",
             .inputs = [](Maker& make, Size) { return Tensors{make.uniform({}, 0.5, 2)}; },
             .call = [call](const Tensors& in) { return call(in[0]); },
             .reference =
                 [f](const std::vector<Ref>& in) {
                   return Ref{{}, {f(in[0].v[0])}};
                 },
             .order = order};
  if (order == 0) row.differentiable = {};
  return row;
}

double itself(double x) { return x; }
double zero(double) { return 0; }
double one(double) { return 1; }

}  // namespace

std::vector<OpCase> number_cases() {
  std::vector<OpCase> rows = {number(
                                  "softmax", [](const Tensor& x) { return softmax(x, 0); }, one),
                              number(
                                  "log_softmax", [](const Tensor& x) { return log_softmax(x, -1, 2); }, zero),
                              number(
                                  "sum", [](const Tensor& x) { return sum(x, 0); }, itself),
                              number(
                                  "mean", [](const Tensor& x) { return mean(x, -1); }, itself),
                              number(
                                  "max", [](const Tensor& x) { return max(x, 0, Keep::yes); }, itself),
                              number(
                                  "amin", [](const Tensor& x) { return amin(x, 0); }, itself),
                              number(
                                  "prod", [](const Tensor& x) { return prod(x, 0); }, itself),
                              number(
                                  "max_which", [](const Tensor& x) { return max_which(x, 0).y; }, itself),
                              number(
                                  "argmin", [](const Tensor& x) { return argmin(x, -1, Keep::yes); }, zero, 0),
                              number(
                                  "logsumexp", [](const Tensor& x) { return logsumexp(x, 0); }, itself),
                              number(
                                  "norm", [](const Tensor& x) { return norm(x, 0); }, itself),
                              number(
                                  "cumsum", [](const Tensor& x) { return cumsum(x, 0); }, itself),
                              number(
                                  "cumprod", [](const Tensor& x) { return cumprod(x, -1, {.exclusive = true}); }, one),
                              number(
                                  "linear_scan", [](const Tensor& x) { return linear_scan(x, x, 0); }, itself),
                              number(
                                  "sort", [](const Tensor& x) { return sort(x).values; }, itself),
                              number(
                                  "argsort", [](const Tensor& x) { return argsort(x, 0); }, zero, 0),
                              number(
                                  "topk", [](const Tensor& x) { return topk(x, 1).values; }, itself)};
  rows[0].bad = {{[] { softmax(ones({}), 1); }, {"softmax", "axis must be in [-1, 1), got 1", "cases.cpp"}},
                 {[] { sum(ones({}), 1); }, {"sum", "axis must be in [-1, 1), got 1"}},
                 {[] {
                    sum(ones({}), {0, -1});
                  },
                  {"sum", "axes must differ"}},
                 {[] { argmax(ones({}), -2); }, {"argmax", "axis must be in [-1, 1), got -2", "cases.cpp"}},
                 {[] { cumsum(ones({}), 1); }, {"cumsum", "axis must be in [-1, 1), got 1", "cases.cpp"}},
                 {[] { cumsum(Tensor(), 0); }, {"cumsum", "x must be defined"}},
                 {[] { argmax(Tensor(), 0); }, {"argmax", "x must be defined"}},
                 {[] { topk(ones({}), 2); }, {"topk", "[0, 1]", "got 2", "cases.cpp"}}};
  return rows;
}

}  // namespace reel::test
