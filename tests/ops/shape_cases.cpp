#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

// A row for an op on one tensor [rows, 2, cols] that only moves elements: result index -> input index.
OpCase moves(const std::string& name, std::function<Tensor(const Tensor&)> op, std::function<Shape(const Shape&)> shape,
             std::function<std::vector<std::int64_t>(std::vector<std::int64_t>, const Shape&)> from,
             std::vector<BadCall> bad) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, 2, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [=](const std::vector<Ref>& in) {
                return filled(shape(in[0].shape), [&](const auto& i) { return at(in[0], from(i, in[0].shape)); });
              },
          .tolerance = 0,
          .bad = std::move(bad)};
}

using Index = std::vector<std::int64_t>;

OpCase joins(const std::string& name, int axis, bool stacks) {
  return {.name = name,
          .inputs =
              [=](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor a = make.uniform({n.rows, n.cols}), b = make.uniform({n.rows, n.cols});
                return Tensors{a, b,
                               make.uniform(stacks      ? Shape{n.rows, n.cols}
                                            : axis == 0 ? Shape{2, n.cols}
                                                        : Shape{n.rows, 2})};
              },
          .call = [=](const Tensors& in) { return stacks ? stack(in, axis) : concatenate(in, axis); },
          .reference =
              [=](const std::vector<Ref>& in) {
                Shape shape = in[0].shape;
                if (stacks) {
                  shape = axis == 0 ? Shape{3, shape[0], shape[1]} : Shape{shape[0], 3, shape[1]};
                } else {
                  for (std::size_t p = 1; p < in.size(); ++p) shape[axis] += in[p].shape[axis];
                }
                return filled(shape, [&](Index i) {
                  const auto d = static_cast<std::size_t>(axis);
                  if (stacks) {
                    const Ref& part = in[static_cast<std::size_t>(i[d])];
                    i.erase(i.begin() + axis);
                    return at(part, i);
                  }
                  std::size_t p = 0;
                  for (; i[d] >= in[p].shape[axis]; ++p) i[d] -= in[p].shape[axis];
                  return at(in[p], i);
                });
              },
          .differentiable = {0, 1, 2},
          .tolerance = 0};
}

}  // namespace

