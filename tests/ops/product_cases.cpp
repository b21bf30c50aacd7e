#include <algorithm>

#include "reel/core/ragged.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

Ref multiplied(const Ref& a, const Ref& b) {
  const int ra = a.shape.rank(), rb = b.shape.rank();
  const std::int64_t m = a.shape[ra - 2], k = a.shape[ra - 1], n = b.shape[rb - 1];
  Shape shape = broadcast_shape(Shape::of(a.shape.begin(), ra - 2), Shape::of(b.shape.begin(), rb - 2));
  shape.push_back(m);
  shape.push_back(n);
  return filled(shape, [&](const std::vector<std::int64_t>& i) {
    std::vector<std::int64_t> at_a = i, at_b = i;
    double total = 0;
    for (std::int64_t p = 0; p < k; ++p) {
      at_a.back() = p;
      at_b[at_b.size() - 2] = p;
      std::vector<std::int64_t> own_a(at_a.end() - ra, at_a.end()), own_b(at_b.end() - rb, at_b.end());
      for (int d = 0; d < ra - 2; ++d)
        if (a.shape[d] == 1) own_a[static_cast<std::size_t>(d)] = 0;
      for (int d = 0; d < rb - 2; ++d)
        if (b.shape[d] == 1) own_b[static_cast<std::size_t>(d)] = 0;
      total += at(a, own_a) * at(b, own_b);
    }
    return total;
  });
}

OpCase matmul_row(const std::string& variant, std::function<std::pair<Shape, Shape>(Extent)> shapes) {
  return {.name = "matmul" + variant,
          .inputs =
              [shapes](Maker& make, Size size) {
                const auto [a, b] = shapes(extent_of(size));
                const Tensor left = make.uniform(a, -1, 1);
                return Tensors{left, make.uniform(b, -1, 1)};
              },
          .call = [](const Tensors& in) { return matmul(in[0], in[1]); },
          .reference = [](const std::vector<Ref>& in) { return multiplied(in[0], in[1]); },
          .differentiable = {0, 1},
          .tolerance = 100};
}

// Both stored the other way round.
OpCase transposed_row() {
  const auto swapped = [](const Ref& x) {
    return filled({x.shape[0], x.shape[2], x.shape[1]}, [&](const auto& i) { return at(x, {i[0], i[2], i[1]}); });
  };
  OpCase row = matmul_row("/transposed", [](Extent n) {
    return std::pair<Shape, Shape>{{n.rows, 4, 3}, {n.rows, 2, 4}};
  });
  row.call = [](const Tensors& in) { return matmul(in[0], in[1], {.transpose_a = true, .transpose_b = true}); };
  row.reference = [=](const std::vector<Ref>& in) { return multiplied(swapped(in[0]), swapped(in[1])); };
  row.bad = {{[] {
                matmul(ones({3}), ones({3, 2}), {.transpose_a = true});
              },
              {"matmul", "a to be transposed must have at least two axes, got shape [3]", "cases.cpp"}},
             {[] {
                matmul(ones({2, 3}), ones({3, 2}), {.transpose_b = true});
              },
              {"matmul", "[2, 3]", "[2, 3]"}}};
  return row;
}

OpCase vector_row() {
  OpCase row = matmul_row("/vector", {});
  row.inputs = [](Maker& make, Size size) {
    const Extent n = extent_of(size);
    const Tensor a = make.uniform({n.rows, n.cols}, -1, 1);
    return Tensors{a, make.uniform({n.cols}, -1, 1)};
  };
  row.reference = [](const std::vector<Ref>& in) {
    Ref column = in[1];
    column.shape.push_back(1);
    Ref y = multiplied(in[0], column);
    y.shape.pop_back();
    return y;
  };
  return row;
}

