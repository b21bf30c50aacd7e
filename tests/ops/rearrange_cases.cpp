#include "reel/ops/rearrange.h"

#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

// A row for an op on one tensor [rows, 2, cols] whose result takes each element from an index of x, or is 0 where that index lies
// outside.
OpCase moves(const std::string& name, std::function<Tensor(const Tensor&)> op, std::function<Shape(const Shape&)> shape,
             std::function<Index(Index, const Shape&)> from, std::vector<BadCall> bad) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, 2, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [=](const std::vector<Ref>& in) {
                const Shape& s = in[0].shape;
                return filled(shape(s), [&](const auto& i) {
                  const Index j = from(i, s);
                  for (int d = 0; d < s.rank(); ++d)
                    if (j[static_cast<std::size_t>(d)] < 0 || j[static_cast<std::size_t>(d)] >= s[d]) return 0.0;
                  return at(in[0], j);
                });
              },
          .tolerance = 0,
          .bad = std::move(bad)};
}

Shape same(const Shape& s) { return s; }

// No input decides anything: an op that makes a tensor from sizes.
OpCase made(const std::string& name, std::function<Tensor(Extent, Device)> op,
            std::function<double(const Index&, Extent)> f, std::vector<BadCall> bad) {
  const auto extent = [](const Shape& s) { return Extent{s[0], s[1]}; };
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [=](const Tensors& in) { return op(extent(in[0].shape()), in[0].device()); },
          .reference =
              [=](const std::vector<Ref>& in) {
                const Extent n = extent(in[0].shape);
                return filled(op(n, Device::cpu()).shape(), [&](const auto& i) { return f(i, n); });
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0,
          .whole = {0},  // for its shape
          .bad = std::move(bad)};
}

OpCase hot(const std::string& variant, std::function<Tensor(const Tensor&)> op) {
  return {.name = "one_hot" + variant,
          .inputs =
              [](Maker& make, Size size) {
                return Tensors{make.index({extent_of(size).rows, 2}, 5)};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[0].shape[0], 2, 5}, [&](const auto& i) {
                  return double(at(in[0], {i[0], i[1]}) == static_cast<double>(i[2]));
                });
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0,
          .bad = {{[op] {
                     op(ones({2, 2}));
                   },
                   {"one_hot", "index must be i32 or i64, got f32", "cases.cpp"}},
                  {[op] {
                     op(full({1, 2}, 5, {.dtype = i32}));
                   },
                   {"one_hot", "[0, 5)", "got 5 at position 0"}}}};
}

}  // namespace

