#include "reel/ops/ragged_shape.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/conv.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/ragged.h"
#include "reel/ops/softmax.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

// An op on sequences of rows [2, cols] that moves elements: `from` says for a row `i` of `length` in its result, and an index
// behind the rows', where in the sequence the element comes from; results have `longer` times as many rows.
struct Move {
  std::string name;
  std::function<Ragged(const Ragged&)> op;
  std::function<Shape(std::int64_t cols)> row;
  std::function<Index(std::int64_t i, std::int64_t length, std::int64_t cols, const Index& behind)> from;
  std::int64_t longer = 1;
};

OpCase moved(const Move& move) {
  return {.name = move.name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, 2, n.cols})};
              },
          .call = [move](const Tensors& in) { return move.op(in_sequences(in[0])).values(); },
          .reference =
              [move](const std::vector<Ref>& in) {
                const Shape row = move.row(in[0].shape[2]);
                Ref y{{move.longer * in[0].shape[0]}, {}};
                for (const std::int64_t size : row) y.shape.push_back(size);
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t i = 0; i < move.longer * length; ++i)
                    for (std::int64_t flat = 0; flat < row.size(); ++flat) {
                      Index place = move.from(i, length, in[0].shape[2], index_of(flat, row));
                      place[0] += begin;
                      y.v.push_back(at(in[0], place));
                    }
                });
                return y;
              },
          .tolerance = 0};
}

Ragged one_row() { return Ragged::from_lengths(ones({1, 2, 3}), {1}); }

// Each op refuses what would move rows.
std::vector<BadCall> bad_calls() {
  const auto axis = [](const std::string& op) {
    return std::vector<std::string>{op, "behind the rows' axis 0", "cases.cpp"};
  };
  return {{[] { flatten(one_row(), 0); }, axis("flatten")},
          {[] { transpose(one_row(), 0, 1); }, axis("transpose")},
          {[] { unsqueeze(one_row(), 0); }, axis("unsqueeze")},
          {[] { squeeze(one_row(), -3); }, axis("squeeze")},
          {[] { slice(one_row(), 0, 0, 1, 1); }, axis("slice")},
          {[] { narrow(one_row(), 0, 0, 1); }, axis("narrow")},
          {[] { select(one_row(), 0, 0); }, axis("select")},
          {[] { split(one_row(), {1}, 0); }, axis("split")},
          {[] { stack({one_row()}, 0); }, axis("stack")},
          {[] {
             tril(Ragged::from_lengths(ones({2, 3}), {2}));
           },
           axis("tril")},
          {[] {
             triu(Ragged::from_lengths(ones({2, 3}), {2}));
           },
           axis("triu")},
          {[] {
             permute(one_row(), {1, 0, 2});
           },
           {"permute", "must stay first, got [1, 0, 2]", "cases.cpp"}},
          {[] {
             reshape(one_row(), {2, 3});
           },
           {"reshape", "begins with -1, the rows, is required for a Ragged, got [2, 3]", "cases.cpp"}},
          {[] {
             reshape(one_row(), {-1, 4});
           },
           {"reshape", "as many elements in a row as [1, 2, 3], got [-1, 4]", "cases.cpp"}},
          {[] {
             expand(one_row(), {-1, 2, 2, 3});
           },
           {"expand", "as many axes as the values, [1, 2, 3], is required", "got [-1, 2, 2, 3]", "cases.cpp"}},
          {[] { stack(std::vector<Ragged>{}); }, {"stack", "at least one Ragged"}},
          {[] {
             stack({Ragged::from_lengths(ones({3, 2}), {1, 2}), Ragged::from_lengths(ones({3, 2}), {2, 1})});
           },
           {"stack", "the same lengths", "cases.cpp"}},
          {[] { flip(one_row(), 3); }, {"flip", "axis must be in [-3, 3), got 3", "cases.cpp"}},
          {[] { roll(one_row(), 1, 3); }, {"roll", "axis must be in [-3, 3), got 3", "cases.cpp"}},
          {[] {
             tile(one_row(), {1, 1, 1, 1});
           },
           {"tile", "at most the values' 3 axes", "got [1, 1, 1, 1]", "cases.cpp"}},
          {[] {
             tile(one_row(), {-1, 1, 1});
           },
           {"tile", "at least 0, got -1", "cases.cpp"}},
          {[] {
             tile(one_row(), {std::int64_t{1} << 62, 2, 2});
           },
           {"tile: a shape must have fewer than 2^63 elements, got [4611686018427387904, 4, 6]", "cases.cpp"}},
          {[] { repeat_interleave(one_row(), -1, 0); }, {"repeat_interleave", "at least 0, got -1", "cases.cpp"}}};
}

