#include "reel/ops/padding.h"

#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

// Walks from the nearest element, turning around at the ends: no arithmetic shared with the op.
std::int64_t walk(std::int64_t i, std::int64_t n, PaddingMode mode) {
  if (i >= 0 && i < n) return i;
  if (mode == PaddingMode::zero) return -1;
  std::int64_t at = i < 0 ? 0 : n - 1, step = i < 0 ? 1 : -1;
  if (mode == PaddingMode::replicate || n == 1) return at;
  std::int64_t left = i < 0 ? -i : i - n + 1;
  if (mode == PaddingMode::symmetric) --left;  // the first one repeats the edge
  while (left-- > 0) {
    const bool turns = at + step < 0 || at + step >= n;
    if (turns) step = -step;
    if (!turns || mode == PaddingMode::reflect) at += step;
  }
  return at;
}

// x [rows, 2, cols] padded around axes 0 and 2.
OpCase pads(const std::string& variant, PaddingMode mode, std::int64_t before, std::int64_t after, double value,
            std::function<Tensor(const Tensor&)> op) {
  OpCase row{.name = "pad" + variant,
             .inputs =
                 [](Maker& make, Size size) {
                   const Extent n = extent_of(size);
                   return Tensors{make.uniform({n.rows, 2, n.cols})};
                 },
             .call = [op](const Tensors& in) { return op(in[0]); },
             .reference =
                 [=](const std::vector<Ref>& in) {
                   const Shape& s = in[0].shape;
                   return filled({s[0] + 1, 2, s[2] + before + after}, [&](Index i) {
                     i[0] = walk(i[0], s[0], mode);
                     i[2] = walk(i[2] - before, s[2], mode);
                     return i[0] < 0 || i[2] < 0 ? value : at(in[0], i);
                   });
                 },
             .tolerance = 0};
  if (mode != PaddingMode::zero) row.skip = {Size::empty};
  return row;
}

// The rows of each sequence, `before` and `after` of them more.
OpCase pads_sequences(const std::string& variant, PaddingMode mode, std::int64_t before, std::int64_t after,
                      double value, std::function<Ragged(const Ragged&)> op) {
  return {.name = "pad" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in_sequences(in[0])).values(); },
          .reference =
              [=](const std::vector<Ref>& in) {
                const Shape& s = in[0].shape;
                Ref y{{0, s[1] + 1}, {}};
                for_each_sequence(s[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t i = -before; i < length + after; ++i, ++y.shape[0]) {
                    const std::int64_t row = length == 0 ? -1 : walk(i, length, mode);
                    for (std::int64_t c = 0; c < s[1]; ++c)
                      y.v.push_back(row < 0 ? value : at(in[0], {begin + row, c}));
                    const std::int64_t last = walk(s[1], s[1], mode);
                    y.v.push_back(row < 0 || last < 0 ? value : at(in[0], {begin + row, last}));
                  }
                });
                return y;
              },
          .tolerance = 0};
}

}  // namespace

std::vector<OpCase> padding_cases() {
  std::vector<OpCase> rows;
  rows.push_back(pads("", PaddingMode::zero, 2, 1, 0, [](const Tensor& x) { return pad(x, {{-1, 2, 1}, {0, 0, 1}}); }));
  rows.back().bad = {{[] {
                        pad(ones({3}), {{0, -1, 0}});
                      },
                      {"pad", "before must be at least 0, got -1", "cases.cpp"}},
                     {[] {
                        pad(ones({3}), {{0, 1, -2}}, PaddingMode::reflect);
                      },
                      {"pad", "after must be at least 0, got -2", "cases.cpp"}},
                     {[] {
                        pad(ones({3}), {{0, 1, 0}, {-1, 0, 1}});
                      },
                      {"pad", "axis 0 twice"}},
                     {[] {
                        pad(ones({3}), {{1, 1, 0}});
                      },
                      {"pad", "axis must be in [-1, 1), got 1"}},
                     {[] {
                        pad(ones({2, 0}), {{1, 1, 0}}, PaddingMode::symmetric);
                      },
                      {"pad", "axis 1 must have an element to repeat, got shape [2, 0]", "cases.cpp"}}};
  rows.push_back(pads("/value", PaddingMode::zero, 1, 0, 7.5, [](const Tensor& x) {
    return pad(x, {{2, 1, 0}, {0, 0, 1}}, 7.5);
  }));
  const auto in_mode = [](PaddingMode mode, std::int64_t before, std::int64_t after) {
    return [=](const Tensor& x) { return pad(x, {{2, before, after}, {0, 0, 1}}, mode); };
  };
  // 11 and 9 are beyond twice the small size.
  for (const auto& [name, mode] : {std::pair{"symmetric", PaddingMode::symmetric},
                                   {"reflect", PaddingMode::reflect},
                                   {"replicate", PaddingMode::replicate},
                                   {"zero", PaddingMode::zero}}) {
    rows.push_back(pads(std::string("/") + name, mode, 2, 1, 0, in_mode(mode, 2, 1)));
    rows.push_back(pads(std::string("/") + name + "_wide", mode, 11, 9, 0, in_mode(mode, 11, 9)));
    if (mode != PaddingMode::zero) {
      rows.push_back(pads_sequences(std::string("/ragged_") + name, mode, 3, 2, 0, [m = mode](const Ragged& x) {
        return pad(x, {{1, 0, 1}, {0, 3, 2}}, m);
      }));
      rows.back().skip = {};
    }
  }
  rows.push_back(pads_sequences("/ragged", PaddingMode::zero, 0, 2, -1.5, [](const Ragged& x) {
    return pad(x, {{0, 0, 2}, {1, 0, 1}}, -1.5);
  }));
  return rows;
}

}  // namespace reel::test
