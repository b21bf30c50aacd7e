#include "reel/ops/order.h"

#include <algorithm>
#include <array>
#include <set>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;
using Element = std::pair<double, std::int64_t>;  // value, position

std::vector<Element> ordered(std::vector<Element> line, Order order) {
  std::stable_sort(line.begin(), line.end(), [order](const Element& a, const Element& b) {
    return order == Order::ascending ? a.first < b.first : a.first > b.first;
  });
  return line;
}

// The lines of a tensor along an axis sorted, the first k of each: values or positions.
Ref sorted_lines(const Ref& x, int axis, Order order, std::int64_t k, bool positions) {
  Shape lines = x.shape;
  lines[axis] = 1;
  Ref y{x.shape, {}};
  y.shape[axis] = k;
  y.v.resize(static_cast<std::size_t>(y.shape.size()));
  for (std::int64_t l = 0; l < lines.size(); ++l) {
    Index i = index_of(l, lines);
    std::int64_t& along = i[static_cast<std::size_t>(axis)];
    std::vector<Element> line;
    for (along = 0; along < x.shape[axis]; ++along) line.push_back({at(x, i), along});
    line = ordered(line, order);
    for (along = 0; along < k; ++along) {
      const Element& element = line[static_cast<std::size_t>(along)];
      y.v[static_cast<std::size_t>(flat_of(i, y.shape))] =
          positions ? static_cast<double>(element.second) : element.first;
    }
  }
  return y;
}

Ref sorted_sequences(const Ref& x, Order order, std::int64_t k, bool positions) {
  Ref y{{0, x.shape[1]}, {}};
  for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
    const std::int64_t rows = std::min(k, length);
    std::vector<std::vector<Element>> columns;
    for (std::int64_t c = 0; c < x.shape[1]; ++c) {
      std::vector<Element> column;
      for (std::int64_t i = 0; i < length; ++i) column.push_back({at(x, {begin + i, c}), i});
      columns.push_back(ordered(column, order));
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (const auto& column : columns) {
        const Element& element = column[static_cast<std::size_t>(i)];
        y.v.push_back(positions ? static_cast<double>(element.second) : element.first);
      }
    y.shape[0] += rows;
  });
  return y;
}

// Numbers apart for differences; with ties where only positions are asked for.
OpCase row(const std::string& name, std::function<Tensor(const Tensor&)> op, std::function<Ref(const Ref&)> reference,
           bool positions) {
  OpCase row{.name = name,
             .inputs =
                 [positions](Maker& make, Size size) {
                   const Extent n = extent_of(size);
                   return Tensors{positions ? make.index({n.rows, n.cols}, 40) : make.distinct({n.rows, n.cols})};
                 },
             .call = [op](const Tensors& in) { return op(in[0]); },
             .reference = [reference](const std::vector<Ref>& in) { return reference(in[0]); },
             .tolerance = 0};
  if (positions) {
    row.order = 0;
    row.differentiable = {};
  }
  return row;
}

std::vector<BadCall> bad_sorts(const std::string& name, std::function<void(const Tensor&, int)> op) {
  return {{[op] { op(Tensor(), 0); }, {name, "x must be defined", "cases.cpp"}},
          {[op] { op(ones({2}), 1); }, {name, "axis must be in [-1, 1), got 1"}}};
}

}  // namespace