// Sequences 1 .. n - 2, as they were made: those of all rows, for the first and the last have none; and none of them.
OpCase middle() {
  return {.name = "slice_batch",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call =
              [](const Tensors& in) {
                const Ragged x = in_sequences(in[0]);
                const std::int64_t third = x.count() / 3;
                return concatenate({slice_batch(x, 1, third).values(), slice_batch(x, 3, 1).values(),
                                    slice_batch(x, std::max<std::int64_t>(1, third), -1).values(),
                                    slice_batch(x, -1, 1000).values()});
              },
          .reference = [](const std::vector<Ref>& in) { return in[0]; },
          .tolerance = 0,
          .bad = {{[] { slice_batch(Ragged(), 0, 1); }, {"slice_batch: x must be defined", "cases.cpp"}}}};
}

// Integers are summed exactly.
OpCase counts() {
  return {.name = "sum/ragged_integers",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.index({n.rows, n.cols}, 9)};
              },
          .call =
              [](const Tensors& in) {
                const std::int64_t large = std::int64_t{1} << 57;  // beyond what a double holds exactly
                return sum(in_sequences(in[0] + large)) - large * sum(in_sequences(in[0] < 9));
              },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y{{sequence_lengths(in[0].shape[0]).size(), in[0].shape[1]}, {}};
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t c = 0; c < in[0].shape[1]; ++c) {
                    y.v.push_back(0);
                    for (std::int64_t r = begin; r < begin + length; ++r) y.v.back() += at(in[0], {r, c});
                  }
                });
                return y;
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0};
}

// Two operands [rows, cols] and what the second becomes beside the first.
OpCase two(const std::string& name, std::function<Shape(std::int64_t rows, std::int64_t cols)> second,
           std::function<Ragged(const Ragged&, const Tensor&)> op, double (*f)(double, double),
           std::function<Index(std::int64_t row, std::int64_t sequence, std::int64_t col)> place) {
  return {.name = name,
          .inputs =
              [second](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor x = make.distinct({n.rows, n.cols});
                return Tensors{x, make.uniform(second(n.rows, n.cols), 0.51, 0.52)};
              },
          .call = [op](const Tensors& in) { return op(in_sequences(in[0]), in[1]).values(); },
          .reference =
              [=](const std::vector<Ref>& in) {
                Ref y = in[0];
                const std::int64_t cols = in[0].shape[1];
                for_each_sequence(in[0].shape[0], [&](std::int64_t s, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + length; ++r)
                    for (std::int64_t c = 0; c < cols; ++c) {
                      double& v = y.v[static_cast<std::size_t>(r * cols + c)];
                      v = f(v, at(in[1], place(r, s, c)));
                    }
                });
                return y;
              },
          .differentiable = {0, 1}};
}

OpCase divided(bool log) {
  const std::string name = log ? "log_softmax" : "softmax";
  return {
      .name = name + "/ragged_temperature",
      .inputs =
          [](Maker& make, Size size) {
            const Extent n = extent_of(size);
            return Tensors{make.uniform({n.rows, n.cols}, -6, 6)};
          },
      .call =
          [log](const Tensors& in) {
            return (log ? log_softmax(in_sequences(in[0]), 0, 2.5) : softmax(in_sequences(in[0]), -2, 2.5)).values();
          },
      .reference =
          [log](const std::vector<Ref>& in) {
            const std::int64_t cols = in[0].shape[1];
            Ref y = in[0];
            for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
              for (std::int64_t c = 0; c < cols; ++c) {
                double total = 0;
                for (std::int64_t r = begin; r < begin + length; ++r) total += std::exp(at(in[0], {r, c}) / 2.5);
                for (std::int64_t r = begin; r < begin + length; ++r) {
                  const double value = at(in[0], {r, c}) / 2.5 - std::log(total);
                  y.v[static_cast<std::size_t>(r * cols + c)] = log ? value : std::exp(value);
                }
              }
            });
            return y;
          },
      .tolerance = 20,
      .bad = {{[log] {
                 const Ragged x = Ragged::from_lengths(ones({3, 2}), {3});
                 log ? log_softmax(x, 0, 0) : softmax(x, 0, 0);
               },
               {name, "temperature must be above 0", "cases.cpp"}}}};
}