std::vector<OpCase> shape_cases() {
  std::vector<OpCase> rows;
  const auto flat = [](const Index& i, const Shape& result, const Shape& x) { return index_of(flat_of(i, result), x); };
  rows.push_back(moves(
      "reshape",
      [](const Tensor& x) {
        return reshape(x, {2 * x.shape()[0], x.shape()[2]});
      },
      [](const Shape& s) {
        return Shape{2 * s[0], s[2]};
      },
      [flat](const Index& i, const Shape& s) {
        return flat(i, {2 * s[0], s[2]}, s);
      },
      {{[] {
          reshape(ones({2, 3}), {4});
        },
        {"reshape", "as many elements as [2, 3], got [4]", "cases.cpp"}},
       {[] {
          reshape(ones({2, 3}), {-1, -1});
        },
        {"reshape", "but for one -1"}},
       {[] {
          reshape(ones({0, 3}), {-1, 0});
        },
        {"reshape", "-1 beside a size of 0"}}}));
  rows.push_back(moves(
      "flatten", [](const Tensor& x) { return flatten(x, 1); },
      [](const Shape& s) {
        return Shape{s[0], 2 * s[2]};
      },
      [flat](const Index& i, const Shape& s) {
        return flat(i, {s[0], 2 * s[2]}, s);
      },
      {{[] {
          flatten(ones({2, 3}), 1, 0);
        },
        {"flatten", "first axis must not be behind the last", "cases.cpp"}}}));
  rows.push_back(moves(
      "transpose", [](const Tensor& x) { return transpose(x, 0, 2); },
      [](const Shape& s) {
        return Shape{s[2], s[1], s[0]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[2], i[1], i[0]};
      },
      {{[] { transpose(ones({2}), 0, 1); }, {"transpose", "axis must be in [-1, 1), got 1", "cases.cpp"}}}));
  rows.push_back(moves(
      "permute",
      [](const Tensor& x) {
        return permute(x, {2, 0, -2});
      },
      [](const Shape& s) {
        return Shape{s[2], s[0], s[1]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[1], i[2], i[0]};
      },
      {{[] {
          permute(ones({2, 3}), {0, 0});
        },
        {"permute", "named once, got [0, 0]", "cases.cpp"}},
       {[] {
          permute(ones({2, 3}), {0});
        },
        {"permute", "each of the 2 axes"}},
       {[] {
          permute(ones({2, 3}), {std::int64_t{1} << 32, 1});
        },
        {"permute", "axis must be in [-2, 2), got 4294967296"}}}));
  rows.push_back(moves(
      "unsqueeze", [](const Tensor& x) { return unsqueeze(x, 1); },
      [](const Shape& s) {
        return Shape{s[0], 1, s[1], s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[0], i[2], i[3]};
      },
      {{[] { unsqueeze(ones({2}), 3); }, {"unsqueeze", "axis must be in [-2, 2), got 3", "cases.cpp"}}}));
  rows.push_back(moves(
      "squeeze", [](const Tensor& x) { return squeeze(slice(x, 1, 1, 2), 1); },
      [](const Shape& s) {
        return Shape{s[0], s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[0], 1, i[1]};
      },
      {{[] {
          squeeze(ones({2, 3}), 0);
        },
        {"squeeze", "axis 0 must have size 1", "[2, 3]", "cases.cpp"}}}));
  rows.push_back(moves(
      "expand",
      [](const Tensor& x) {
        return expand(unsqueeze(x, 1), {3, x.shape()[0], 4, 2, x.shape()[2]});
      },
      [](const Shape& s) {
        return Shape{3, s[0], 4, 2, s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[1], i[3], i[4]};
      },
      {{[] {
          expand(ones({2, 3}), {2, 4});
        },
        {"expand", "[2, 3]", "got [2, 4]", "cases.cpp"}},
       {[] {
          expand(ones({2, 3}), {-1, 2, 3});
        },
        {"expand: -1 keeps the size of an axis of", "got [-1, 2, 3]"}}}));
  rows.push_back(moves(
      "expand/kept",
      [](const Tensor& x) {
        return expand(unsqueeze(x, 1), {3, -1, 4, -1, -1});
      },
      [](const Shape& s) {
        return Shape{3, s[0], 4, 2, s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[1], i[3], i[4]};
      },
      {}));
  rows.push_back(moves(
      "slice", [](const Tensor& x) { return slice(x, 2, 0, 1000, 2); },
      [](const Shape& s) {
        return Shape{s[0], 2, (s[2] + 1) / 2};
      },
      [](const Index& i, const Shape&) {
        return Index{i[0], i[1], 2 * i[2]};
      },
      {{[] { slice(ones({2}), 0, 0, 1, 0); }, {"slice", "step must be at least 1, got 0", "cases.cpp"}}}));
  rows.push_back(moves(
      "narrow", [](const Tensor& x) { return narrow(x, 1, 1, 1); },
      [](const Shape& s) {
        return Shape{s[0], 1, s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[0], 1, i[2]};
      },
      {{[] {
          narrow(ones({2, 3}), 1, 2, 2);
        },
        {"narrow", "3 indices of axis 1, got 2 and 2", "cases.cpp"}}}));
  rows.push_back(moves(
      "select", [](const Tensor& x) { return select(x, 1, -1); },
      [](const Shape& s) {
        return Shape{s[0], s[2]};
      },
      [](const Index& i, const Shape&) {
        return Index{i[0], 1, i[1]};
      },
      {{[] {
          select(ones({2, 3}), 1, 3);
        },
        {"select", "[-3, 3) of axis 1, got 3", "cases.cpp"}}}));
  rows.push_back(joins("concatenate", 0, false));
  rows.back().bad = {{[] { concatenate({}); }, {"concatenate", "at least one"}},
                     {[] {
                        concatenate({ones({2, 3}), ones({2, 4})});
                      },
                      {"concatenate", "[2, 3] and [2, 4] for part 1", "cases.cpp"}},
                     {[] {
                        concatenate({ones({2}), arange(2)});
                      },
                      {"concatenate", "part 1 must be f32 like part 0, got i64"}}};
  rows.push_back(joins("concatenate/columns", 1, false));
  rows.push_back(joins("stack", 0, true));
  rows.back().bad = {{[] {
                        stack({ones({2}), ones({3})});
                      },
                      {"stack", "one shape, got [2] and [3]", "cases.cpp"}},
                     {[] {
                        stack({ones({1, 1, 1, 1, 1, 1, 1, 1})});
                      },
                      {"stack", "at most 8 axes, got tensors of shape [1, 1", "cases.cpp"}}};
  rows.push_back(joins("stack/inner", 1, true));
  return rows;
}

}  // namespace reel::test
