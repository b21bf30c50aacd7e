#include "reel/ops/logical.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/unary.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Pair = std::function<Tensor(const Tensor&, const Tensor&)>;
using Truth = double (*)(double, double);

// Two tensors of integers 0, 1 and 2; the second a row if `broadcasts`.
OpCase pair(const std::string& name, const Pair& op, Truth f, bool broadcasts) {
  return {.name = name,
          .inputs =
              [broadcasts](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor a = make.index({n.rows, n.cols}, 3);
                return Tensors{a, make.index(broadcasts ? Shape{n.cols} : Shape{n.rows, n.cols}, 3)};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1]); },
          .reference =
              [f](const std::vector<Ref>& in) {
                return filled(in[0].shape, [&](const auto& i) { return f(at(in[0], i), broadcast_at(in[1], i)); });
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0};
}

OpCase single(const std::string& name, std::function<Tensor(const Tensor&)> op, double (*f)(double)) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [f](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (double& v : y.v) v = f(v);
                return y;
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0};
}

using TensorPair = Tensor (*)(const Tensor&, const Tensor&, SourceLocation);
using RaggedPair = Ragged (*)(const Ragged&, const Ragged&, SourceLocation);

void add_pairs(std::vector<OpCase>& rows, const std::string& name, TensorPair op, RaggedPair ragged_op, Truth f) {
  const Pair call = [op](const Tensor& a, const Tensor& b) { return op(a, b, SourceLocation::current()); };
  rows.push_back(pair(name, call, f, false));
  rows.back().bad = {{[call] { call(ones({2}), ones({3})); }, {name, "[2]", "[3]", "cases.cpp"}},
                     {[call] { call(Tensor(), ones({3})); }, {name, "a must be defined"}},
                     {[call] { call(ones({3}), Tensor()); }, {name, "b must be defined"}}};
  rows.push_back(pair(name + "/broadcast", call, f, true));
  rows.push_back(pair(
      name + "/ragged",
      [ragged_op](const Tensor& a, const Tensor& b) {
        return ragged_op(in_three_sequences(a), in_three_sequences(b), SourceLocation::current()).values();
      },
      f, false));
  rows.back().bad = {
      {[ragged_op] {
         const Tensor x = ones({3, 1});
         ragged_op(Ragged::from_lengths(x, {1, 2}), Ragged::from_lengths(x, {2, 1}), SourceLocation::current());
       },
       {name, "the same lengths", "cases.cpp"}}};
}

using RaggedOperand = Ragged (*)(const Ragged&, const Arg&);

// A Ragged against a Ragged, against trailing axes, and against a number.
void add_comparisons(std::vector<OpCase>& rows, const std::string& name, RaggedPair op, RaggedOperand beside, Truth f) {
  rows.push_back(pair(
      name + "/ragged",
      [op](const Tensor& a, const Tensor& b) {
        return op(in_three_sequences(a), in_three_sequences(b), SourceLocation::current()).values();
      },
      f, false));
  rows.back().bad = {{[op] {
                        const Tensor x = ones({3, 1});
                        op(Ragged::from_lengths(x, {1, 2}), Ragged::from_lengths(x, {2, 1}), SourceLocation::current());
                      },
                      {name, "the same lengths", "cases.cpp"}}};
  rows.push_back(pair(
      name + "/ragged_row",
      [beside](const Tensor& a, const Tensor& b) { return beside(in_three_sequences(a), b).values(); }, f, true));
  rows.push_back(pair(
      name + "/ragged_number",
      [beside](const Tensor& a, const Tensor&) { return beside(in_three_sequences(a), 1).values(); }, nullptr, false));
  rows.back().reference = [f](const std::vector<Ref>& in) {
    Ref y = in[0];
    for (double& v : y.v) v = f(v, 1);
    return y;
  };
}

}  // namespace

std::vector<OpCase> logical_cases() {
  std::vector<OpCase> rows;
  add_pairs(rows, "logical_and", logical_and, logical_and, [](double a, double b) { return double(a != 0 && b != 0); });
  add_pairs(rows, "logical_or", logical_or, logical_or, [](double a, double b) { return double(a != 0 || b != 0); });
  add_pairs(rows, "logical_xor", logical_xor, logical_xor,
            [](double a, double b) { return double((a != 0) != (b != 0)); });

  rows.push_back(single(
      "logical_not", [](const Tensor& x) { return logical_not(relu(x)); }, [](double x) { return double(x <= 0); }));
  rows.back().bad = {{[] { logical_not(Tensor()); }, {"logical_not", "x must be defined", "cases.cpp"}}};
  rows.push_back(single(
      "logical_not/ragged", [](const Tensor& x) { return logical_not(in_three_sequences(relu(x))).values(); },
      [](double x) { return double(x <= 0); }));
  // sqrt gives NaN below 0, and the logarithm of relu -inf.
  rows.push_back(single(
      "isnan", [](const Tensor& x) { return isnan(sqrt(x)); }, [](double x) { return double(x < 0); }));
  rows.back().bad = {{[] { isnan(Tensor()); }, {"isnan", "x must be defined", "cases.cpp"}}};
  rows.push_back(single(
      "isnan/ragged", [](const Tensor& x) { return isnan(in_three_sequences(sqrt(x))).values(); },
      [](double x) { return double(x < 0); }));
  rows.push_back(single(
      "isinf", [](const Tensor& x) { return isinf(log(relu(x))); }, [](double x) { return double(x <= 0); }));
  rows.back().bad = {{[] { isinf(Tensor()); }, {"isinf", "x must be defined", "cases.cpp"}}};
  rows.push_back(single(
      "isinf/ragged", [](const Tensor& x) { return isinf(in_three_sequences(log(relu(x)))).values(); },
      [](double x) { return double(x <= 0); }));
  rows.push_back(single(
      "isfinite", [](const Tensor& x) { return isfinite(log(x)); }, [](double x) { return double(x > 0); }));
  rows.back().bad = {{[] { isfinite(Tensor()); }, {"isfinite", "x must be defined", "cases.cpp"}}};
  rows.push_back(single(
      "isfinite/ragged", [](const Tensor& x) { return isfinite(in_three_sequences(log(relu(x)))).values(); },
      [](double x) { return double(x > 0); }));

  add_comparisons(rows, "equal", equal, equal, [](double a, double b) { return double(a == b); });
  add_comparisons(rows, "not_equal", not_equal, not_equal, [](double a, double b) { return double(a != b); });
  add_comparisons(rows, "less", less, less, [](double a, double b) { return double(a < b); });
  add_comparisons(rows, "less_equal", less_equal, less_equal, [](double a, double b) { return double(a <= b); });
  add_comparisons(rows, "greater", greater, greater, [](double a, double b) { return double(a > b); });
  add_comparisons(rows, "greater_equal", greater_equal, greater_equal,
                  [](double a, double b) { return double(a >= b); });
  return rows;
}

}  // namespace reel::test
