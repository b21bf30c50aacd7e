#include "reel/ops/sparse.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

constexpr std::int64_t kTable = 9;

OpCase gather_adds(const std::string& variant, std::function<Tensor(const Tensor&, const Tensor&)> op) {
  return {.name = "gather_add" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({kTable, n.cols}), make.index({n.rows, 4}, kTable)};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[1].shape[0], in[0].shape[1]}, [&](const Index& i) {
                  double sum = 0;
                  for (std::int64_t k = 0; k < 4; ++k)
                    sum += at(in[0], {static_cast<std::int64_t>(at(in[1], {i[0], k})), i[1]});
                  return sum;
                });
              },
          .bad = {{[op] {
                     op(ones({2, 2}), tensor({0, 1, 0, 2}, {1, 4}, {.dtype = i64}));
                   },
                   {"gather_add", "[0, 2)", "got 2 at position 3", "cases.cpp"}},
                  {[op] { op(arange(2), arange(2)); }, {"gather_add"}}}};
}

// One row per sequence of `rows` indices into a table of kTable rows; inputs: table, index and, if weighted, weights.
OpCase bags(const std::string& name, bool weighted, Bag bag, std::function<Tensor(const Tensors&)> op) {
  OpCase row{
      .name = name,
      .inputs =
          [=](Maker& make, Size size) {
            const Extent n = extent_of(size);
            const Shape table{kTable, n.cols};
            Tensors in{bag == Bag::max ? make.distinct(table) : make.uniform(table), make.index({n.rows}, kTable)};
            if (weighted) in.push_back(make.uniform({n.rows}));
            return in;
          },
      .call = op,
      .reference =
          [=](const std::vector<Ref>& in) {
            const std::int64_t width = in[0].shape[1];
            Ref y{{sequence_lengths(in[1].shape[0]).size(), width}, {}};
            for_each_sequence(in[1].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
              for (std::int64_t c = 0; c < width; ++c) {
                double sum = 0, most = -100;
                for (std::int64_t j = begin; j < begin + length; ++j) {
                  const double value = at(in[0], {static_cast<std::int64_t>(at(in[1], {j})), c});
                  sum += (weighted ? at(in[2], {j}) : 1) * value;
                  most = std::max(most, value);
                }
                const double by = bag == Bag::mean && length > 0 ? static_cast<double>(length) : 1;
                y.v.push_back(bag == Bag::max ? most : sum / by);
              }
            });
            return y;
          },
      .tolerance = 20};
  if (weighted) row.differentiable = {0, 2};
  return row;
}

Ragged two_bags() { return Ragged::from_lengths(arange(3), {1, 2}); }

}  // namespace

std::vector<OpCase> sparse_cases() {
  std::vector<OpCase> rows;
  rows.push_back(gather_adds("", [](const Tensor& table, const Tensor& index) { return gather_add(table, index); }));
  rows.push_back(gather_adds("/ragged", [](const Tensor& table, const Tensor& index) {
    return gather_add(table, Ragged::from_lengths(index, {0, index.shape()[0]})).values();
  }));
  const auto bag = [](Bag bag) {
    return [bag](const Tensors& in) { return embedding_bag(in[0], in_sequences(in[1]), bag); };
  };
  const auto weighted = [](Bag bag) {
    return [bag](const Tensors& in) { return embedding_bag(in[0], in_sequences(in[1]), in_sequences(in[2]), bag); };
  };
  rows.push_back(bags("embedding_bag", false, Bag::sum, bag(Bag::sum)));
  rows.back().bad = {{[] {
                        embedding_bag(ones({2, 2}), two_bags());
                      },
                      {"embedding_bag", "[0, 2)", "got 2 at position 2", "cases.cpp"}},
                     {[] { embedding_bag(arange(3), two_bags()); }, {"table must be f32 or f64, got i64"}},
                     {[] { embedding_bag(full({}, 1), two_bags()); }, {"table must have shape [rows, ...], got []"}},
                     {[] {
                        embedding_bag(ones({3, 2}), two_bags().with(zeros({3, 1}, {.dtype = i64})));
                      },
                      {"index must have shape [total], got [3, 1]"}}};
  rows.push_back(bags("embedding_bag/mean", false, Bag::mean, bag(Bag::mean)));
  // An empty bag's infinity would make every difference NaN.
  rows.push_back(bags("embedding_bag/max", false, Bag::max, [](const Tensors& in) {
    return maximum(embedding_bag(in[0], in_sequences(in[1]), Bag::max), -100);
  }));
  rows.push_back(bags("embedding_bag/weights", true, Bag::sum, weighted(Bag::sum)));
  rows.back().bad = {{[] {
                        embedding_bag(ones({3, 2}), two_bags(), two_bags().with(ones({3})), Bag::max);
                      },
                      {"embedding_bag", "a sum or a mean", "cases.cpp"}},
                     {[] {
                        embedding_bag(ones({3, 2}), two_bags(), Ragged::from_lengths(ones({3}), {2, 1}));
                      },
                      {"embedding_bag", "same lengths"}},
                     {[] {
                        embedding_bag(ones({3, 2}), two_bags(), two_bags().with(ones({3}, {.dtype = f64})));
                      },
                      {"embedding_bag", "weights must be f32 like table, got f64"}}};
  rows.push_back(bags("embedding_bag/weighted_mean", true, Bag::mean, weighted(Bag::mean)));
  rows.push_back(bags("spmm", true, Bag::sum,
                      [](const Tensors& in) { return spmm(in_sequences(in[1]), in_sequences(in[2]), in[0]); }));
  rows.back().bad = {{[] {
                        spmm(two_bags(), two_bags().with(ones({3})), ones({2, 1}));
                      },
                      {"spmm", "[0, 2)", "got 2 at position 2", "cases.cpp"}}};
  return rows;
}

}  // namespace reel::test
