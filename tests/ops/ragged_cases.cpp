#include "reel/ops/ragged.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/softmax.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

Tensors one_input(Maker& make, Size size) {
  const Extent n = extent_of(size);
  return Tensors{make.distinct({n.rows, n.cols})};
}

OpCase within(const std::string& name, bool log) {
  return {.name = name + "/ragged",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols}, -6, 6)};
              },
          .call =
              [log](const Tensors& in) {
                return (log ? log_softmax(in_sequences(in[0])) : softmax(in_sequences(in[0]))).values();
              },
          .reference =
              [log](const std::vector<Ref>& in) {
                Ref y = in[0];
                const std::int64_t width = in[0].shape[1];
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t c = 0; c < width; ++c) {
                    double largest = -INFINITY, total = 0;
                    for (std::int64_t r = begin; r < begin + length; ++r)
                      largest = std::max(largest, at(in[0], {r, c}));
                    for (std::int64_t r = begin; r < begin + length; ++r)
                      total += std::exp(at(in[0], {r, c}) - largest);
                    for (std::int64_t r = begin; r < begin + length; ++r) {
                      const double value = at(in[0], {r, c}) - largest - std::log(total);
                      y.v[static_cast<std::size_t>(r * width + c)] = log ? value : std::exp(value);
                    }
                  }
                });
                return y;
              },
          .tolerance = 20,
          .mixes_rows = "over a sequence"};
}

OpCase per_sequence() {
  return {.name = "mul/ragged_per_sequence",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor x = make.uniform({n.rows, n.cols});
                return Tensors{x, make.uniform({sequence_lengths(n.rows).size(), n.cols})};
              },
          .call = [](const Tensors& in) { return (in_sequences(in[0]) * in[1]).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y = in[0];
                const std::int64_t width = in[0].shape[1];
                for_each_sequence(in[0].shape[0], [&](std::int64_t s, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + length; ++r)
                    for (std::int64_t c = 0; c < width; ++c)
                      y.v[static_cast<std::size_t>(r * width + c)] *= at(in[1], {s, c});
                });
                return y;
              },
          .differentiable = {0, 1},
          .tolerance = 1,
          .mixes_rows = "a number for each sequence"};
}

OpCase repeated() {
  return {
      .name = "repeat_rows",
      .inputs =
          [](Maker& make, Size size) {
            const Extent n = extent_of(size);
            return Tensors{make.uniform({sequence_lengths(n.rows).size(), n.cols}), make.index({n.rows}, 2)};
          },
      .call =
          [](const Tensors& in) { return repeat_rows(in[0], Offsets(sequence_lengths(in[1].shape()[0]))).values(); },
      .reference =
          [](const std::vector<Ref>& in) {
            Ref y{{in[1].shape[0], in[0].shape[1]}, {}};
            for_each_sequence(in[1].shape[0], [&](std::int64_t s, std::int64_t begin, std::int64_t length) {
              for (std::int64_t r = begin; r < begin + length; ++r)
                for (std::int64_t c = 0; c < in[0].shape[1]; ++c) y.v.push_back(at(in[0], {s, c}));
            });
            return y;
          },
      .tolerance = 0,
      .mixes_rows = "a row for each sequence",
      .bad = {{[] {
                 repeat_rows(ones({2, 3}), Offsets(std::vector<std::int64_t>{1, 2, 3}));
               },
               {"repeat_rows", "each of the 3 sequences", "[2, 3]", "cases.cpp"}}}};
}

OpCase padding() {
  return {.name = "to_padded",
          .inputs = one_input,
          .call = [](const Tensors& in) { return to_padded(in_sequences(in[0]), 7); },
          .reference =
              [](const std::vector<Ref>& in) {
                const std::int64_t most = longest(in[0].shape[0]);
                Ref y{{sequence_lengths(in[0].shape[0]).size(), most, in[0].shape[1]}, {}};
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + most; ++r)
                    for (std::int64_t c = 0; c < in[0].shape[1]; ++c)
                      y.v.push_back(r < begin + length ? at(in[0], {r, c}) : 7);
                });
                return y;
              },
          .tolerance = 0,
          .bad = {{[] { to_padded(Ragged(), 0); }, {"to_padded: x must be defined", "cases.cpp"}},
                  {[] {
                     to_padded(Ragged::from_lengths(ones({1, 1, 1, 1, 1, 1, 1, 1}), {1}), 0);
                   },
                   {"to_padded: values must have fewer than 8 axes"}}}};
}

OpCase unpadding() {
  return {.name = "from_padded",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor x = make.uniform({sequence_lengths(n.rows).size(), longest(n.rows), n.cols});
                return Tensors{x, make.index({n.rows}, 2)};
              },
          .call = [](const Tensors& in) { return from_padded(in[0], sequence_lengths(in[1].shape()[0])).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y{{in[1].shape[0], in[0].shape[2]}, {}};
                for_each_sequence(in[1].shape[0], [&](std::int64_t s, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + length; ++r)
                    for (std::int64_t c = 0; c < in[0].shape[2]; ++c) y.v.push_back(at(in[0], {s, r - begin, c}));
                });
                return y;
              },
          .tolerance = 0,
          .mixes_rows = "the rows of each sequence",
          .bad = {{[] {
                     from_padded(ones({2, 3, 1}), {1, 4});
                   },
                   {"from_padded", "at least 4", "[2, 3, 1]", "cases.cpp"}}}};
}

OpCase listed() {
  return {.name = "to_list",
          .inputs = one_input,
          .call = [](const Tensors& in) { return Ragged::from_list(to_list(in_sequences(in[0]))).values(); },
          .reference = [](const std::vector<Ref>& in) { return in[0]; },
          .tolerance = 0,
          .bad = {{[] { Ragged::from_list({full({}, 1)}); }, {"from_list", "without axes", "cases.cpp"}}}};
}

}  // namespace

std::vector<OpCase> ragged_cases() {
  std::vector<OpCase> rows;
  rows.push_back(within("softmax", false));
  rows.push_back(within("log_softmax", true));
  rows.push_back(per_sequence());
  rows.push_back(repeated());
  rows.push_back(padding());
  rows.push_back(unpadding());
  rows.push_back(listed());
  return rows;
}

}  // namespace reel::test