// Either vectors of n.cols, or of n.rows and n.cols.
OpCase of_vectors(const std::string& name, bool outer) {
  return {.name = name,
          .inputs =
              [outer](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor a = make.uniform({outer ? n.rows : n.cols}, -1, 1);
                return Tensors{a, make.uniform({n.cols}, -1, 1)};
              },
          .call = [=](const Tensors& in) { return outer ? reel::outer(in[0], in[1]) : dot(in[0], in[1]); },
          .reference =
              [outer](const std::vector<Ref>& in) {
                if (outer)
                  return filled({in[0].shape[0], in[1].shape[0]},
                                [&](const auto& i) { return at(in[0], {i[0]}) * at(in[1], {i[1]}); });
                double sum = 0;
                for (std::size_t i = 0; i < in[0].v.size(); ++i) sum += in[0].v[i] * in[1].v[i];
                return Ref{{}, {sum}};
              },
          .differentiable = {0, 1},
          .tolerance = 20,
          .bad = {{[=] {
                     outer ? reel::outer(ones({2, 2}), ones({2})) : dot(ones({2, 2}), ones({2}));
                   },
                   {name + ": a must have shape [", "got [2, 2]", "cases.cpp"}},
                  {[=] { outer ? reel::outer(ones({2}), full({}, 1)) : dot(ones({2}), ones({3})); },
                   {name + ": b must have shape [", outer ? "got []" : "got [3]"}}}};
}

OpCase ragged_matmul_row(bool per_sequence) {
  return {.name = std::string("matmul/ragged") + (per_sequence ? "_each" : ""),
          .inputs =
              [=](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor x = make.uniform({n.rows, 4}, -1, 1);
                Shape shape{4, 3};
                if (per_sequence) shape = {sequence_lengths(n.rows).size(), 4u, 3u};
                return Tensors{x, make.uniform(shape, -1, 1)};
              },
          .call = [=](const Tensors& in) { return matmul(in_sequences(in[0]), in[1]).values(); },
          .reference =
              [=](const std::vector<Ref>& in) {
                if (!per_sequence) return multiplied(in[0], in[1]);
                std::vector<std::int64_t> sequence_of;  // each row
                for_each_sequence(in[0].shape[0], [&](std::int64_t s, std::int64_t, std::int64_t length) {
                  sequence_of.insert(sequence_of.end(), static_cast<std::size_t>(length), s);
                });
                return filled({in[0].shape[0], 3}, [&](const auto& i) {
                  double sum = 0;
                  for (std::int64_t k = 0; k < 4; ++k)
                    sum += at(in[0], {i[0], k}) * at(in[1], {sequence_of[static_cast<std::size_t>(i[0])], k, i[1]});
                  return sum;
                });
              },
          .differentiable = {0, 1},
          .tolerance = 20,
          .mixes_rows = per_sequence ? "each sequence has a matrix" : "",
          .bad = {{[] {
                     matmul(Ragged::from_lengths(ones({3, 4}), {1, 2}), ones({3, 4, 2}));
                   },
                   {"matmul", "b must have shape [2, 4, 2], got [3, 4, 2]", "cases.cpp"}},
                  {[] {
                     matmul(Ragged::from_lengths(ones({3}), {1, 2}), ones({2, 4, 2}));
                   },
                   {"matmul", "the values of a must have shape [total, k]"}},
                  {[] {  // which would be one vector of all sequences
                     matmul(Ragged::from_lengths(ones({3}), {1, 2}), ones({3, 3}));
                   },
                   {"matmul: the values of a must have shape [total, ..., k], got [3]", "cases.cpp"}},
                  {[] {
                     matmul(Ragged::from_lengths(ones({3, 4}), {1, 2}), ones({2, 4, 2}, {.dtype = f64}));
                   },
                   {"matmul", "b must be f32 like a, got f64"}}}};
}