// The row of `length` > 0 behind a padded one, or -1: what is mirrored until it lies within.
std::int64_t row_behind(std::int64_t i, std::int64_t length, PaddingMode mode) {
  if (mode == PaddingMode::zero) return i < length ? std::max<std::int64_t>(i, -1) : -1;
  if (mode == PaddingMode::replicate || length == 1) return std::clamp<std::int64_t>(i, 0, length - 1);
  const std::int64_t edge = mode == PaddingMode::symmetric;
  while (i < 0 || i >= length) i = i < 0 ? -i - edge : 2 * length - 2 + edge - i;
  return i;
}

OpCase convolution(const std::string& variant, const ConvOptions& options, bool relu) {
  return {.name = std::string(relu ? "conv1d_relu" : "conv1d") + "/ragged_" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                Tensors tensors{make.uniform({n.rows, 4}, -1, 1)};
                tensors.push_back(make.uniform({4, 2, 3}, -0.2, 0.2));
                tensors.push_back(make.uniform({4}, 0.6, 0.9));
                return tensors;
              },
          .call =
              [=](const Tensors& in) {
                const Ragged x = in_sequences(in[0]);
                return (relu ? conv1d_relu(x, in[1], in[2], options) : conv1d(x, in[1], in[2], options)).values();
              },
          .reference =
              [=](const std::vector<Ref>& in) {
                const std::int64_t padding = options.padding[0], dilation = options.dilation[0];
                Ref y{{0, 4}, {}};
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = 0; r < length + 2 * padding - 2 * dilation;
                       r += options.stride[0], ++y.shape[0])
                    for (std::int64_t o = 0; o < 4; ++o) {
                      double total = in[2].v[static_cast<std::size_t>(o)];
                      for (std::int64_t k = 0; k < 3 && length > 0; ++k) {
                        const std::int64_t from = row_behind(r + k * dilation - padding, length, options.mode);
                        for (std::int64_t i = 0; i < 2 && from >= 0; ++i)
                          total += at(in[0], {begin + from, o / 2 * 2 + i}) * at(in[1], {o, i, k});
                      }
                      y.v.push_back(relu ? std::max(total, 0.0) : total);
                    }
                });
                return y;
              },
          .differentiable = {0, 1, 2},
          .tolerance = 100};
}

}  // namespace

