#include "reel/ops/scan.h"

#include <algorithm>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

enum class Kind { sum, prod, recurrence };

// One line, from its definition.
std::vector<double> scanned(Kind kind, std::vector<double> x, std::vector<double> factor, ScanOptions options) {
  if (options.reverse) {
    std::reverse(x.begin(), x.end());
    std::reverse(factor.begin(), factor.end());
  }
  std::vector<double> y;
  double state = kind == Kind::prod ? 1 : 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = state;
    state = kind == Kind::prod ? state * x[i] : x[i] + (kind == Kind::sum ? 1 : factor[i]) * state;
    y.push_back(options.exclusive ? before : state);
  }
  if (options.reverse) std::reverse(y.begin(), y.end());
  return y;
}

// Lines of x [rows, cols] along an axis; with `sequences`, of each sequence on its own.
Ref reference(Kind kind, const std::vector<Ref>& in, int axis, ScanOptions options, bool sequences) {
  const Ref& x = in[0];
  Ref y = x;
  const auto line = [&](std::int64_t first, std::int64_t count, std::int64_t step) {
    std::vector<double> values, factors;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(x.v[static_cast<std::size_t>(first + i * step)]);
      if (kind == Kind::recurrence) factors.push_back(in[1].v[static_cast<std::size_t>(first + i * step)]);
    }
    const std::vector<double> result = scanned(kind, values, factors, options);
    for (std::int64_t i = 0; i < count; ++i)
      y.v[static_cast<std::size_t>(first + i * step)] = result[static_cast<std::size_t>(i)];
  };
  const std::int64_t rows = x.shape[0], cols = x.shape[1];
  if (sequences) {
    for_each_sequence(rows, [&](std::int64_t, std::int64_t begin, std::int64_t length) {
      for (std::int64_t c = 0; c < cols; ++c) line(begin * cols + c, length, cols);
    });
  } else if (axis == 0) {
    for (std::int64_t c = 0; c < cols; ++c) line(c, rows, cols);
  } else {
    for (std::int64_t r = 0; r < rows; ++r) line(r * cols, cols, 1);
  }
  return y;
}

// Products get zeros among their factors.
Tensors inputs(Kind kind, Maker& make, Size size) {
  const Extent n = extent_of(size);
  const Shape shape{n.rows, n.cols};
  if (kind == Kind::sum) return {make.uniform(shape)};
  if (kind == Kind::recurrence) {
    const Tensor x = make.uniform(shape);
    return {x, make.uniform(shape, -1, 1)};
  }
  const Tensor x = make.uniform(shape, 0.75, 1.25);
  return {x * cast(make.index(shape, 9) != 0, make.dtype())};
}

using Call = std::function<Tensor(const Tensors&, int, ScanOptions)>;

OpCase row(const std::string& name, Kind kind, const Call& call, int axis, ScanOptions options, bool sequences) {
  return {.name = name,
          .inputs = [kind](Maker& make, Size size) { return inputs(kind, make, size); },
          .call = [=](const Tensors& in) { return call(in, axis, options); },
          .reference = [=](const std::vector<Ref>& in) { return reference(kind, in, axis, options, sequences); },
          .differentiable = kind == Kind::recurrence ? std::vector<int>{0, 1} : std::vector<int>{0},
          .tolerance = 60,
          .mixes_rows = axis == 0 ? "runs down the rows" : ""};
}

void add_rows(std::vector<OpCase>& rows, const std::string& name, Kind kind, const Call& tensor, const Call& sequence) {
  rows.push_back(row(name, kind, tensor, 1, {}, false));
  rows.push_back(row(name + "/first", kind, tensor, 0, {}, false));
  rows.push_back(row(name + "/reverse", kind, tensor, 1, {.reverse = true}, false));
  rows.push_back(row(name + "/exclusive", kind, tensor, 1, {.exclusive = true}, false));
  rows.push_back(row(name + "/both", kind, tensor, 0, {.reverse = true, .exclusive = true}, false));
  rows.push_back(row(name + "/ragged", kind, sequence, 0, {}, true));
  rows.push_back(row(name + "/ragged_both", kind, sequence, 0, {.reverse = true, .exclusive = true}, true));
}

}  // namespace

std::vector<OpCase> scan_cases() {
  std::vector<OpCase> rows;
  add_rows(
      rows, "cumsum", Kind::sum, [](const Tensors& in, int axis, ScanOptions o) { return cumsum(in[0], axis, o); },
      [](const Tensors& in, int, ScanOptions o) { return cumsum(in_sequences(in[0]), o).values(); });
  rows.push_back(row(
      "cumsum/ragged_rows", Kind::sum,
      [](const Tensors& in, int axis, ScanOptions o) { return cumsum(in_sequences(in[0]), axis, o).values(); }, 1, {},
      false));
  rows.back().bad = {{[] {
                        cumsum(ones({2, 3}), 2);
                      },
                      {"cumsum", "axis must be in [-2, 2), got 2", "cases.cpp"}},
                     {[] { cumsum(Tensor(), 0); }, {"cumsum", "x must be defined"}},
                     {[] { cumsum(Ragged(), {}); }, {"cumsum", "x must be defined"}}};
  add_rows(
      rows, "cumprod", Kind::prod, [](const Tensors& in, int axis, ScanOptions o) { return cumprod(in[0], axis, o); },
      [](const Tensors& in, int, ScanOptions o) { return cumprod(in_sequences(in[0]), 0, o).values(); });
  rows.back().bad = {{[] { cumprod(ones({3}), 1); }, {"cumprod", "axis must be in [-1, 1), got 1", "cases.cpp"}}};
  add_rows(
      rows, "linear_scan", Kind::recurrence,
      [](const Tensors& in, int axis, ScanOptions o) { return linear_scan(in[0], in[1], axis, o); },
      [](const Tensors& in, int, ScanOptions o) {
        return linear_scan(in_sequences(in[0]), in_sequences(in[1]), o).values();
      });
  rows.back().bad = {
      {[] { linear_scan(ones({3}), ones({2}), 0); },
       {"linear_scan", "factor must have shape [3], got [2]", "cases.cpp"}},
      {[] { linear_scan(ones({3}), arange(3), 0); }, {"linear_scan", "factor must be f32 like x, got i64"}},
      {[] { linear_scan(arange(3), arange(3), 0); }, {"linear_scan", "x must be f32 or f64, got i64"}},
      {[] {
         const Tensor x = ones({3, 1});
         linear_scan(Ragged::from_lengths(x, {1, 2}), Ragged::from_lengths(x, {2, 1}));
       },
       {"linear_scan", "the same lengths"}}};
  return rows;
}

}  // namespace reel::test