OpCase linear_row(bool bias, bool relu) {
  return {.name = std::string("linear") + (bias ? "" : "/no_bias") + (relu ? "/relu" : ""),
          .inputs =
              [bias](Maker& make, Size size) {
                const Extent n = extent_of(size);
                Tensors in;
                in.push_back(make.uniform({n.rows, n.cols}, -1, 1));
                in.push_back(make.uniform({7, n.cols}, -1, 1));
                if (bias) in.push_back(make.uniform({7}, 3, 4));  // away from the kink of relu
                return in;
              },
          .call =
              [bias, relu](const Tensors& in) {
                return linear(in[0], in[1], bias ? in[2] : Tensor(), relu ? Epilogue::relu : Epilogue::none);
              },
          .reference =
              [bias, relu](const std::vector<Ref>& in) {
                return filled({in[0].shape[0], 7}, [&](const auto& i) {
                  double y = bias ? at(in[2], {i[1]}) : 0;
                  for (std::int64_t p = 0; p < in[0].shape[1]; ++p) y += at(in[0], {i[0], p}) * at(in[1], {i[1], p});
                  return relu ? std::max(y, 0.0) : y;
                });
              },
          .differentiable = bias ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1},
          .tolerance = 100,
          .bad = {{[] {
                     linear(ones({2, 3}), ones({4, 5}));
                   },
                   {"linear", "x must have shape [..., 5]", "[2, 3]", "cases.cpp"}},
                  {[] {
                     linear(ones({2, 3}), ones({3}));
                   },
                   {"linear", "weight must have shape [out, in], got [3]"}},
                  {[] {
                     linear(ones({2, 3}), ones({4, 3}), ones({3}));
                   },
                   {"linear", "bias must have shape [4], got [3]"}},
                  {[] {
                     linear(ones({2, 3}), ones({4, 3}, {.dtype = f64}));
                   },
                   {"linear", "weight must be f32 like x, got f64"}},
                  {[] {  // which would be one row of all sequences
                     linear(Ragged::from_lengths(ones({3}), {1, 2}), ones({3, 3}));
                   },
                   {"linear: the values of x must have shape [total, ..., in], got [3]", "cases.cpp"}}}};
}

}  // namespace

std::vector<OpCase> product_cases() {
  using Pair = std::pair<Shape, Shape>;
  std::vector<OpCase> rows;
  rows.push_back(matmul_row("", [](Extent n) { return Pair{{n.rows, n.cols}, {n.cols, 5}}; }));
  rows.back().bad = {
      {[] {
         matmul(ones({2, 3}), ones({4, 5}));
       },
       {"matmul", "[2, 3]", "[4, 5]", "cases.cpp"}},
      {[] {
         matmul(ones({2, 2, 3}), ones({3, 3, 5}));
       },
       {"matmul", "the axes before the last two must", "got shapes [2, 2, 3] and [3, 3, 5]", "cases.cpp"}},
      {[] {
         matmul(full({}, 1), ones({1, 1}));
       },
       {"matmul", "at least one axis"}},
      {[] { matmul(arange(3), arange(3)); }, {"matmul", "a must be f32, f64, bf16 or f16, got i64"}},
      {[] { matmul(ones({3}), ones({3}, {.dtype = f64})); }, {"matmul", "b must be f32 like a, got f64"}}};
  rows.push_back(matmul_row("/inner", [](Extent n) { return Pair{{3, n.rows}, {n.rows, n.cols}}; }));
  rows.push_back(matmul_row("/batched", [](Extent n) { return Pair{{n.rows, 3, 4}, {n.rows, 4, 2}}; }));
  rows.push_back(matmul_row("/broadcast", [](Extent n) { return Pair{{n.rows, 1, 3, 4}, {2, 4, 2}}; }));
  rows.push_back(matmul_row("/folded", [](Extent n) { return Pair{{n.rows, 3, 4}, {4, 2}}; }));
  rows.push_back(matmul_row("/shared", [](Extent n) { return Pair{{5, 4}, {n.rows, 4, 2}}; }));
  rows.push_back(transposed_row());
  rows.push_back(vector_row());
  rows.push_back(of_vectors("outer", true));
  rows.push_back(of_vectors("dot", false));
  rows.push_back(ragged_matmul_row(false));
  rows.push_back(ragged_matmul_row(true));
  rows.push_back(linear_row(true, false));
  rows.push_back(linear_row(false, false));
  rows.push_back(linear_row(true, true));
  return rows;
}

}  // namespace reel::test