std::vector<OpCase> ragged_shape_cases() {
  const auto same = [](std::int64_t cols) { return Shape{2, cols}; };
  std::vector<OpCase> rows;
  const std::vector<Move> moves = {
      {"reshape/ragged",
       [](const Ragged& x) {
         return reshape(x, {-1, 1, x.values().size(2), 2});
       },
       [](std::int64_t cols) {
         return Shape{1, cols, 2};
       },
       [](std::int64_t i, std::int64_t, std::int64_t cols, const Index& at) {
         return Index{i, (2 * at[1] + at[2]) / cols, (2 * at[1] + at[2]) % cols};
       }},
      {"transpose/ragged", [](const Ragged& x) { return transpose(x); },
       [](std::int64_t cols) {
         return Shape{cols, 2};
       },
       [](std::int64_t i, std::int64_t, std::int64_t, const Index& at) {
         return Index{i, at[1], at[0]};
       }},
      {"flip/ragged",
       [](const Ragged& x) {
         return flip(x, {0, 1});
       },
       same,
       [](std::int64_t i, std::int64_t length, std::int64_t, const Index& at) {
         return Index{length - 1 - i, 1 - at[0], at[1]};
       }},
      {"roll/ragged", [](const Ragged& x) { return roll(x, 4, -3); }, same,
       [](std::int64_t i, std::int64_t length, std::int64_t, const Index& at) {
         return Index{((i - 4) % length + length) % length, at[0], at[1]};
       }},
      {"tile/ragged",
       [](const Ragged& x) {
         return tile(x, {2, 1, 1});
       },
       same,
       [](std::int64_t i, std::int64_t length, std::int64_t, const Index& at) {
         return Index{i % length, at[0], at[1]};
       },
       2},
      {"repeat_interleave/ragged", [](const Ragged& x) { return repeat_interleave(x, 3, 0); }, same,
       [](std::int64_t i, std::int64_t, std::int64_t, const Index& at) {
         return Index{i / 3, at[0], at[1]};
       },
       3}};
  for (const Move& move : moves) rows.push_back(moved(move));
  rows.back().bad = bad_calls();

  rows.push_back(middle());
  rows.push_back(counts());

  const auto per_sequence = [](std::int64_t count, std::int64_t cols) {
    return Shape{sequence_lengths(count).size(), cols};
  };
  const auto at_sequence = [](std::int64_t, std::int64_t s, std::int64_t c) { return Index{s, c}; };
  rows.push_back(two(
      "logaddexp/ragged_sequences", per_sequence, [](const Ragged& x, const Tensor& b) { return logaddexp(b, x); },
      [](double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }, at_sequence));
  rows.push_back(two(
      "where/ragged_sequences", per_sequence, [](const Ragged& x, const Tensor& b) { return where(x > b, x, b); },
      [](double a, double b) { return std::max(a, b); }, at_sequence));
  rows.back().bad = {{[] {
                        where(one_row() > 0, ones({2, 2, 3}), 0);
                      },
                      {"where", "one row per sequence, [1, ...], or lower rank, got [2, 2, 3]", "cases.cpp"}},
                     {[] { where(one_row() > 0, 1, 0); }, {"where", "a or b must be a tensor"}}};
  rows.push_back(two(
      "mul/ragged_by_rank", [](std::int64_t count, std::int64_t) { return Shape{count}; },
      [](const Ragged& x, const Tensor& b) { return x.with(b) * x; }, [](double a, double b) { return a * b; },
      [](std::int64_t r, std::int64_t, std::int64_t) { return Index{r}; }));
  for (const bool log : {false, true}) rows.push_back(divided(log));
  const auto convolve = [&](const std::string& variant, const ConvOptions& options, bool relu) {
    rows.push_back(convolution(variant, options, relu));
  };
  convolve("strided", {.stride = 2, .padding = 1, .groups = 2}, false);
  convolve("strided_far", {.stride = 3, .padding = 4, .dilation = 2, .groups = 2}, true);
  convolve("strided_beyond", {.stride = 1000, .padding = 2, .groups = 2}, false);
  convolve("symmetric", {.padding = 3, .groups = 2, .mode = PaddingMode::symmetric}, false);
  convolve("reflect", {.stride = 2, .padding = 5, .dilation = 2, .groups = 2, .mode = PaddingMode::reflect}, false);
  convolve("replicate", {.padding = 2, .dilation = 2, .groups = 2, .mode = PaddingMode::replicate}, true);
  rows.back().bad = {{[] {
                        conv1d(Ragged::from_lengths(ones({3, 2}), {3}), ones({1, 2, 3}), {},
                               {.into = WriteOnce({1, 2, 3}).part(0, 1)});
                      },
                      {"conv1d", "memory of its own", "cases.cpp"}}};
  for (OpCase& row : rows)
    for (const char* name :
         {"flip/ragged", "roll/ragged", "logaddexp/ragged_sequences", "where/ragged_sequences",
          "softmax/ragged_temperature", "log_softmax/ragged_temperature", "conv1d_relu/ragged_replicate"})
      if (row.name == name) row.mixes_rows = "a row depends on the others of its sequence, or on what belongs to it";
  return rows;
}

}  // namespace reel::test