std::vector<OpCase> rearrange_cases() {
  std::vector<OpCase> rows;
  rows.push_back(moves(
      "split",
      [](const Tensor& x) {
        const std::int64_t n = x.shape()[0];
        const Tensors parts = split(x, {n / 2, 0, n - n / 2});
        return concatenate({parts[2], parts[1], parts[0]});
      },
      same,
      [](Index i, const Shape& s) {
        const std::int64_t second = s[0] - s[0] / 2;
        i[0] = i[0] < second ? i[0] + s[0] / 2 : i[0] - second;
        return i;
      },
      {{[] {
          split(ones({3}), {1, 1});
        },
        {"split", "the 3 indices of axis 0, got a sum of 2", "cases.cpp"}},
       {[] {
          split(ones({3}), {4, -1});
        },
        {"split", "sizes must be at least 0, got -1"}},
       {[] { split(ones({3}), {3}, 1); }, {"split", "axis must be in [-1, 1), got 1"}}}));
  rows.back().mixes_rows = "rows change places";
  rows.push_back(moves(
      "flip", [](const Tensor& x) { return flip(x, 2); }, same,
      [](Index i, const Shape& s) {
        return Index{i[0], i[1], s[2] - 1 - i[2]};
      },
      {{[] { flip(ones({3}), 1); }, {"flip", "axis must be in [-1, 1), got 1", "cases.cpp"}}}));
  rows.push_back(moves(
      "flip/all", [](const Tensor& x) { return flip(x); }, same,
      [](Index i, const Shape& s) {
        return Index{s[0] - 1 - i[0], 1 - i[1], s[2] - 1 - i[2]};
      },
      {}));
  rows.back().mixes_rows = "rows change places";
  for (const std::int64_t shift : {std::int64_t{3}, std::int64_t{-2}})
    rows.push_back(moves(
        shift > 0 ? "roll" : "roll/back", [shift](const Tensor& x) { return roll(x, shift, 2); }, same,
        [shift](Index i, const Shape& s) {
          return Index{i[0], i[1], (((i[2] - shift) % s[2]) + s[2]) % s[2]};
        },
        {{[] { roll(ones({3}), 1, -2); }, {"roll", "axis must be in [-1, 1), got -2", "cases.cpp"}}}));
  rows.push_back(moves(
      "tile",
      [](const Tensor& x) {
        return tile(x, {2, 3});
      },
      [](const Shape& s) {
        return Shape{s[0], 4, 3 * s[2]};
      },
      [](Index i, const Shape& s) {
        return Index{i[0], i[1] % 2, i[2] % s[2]};
      },
      {{[] {
          tile(ones({3}), {2, -1});
        },
        {"tile", "repeats must be at least 0, got -1", "cases.cpp"}}}));
  rows.push_back(moves(
      "tile/more_axes",
      [](const Tensor& x) {
        return tile(x, {2, 1, 2, 1});
      },
      [](const Shape& s) {
        return Shape{2, s[0], 4, s[2]};
      },
      [](Index i, const Shape&) {
        return Index{i[1], i[2] % 2, i[3]};
      },
      {}));
  rows.push_back(moves(
      "repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 3, -1); },
      [](const Shape& s) {
        return Shape{s[0], 2, 3 * s[2]};
      },
      [](Index i, const Shape&) {
        return Index{i[0], i[1], i[2] / 3};
      },
      {{[] { repeat_interleave(ones({3}), -1, 0); },
        {"repeat_interleave", "repeats must be at least 0", "cases.cpp"}}}));
  const auto below = [](std::int64_t diagonal) {
    return [diagonal](Index i, const Shape&) {
      if (i[2] - i[1] > diagonal) i[2] = -1;
      return i;
    };
  };
  const auto above = [](std::int64_t diagonal) {
    return [diagonal](Index i, const Shape&) {
      if (i[2] - i[1] < diagonal) i[2] = -1;
      return i;
    };
  };
  rows.push_back(moves("tril", [](const Tensor& x) { return tril(x); }, same, below(0),
                       {{[] { tril(ones({3})); }, {"tril", "[..., rows, cols], got [3]", "cases.cpp"}}}));
  rows.push_back(moves("triu", [](const Tensor& x) { return triu(x); }, same, above(0),
                       {{[] { triu(ones({3})); }, {"triu", "[..., rows, cols], got [3]", "cases.cpp"}}}));
  rows.push_back(moves("tril/above", [](const Tensor& x) { return tril(x, 2); }, same, below(2), {}));
  rows.push_back(moves("triu/below", [](const Tensor& x) { return triu(x, -1); }, same, above(-1), {}));
  rows.push_back(hot("", [](const Tensor& index) { return one_hot(index, 5); }));
  rows.back().bad.push_back({[] { one_hot(arange(2), 0); }, {"one_hot", "classes must be above 0, got 0"}});
  rows.push_back(hot("/ragged", [](const Tensor& index) {
    return one_hot(Ragged::from_lengths(index, {0, index.shape()[0]}), 5, f32).values();
  }));
  rows.push_back(made(
      "eye", [](Extent n, Device device) { return eye(n.rows, n.cols, {.dtype = i64, .device = device}); },
      [](const Index& i, Extent) { return double(i[0] == i[1]); }, {{[] { eye(-1); }, {"size", "-1", "cases.cpp"}}}));
  rows.push_back(made(
      "eye/square", [](Extent n, Device device) { return eye(n.cols, {.device = device}); },
      [](const Index& i, Extent) { return double(i[0] == i[1]); }, {}));
  rows.push_back(made(
      "linspace",
      [](Extent n, Device device) {
        return linspace(-1, static_cast<double>(n.rows) - 2, n.rows, {.dtype = f64, .device = device});
      },
      [](const Index& i, Extent) { return static_cast<double>(i[0]) - 1; },
      {{[] { linspace(0, 1, 3, {.dtype = i64}); }, {"linspace", "must be f32 or f64, got i64", "cases.cpp"}}}));
  rows.push_back(made(
      "full_like",
      [](Extent n, Device device) {
        return full_like(zeros({n.cols, n.rows}, {.device = device}), -3);
      },
      [](const Index&, Extent) { return -3.0; },
      {{[] { full_like(Tensor(), 1); }, {"full_like", "x must be defined", "cases.cpp"}}}));
  return rows;
}

}  // namespace reel::test