std::vector<OpCase> order_cases() {
  constexpr Order up = Order::ascending, down = Order::descending;
  std::vector<OpCase> rows;
  const auto lines = [](int axis, Order order, bool positions) {
    return [=](const Ref& x) { return sorted_lines(x, axis, order, x.shape[axis], positions); };
  };
  rows.push_back(row(
      "sort", [](const Tensor& x) { return sort(x).values; }, lines(1, up, false), false));
  rows.back().bad = bad_sorts("sort", [](const Tensor& x, int axis) { sort(x, axis); });
  rows.push_back(row(
      "sort/columns", [](const Tensor& x) { return sort(x, 0, down).values; }, lines(0, down, false), false));
  rows.back().mixes_rows = "columns are sorted";
  rows.push_back(row(
      "argsort", [](const Tensor& x) { return argsort(x, 1, down); }, lines(1, down, true), true));
  rows.back().bad = bad_sorts("argsort", [](const Tensor& x, int axis) { argsort(x, axis); });
  rows.push_back(row(
      "argsort/columns", [](const Tensor& x) { return argsort(x, 0); }, lines(0, up, true), true));
  rows.back().mixes_rows = "columns are sorted";

  const auto first = [](int axis, Order order, bool positions) {
    return
        [=](const Ref& x) { return sorted_lines(x, axis, order, std::min<std::int64_t>(3, x.shape[axis]), positions); };
  };
  const auto top = [](const Tensor& x, int axis, Order order) {
    return topk(x, std::min<std::int64_t>(3, x.shape()[axis]), axis, order);
  };
  rows.push_back(row(
      "topk", [=](const Tensor& x) { return top(x, 1, down).values; }, first(1, down, false), false));
  rows.back().bad = bad_sorts("topk", [](const Tensor& x, int axis) { topk(x, 1, axis); });
  rows.back().bad.push_back({[] { topk(ones({2, 3}), 4); }, {"topk", "[0, 3] for axis 1, got 4"}});
  rows.push_back(row(
      "topk/smallest", [=](const Tensor& x) { return top(x, 0, up).values; }, first(0, up, false), false));
  rows.push_back(row(
      "topk/which", [=](const Tensor& x) { return top(x, 1, down).which; }, first(1, down, true), true));

  const auto sequences = [](Order order, std::int64_t k, bool positions) {
    return [=](const Ref& x) { return sorted_sequences(x, order, k, positions); };
  };
  rows.push_back(row(
      "sort/ragged", [](const Tensor& x) { return sort(in_sequences(x)).values.values(); }, sequences(up, 100, false),
      false));
  rows.back().mixes_rows = "sequences are sorted";
  rows.back().bad = {{[] { sort(Ragged()); }, {"sort", "x must be defined", "cases.cpp"}}};
  rows.push_back(row(
      "argsort/ragged", [](const Tensor& x) { return argsort(in_sequences(x), down).values(); },
      sequences(down, 100, true), true));
  rows.back().mixes_rows = "sequences are sorted";
  rows.push_back(row(
      "topk/ragged", [](const Tensor& x) { return topk(in_sequences(x), 2).values.values(); },
      sequences(down, 2, false), false));
  rows.back().bad = {
      {[] { topk(Ragged::from_lengths(ones({2}), {2}), -1); }, {"topk", "k must be at least 0, got -1", "cases.cpp"}}};
  rows.push_back(row(
      "topk/ragged_which", [](const Tensor& x) { return topk(in_sequences(x), 2, up).which.values(); },
      sequences(up, 2, true), true));

  rows.push_back(row(
      "unique", [](const Tensor& x) { return unique(x).values; },
      [](const Ref& x) {
        Ref y = x;
        std::sort(y.v.begin(), y.v.end());
        y.v.erase(std::unique(y.v.begin(), y.v.end()), y.v.end());
        y.shape = {y.v.size()};
        return y;
      },
      true));
  rows.back().bad = {{[] { unique(Tensor()); }, {"unique", "x must be defined", "cases.cpp"}}};
  rows.push_back(row(
      "unique/inverse", [](const Tensor& x) { return unique(x).inverse; },
      [](const Ref& x) {
        Ref y = x;
        std::sort(y.v.begin(), y.v.end());
        y.v.erase(std::unique(y.v.begin(), y.v.end()), y.v.end());
        return filled(x.shape, [&](const Index& i) {
          return static_cast<double>(std::lower_bound(y.v.begin(), y.v.end(), at(x, i)) - y.v.begin());
        });
      },
      true));
  rows.back().mixes_rows = "numbers all elements";
  const auto first_column = [](const Tensor& x) { return in_sequences(contiguous(select(x, 1, 0))); };
  rows.push_back(row(
      "unique/ragged", [=](const Tensor& x) { return unique(first_column(x)).values.values(); },
      [](const Ref& x) {
        Ref y;
        for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          std::set<double> elements;
          for (std::int64_t i = begin; i < begin + length; ++i) elements.insert(at(x, {i, 0}));
          y.v.insert(y.v.end(), elements.begin(), elements.end());
        });
        y.shape = {y.v.size()};
        return y;
      },
      true));
  rows.back().bad = {{[] {
                        unique(Ragged::from_lengths(ones({2, 1}), {2}));
                      },
                      {"unique", "x must have shape [total], got [2, 1]", "cases.cpp"}}};
  rows.push_back(row(
      "sort_by_length", [](const Tensor& x) { return sort_by_length(in_sequences(x)).sorted.values(); },
      [](const Ref& x) {
        std::vector<std::array<std::int64_t, 2>> blocks;
        for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          blocks.push_back({begin, length});
        });
        std::stable_sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a[1] > b[1]; });
        Ref y{x.shape, {}};
        for (const auto& [begin, length] : blocks)
          for (std::int64_t i = 0; i < length * x.shape[1]; ++i)
            y.v.push_back(x.v[static_cast<std::size_t>(begin * x.shape[1] + i)]);
        return y;
      },
      false));
  rows.back().mixes_rows = "sequences move";
  rows.back().bad = {{[] { sort_by_length(Ragged()); }, {"sort_by_length: x must be defined", "cases.cpp"}}};
  return rows;
}

}  // namespace reel::test
