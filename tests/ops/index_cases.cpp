#include "reel/ops/index.h"

#include <algorithm>

#include "reel/ops/arithmetic.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

const TensorOptions kInteger{.dtype = i64};

std::int64_t integer(const Ref& x, const Index& index) { return static_cast<std::int64_t>(at(x, index)); }

// An index of gather along `axis`, with `length` elements there; expanded: one for all that lies behind the axis.
struct Along {
  int axis;
  std::int64_t length;
  bool expanded = false;

  Shape of(const Shape& x) const {
    Shape shape = x;
    if (x[axis] > 0) shape[axis] = length;
    return shape;
  }
  // x [rows, 2, cols] and the index.
  Tensors inputs(Maker& make, Size size) const {
    const Extent n = extent_of(size);
    const Shape x{n.rows, 2, n.cols};
    Shape index = of(x);
    for (int i = axis + 1; expanded && i < index.rank(); ++i) index[i] = 1;
    return Tensors{make.uniform(x), make.index(index, x[axis])};
  }
  Tensor index(const Tensors& in) const { return expanded ? expand(in[1], of(in[0].shape())) : in[1]; }
  // Where element i of the result comes from.
  Index source(const std::vector<Ref>& in, Index i) const {
    Index place = i;
    for (std::size_t k = static_cast<std::size_t>(axis) + 1; expanded && k < i.size(); ++k) i[k] = 0;
    place[static_cast<std::size_t>(axis)] = integer(in[1], i);
    return place;
  }
};

OpCase gathers(const std::string& variant, Along along) {
  return {.name = "gather" + variant,
          .inputs = [=](Maker& make, Size size) { return along.inputs(make, size); },
          .call = [along](const Tensors& in) { return gather(in[0], along.axis, along.index(in)); },
          .reference =
              [along](const std::vector<Ref>& in) {
                return filled(along.of(in[0].shape), [&](const Index& i) { return at(in[0], along.source(in, i)); });
              },
          .tolerance = 0,
          .mixes_rows = along.expanded && along.axis == 0 ? "expands one index to all rows" : ""};
}

OpCase scatters(const std::string& variant, Along along) {
  return {.name = "scatter_add" + variant,
          .inputs =
              [=](Maker& make, Size size) {
                Tensors in = along.inputs(make, size);
                in.push_back(make.uniform(along.of(in[0].shape())));
                return in;
              },
          .call = [along](const Tensors& in) { return scatter_add(in[0], along.axis, along.index(in), in[2]); },
          .reference =
              [along](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (std::int64_t k = 0; k < in[2].shape.size(); ++k) {
                  const Index i = along.source(in, index_of(k, in[2].shape));
                  y.v[static_cast<std::size_t>(flat_of(i, y.shape))] += in[2].v[static_cast<std::size_t>(k)];
                }
                return y;
              },
          .differentiable = {0, 2},
          .tolerance = 20,
          .mixes_rows = along.axis == 0 ? "adds rows to others" : ""};
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
  rows.push_back(gathers("", {2, 5}));
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
  rows.push_back(gathers("/middle", {1, 3}));
  rows.push_back(gathers("/rows", {0, 7}));
  rows.push_back(gathers("/expanded_middle", {1, 3, true}));
  rows.push_back(gathers("/expanded_rows", {0, 7, true}));
  rows.push_back(scatters("", {2, 5}));
  rows.back().bad = {
      {[] {
         scatter_add(ones({2}), 0, tensor({0, 2}, kInteger), ones({2}));
       },
       {"scatter_add", "[0, 2)", "got 2 at position 1", "cases.cpp"}},
      {[] { scatter_add(ones({2}), 0, arange(2), ones({3})); }, {"scatter_add", "src must have shape [2], got [3]"}},
      {[] { scatter_add(arange(2), 0, arange(2), arange(2)); }, {"scatter_add", "x must be f32 or f64, got i64"}},
      {[] { scatter_add(ones({2}), 0, arange(2), ones({2}, {.dtype = f64})); },
       {"scatter_add", "src must be f32 like x, got f64"}}};
  rows.push_back(scatters("/middle", {1, 3}));
  rows.push_back(scatters("/rows", {0, 7}));
  rows.push_back(scatters("/expanded_middle", {1, 3, true}));
  rows.push_back(scatters("/expanded_rows", {0, 7, true}));
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
