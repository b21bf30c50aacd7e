#include "reel/ops/index.h"

#include <algorithm>

#include "reel/ops/arithmetic.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

const TensorOptions kInteger{.dtype = i64};

std::int64_t integer(const Ref& x, const Index& index) { return static_cast<std::int64_t>(at(x, index)); }

// x [rows, 2, cols], an index with `length` along `axis`.
Tensors with_index(Maker& make, Size size, int axis, std::int64_t length) {
  const Extent n = extent_of(size);
  const Shape shape{n.rows, 2, n.cols};
  Shape other = shape;
  if (shape[axis] > 0) other[axis] = length;
  return Tensors{make.uniform(shape), make.index(other, shape[axis])};
}

OpCase gathers(const std::string& variant, int axis, std::int64_t length) {
  return {.name = "gather" + variant,
          .inputs = [=](Maker& make, Size size) { return with_index(make, size, axis, length); },
          .call = [axis](const Tensors& in) { return gather(in[0], axis, in[1]); },
          .reference =
              [axis](const std::vector<Ref>& in) {
                return filled(in[1].shape, [&](Index i) {
                  i[static_cast<std::size_t>(axis)] = integer(in[1], i);
                  return at(in[0], i);
                });
              },
          .tolerance = 0};
}

OpCase scatters(const std::string& variant, int axis, std::int64_t length) {
  return {.name = "scatter_add" + variant,
          .inputs =
              [=](Maker& make, Size size) {
                Tensors in = with_index(make, size, axis, length);
                in.push_back(make.uniform(in[1].shape()));
                return in;
              },
          .call = [axis](const Tensors& in) { return scatter_add(in[0], axis, in[1], in[2]); },
          .reference =
              [axis](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (std::int64_t k = 0; k < in[1].shape.size(); ++k) {
                  Index i = index_of(k, in[1].shape);
                  i[static_cast<std::size_t>(axis)] = integer(in[1], i);
                  y.v[static_cast<std::size_t>(flat_of(i, y.shape))] += in[2].v[static_cast<std::size_t>(k)];
                }
                return y;
              },
          .differentiable = {0, 2},
          .tolerance = 20,
          .mixes_rows = axis == 0 ? "adds rows to others" : ""};
}

OpCase selects(const std::string& variant, int axis, std::int64_t count,
               std::function<Tensor(const Tensor&, const Tensor&)> op) {
  return {.name = "index_select" + variant,
          .inputs =
              [axis, count](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Shape shape{n.rows, 2, n.cols};
                return Tensors{make.uniform(shape), make.index({shape[axis] > 0 ? count : 0}, shape[axis])};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1]); },
          .reference =
              [axis](const std::vector<Ref>& in) {
                Shape shape = in[0].shape;
                shape[axis] = in[1].shape[0];
                return filled(shape, [&](Index i) {
                  std::int64_t& along = i[static_cast<std::size_t>(axis)];
                  along = integer(in[1], {along});
                  return at(in[0], i);
                });
              },
          .tolerance = 0};
}

// The mask is where an index is 1; it has the trailing axes of x that it has.
OpCase masked(const std::string& variant, std::function<Shape(Extent)> mask,
              std::function<Tensor(const Tensor&, const Tensor&)> op, bool whole_rows) {
  return {.name = "masked_select" + variant,
          .inputs =
              [mask](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols}), make.index(mask(n), 2)};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1] == 1); },
          .reference =
              [whole_rows](const std::vector<Ref>& in) {
                Ref y;
                for (std::int64_t k = 0; k < in[0].shape.size(); ++k) {
                  const Index i = index_of(k, in[0].shape);
                  const bool set = (whole_rows ? at(in[1], {i[0]}) : broadcast_at(in[1], i)) == 1;
                  if (set) y.v.push_back(at(in[0], i));
                }
                const std::int64_t width = in[0].shape[1];
                y.shape = whole_rows ? Shape{std::count(in[1].v.begin(), in[1].v.end(), 1), width} : Shape{y.v.size()};
                return y;
              },
          .tolerance = 0};
}

}  // namespace

