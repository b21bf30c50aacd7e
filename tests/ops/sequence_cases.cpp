#include "reel/ops/sequence.h"

#include <cmath>

#include "reel/ops/create.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

Tensors one_input(Maker& make, Size size) {
  const Extent n = extent_of(size);
  return Tensors{make.uniform({n.rows, n.cols})};
}

OpCase windows(std::int64_t window, const std::string& variant) {
  return {.name = "seq2col" + variant,
          .inputs = one_input,
          .call = [window](const Tensors& in) { return seq2col(in_sequences(in[0]), window).values(); },
          .reference =
              [window](const std::vector<Ref>& in) {
                const Ref& x = in[0];
                Ref y{{x.shape[0], (2 * window + 1) * x.shape[1]}, {}};
                for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + length; ++r)
                    for (std::int64_t q = r - window; q <= r + window; ++q)
                      for (std::int64_t c = 0; c < x.shape[1]; ++c)
                        y.v.push_back(q >= begin && q < begin + length ? at(x, {q, c}) : 0);
                });
                return y;
              },
          .tolerance = 0,
          .mixes_rows = window > 0 ? "a window over neighbours" : "",
          .bad = {{[] {
                     seq2col(in_sequences(ones({3, 2})), -1);
                   },
                   {"seq2col", "at least 0", "-1", "cases.cpp"}},
                  {[] {
                     seq2col(in_sequences(ones({3, 2, 2})), 1);
                   },
                   {"seq2col", "[total, width]", "[3, 2, 2]"}}}};
}

OpCase end_of_each(const std::string& name, Tensor (*op)(const Ragged&, SourceLocation), bool last) {
  return {.name = name,
          .inputs = one_input,
          .call = [op](const Tensors& in) { return op(in_sequences(in[0]), SourceLocation::current()); },
          .reference =
              [last](const std::vector<Ref>& in) {
                const Ref& x = in[0];
                Ref y{{sequence_lengths(x.shape[0]).size(), x.shape[1]}, {}};
                for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t c = 0; c < x.shape[1]; ++c)
                    y.v.push_back(length == 0 ? 0 : at(x, {last ? begin + length - 1 : begin, c}));
                });
                return y;
              },
          .tolerance = 0,
          .bad = {{[op] { op(Ragged(), SourceLocation::current()); }, {"reduce_", "x must be defined", "cases.cpp"}}}};
}

OpCase backwards() {
  return {.name = "reverse",
          .inputs = one_input,
          .call = [](const Tensors& in) { return reverse(in_sequences(in[0])).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y{in[0].shape, {}};
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin + length; r-- > begin;)
                    for (std::int64_t c = 0; c < in[0].shape[1]; ++c) y.v.push_back(at(in[0], {r, c}));
                });
                return y;
              },
          .tolerance = 0,
          .mixes_rows = "sequences are turned round",
          .bad = {{[] { reverse(Ragged()); }, {"reverse: x must be defined", "cases.cpp"}}}};
}

OpCase places() {
  return {.name = "positions",
          .inputs = one_input,
          .call = [](const Tensors& in) { return positions(in_sequences(in[0])).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y{{in[0].shape[0]}, {}};
                for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
                  for (std::int64_t r = begin; r < begin + length; ++r) y.v.push_back(static_cast<double>(r - begin));
                });
                return y;
              },
          .order = 0,
          .tolerance = 0,
          .mixes_rows = "counts the rows before",
          .bad = {{[] { positions(Ragged()); }, {"positions: x must be defined", "cases.cpp"}}}};
}

double wave(std::int64_t place, std::int64_t c, std::int64_t width, double base) {
  const double exponent = static_cast<double>(c - c % 2) / static_cast<double>(width);
  const double angle = static_cast<double>(place) / std::pow(base, exponent);
  return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

OpCase waves() {
  return {.name = "position_encoding",
          .inputs = one_input,
          .call =
              [](const Tensors& in) {
                return position_encoding(in[0].shape()[0], in[0].shape()[1],
                                         {.dtype = in[0].dtype(), .device = in[0].device()}, 100);
              },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled(in[0].shape, [&](const auto& i) { return wave(i[0], i[1], in[0].shape[1], 100); });
              },
          .order = 0,
          .tolerance = 1000,  // in f64 the reference's own angle is rounded
          .mixes_rows = "counts the rows before",
          .bad = {{[] { position_encoding(-1, 2); }, {"position_encoding", "at least 0", "-1", "cases.cpp"}},
                  {[] { position_encoding(1, 2, {.dtype = i64}); }, {"position_encoding", "f32 or f64", "i64"}},
                  {[] { position_encoding(1, 2, {}, 0); }, {"position_encoding", "base", "above 0"}}}};
}

OpCase waves_of_sequences() {
  OpCase row = waves();
  row.name += "/ragged";
  row.call = [](const Tensors& in) { return position_encoding(in_sequences(in[0])).values(); };
  row.reference = [](const std::vector<Ref>& in) {
    Ref y{in[0].shape, {}};
    const std::int64_t width = in[0].shape[1];
    for_each_sequence(in[0].shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
      for (std::int64_t r = begin; r < begin + length; ++r)
        for (std::int64_t c = 0; c < width; ++c) y.v.push_back(wave(r - begin, c, width, 10000));
    });
    return y;
  };
  row.tolerance = 4;
  row.bad = {{[] { position_encoding(in_sequences(ones({3}))); }, {"position_encoding", "[total, width]", "[3]"}}};
  return row;
}

}  // namespace

std::vector<OpCase> sequence_cases() {
  return {windows(1, ""),
          windows(0, "/alone"),
          windows(5, "/wide"),
          end_of_each("reduce_first", reduce_first, false),
          end_of_each("reduce_last", reduce_last, true),
          backwards(),
          places(),
          waves(),
          waves_of_sequences()};
}

}  // namespace reel::test