std::vector<OpCase> index_cases() {
  std::vector<OpCase> rows;
  rows.push_back(gathers("", 2, 5));
  rows.back().bad = {{[] {
                        gather(ones({2, 2}), 1, tensor({0, 1, 2, 0}, {2, 2}, kInteger));
                      },
                      {"gather", "[0, 2)", "got 2 at position 2", "cases.cpp"}},
                     {[] {
                        gather(ones({2, 2}), 1, tensor({0, 1}, {1, 2}, kInteger));
                      },
                      {"gather", "shape of x, [2, 2], but for axis 1, got [1, 2]"}},
                     {[] {
                        gather(ones({2, 2}), 1, ones({2, 2}));
                      },
                      {"gather", "index must be i32 or i64, got f32"}},
                     {[] {
                        gather(ones({2, 2}), 2, ones({2, 2}));
                      },
                      {"gather", "axis must be in [-2, 2), got 2"}}};
  rows.push_back(gathers("/middle", 1, 3));
  rows.push_back(gathers("/rows", 0, 7));
  rows.push_back(scatters("", 2, 5));
  rows.back().bad = {
      {[] {
         scatter_add(ones({2}), 0, tensor({0, 2}, kInteger), ones({2}));
       },
       {"scatter_add", "[0, 2)", "got 2 at position 1", "cases.cpp"}},
      {[] { scatter_add(ones({2}), 0, arange(2), ones({3})); }, {"scatter_add", "src must have shape [2], got [3]"}},
      {[] { scatter_add(arange(2), 0, arange(2), arange(2)); }, {"scatter_add", "x must be f32 or f64, got i64"}},
      {[] { scatter_add(ones({2}), 0, arange(2), ones({2}, {.dtype = f64})); },
       {"scatter_add", "src must be f32 like x, got f64"}}};
  rows.push_back(scatters("/middle", 1, 3));
  rows.push_back(scatters("/rows", 0, 7));
  const auto along = [](int axis) {
    return [axis](const Tensor& x, const Tensor& index) { return index_select(x, axis, index); };
  };
  rows.push_back(selects("", 2, 5, along(-1)));
  rows.back().bad = {{[] {
                        index_select(ones({2, 2}), 1, tensor({1, -3}, kInteger));
                      },
                      {"index_select", "[0, 2)", "got -3 at position 1", "cases.cpp"}},
                     {[] {
                        index_select(ones({2, 2}), 1, zeros({1, 1}, kInteger));
                      },
                      {"index_select", "index must have shape [n], got [1, 1]"}}};
  rows.push_back(selects("/middle", 1, 5, along(1)));
  rows.push_back(selects("/rows", 0, 5, along(0)));
  rows.push_back(selects("/often", 2, 40, along(-1)));
  rows.push_back(selects("/ragged", 2, 5, [](const Tensor& x, const Tensor& index) {
    return index_select(in_sequences(x), 2, index).values();
  }));
  const auto select = [](const Tensor& x, const Tensor& mask) { return masked_select(x, mask); };
  const auto all = [](Extent n) { return Shape{n.rows, n.cols}; };
  rows.push_back(masked("", all, select, false));
  rows.back().bad = {
      {[] { masked_select(ones({2}), ones({2})); }, {"masked_select", "mask must be bool8, got f32", "cases.cpp"}},
      {[] { masked_select(ones({2}), ones({3}) == 1); }, {"masked_select", "[2] and [3]"}}};
  rows.push_back(masked(
      "/broadcast", [](Extent n) { return Shape{n.cols}; }, select, false));
  rows.push_back(masked(
      "/ragged", [](Extent n) { return Shape{n.rows}; },
      [](const Tensor& x, const Tensor& mask) { return masked_select(in_sequences(x), in_sequences(mask)).values(); },
      true));
  const auto two = [] { return Ragged::from_lengths(ones({3, 2}), {1, 2}); };
  rows.back().bad = {{[two] {
                        masked_select(two(), Ragged::from_lengths(ones({3}) == 1, {2, 1}));
                      },
                      {"masked_select", "same lengths", "cases.cpp"}},
                     {[two] {
                        masked_select(two(), two().with(ones({3, 2}) == 1));
                      },
                      {"masked_select", "mask must have shape [total], got [3, 2]"}}};
  return rows;
}

}  // namespace reel::test
