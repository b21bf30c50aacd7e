// Indices into sequences, and ops that move, cut and join sequences.

#include <algorithm>

#include "reel/ops/index.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

const TensorOptions kInteger{.dtype = i64};

std::int64_t integer(const Ref& x, const Index& index) { return static_cast<std::int64_t>(at(x, index)); }

// The same along the rows of each sequence, by index (i64, [total, columns]).
Tensors ragged_with_index(Maker& make, Size size) {
  const Extent n = extent_of(size);
  return Tensors{make.uniform({n.rows, n.cols}), local_indices(n.rows, n.cols)};
}
Ragged index_beside(const Tensor& index, const Tensor& x) {
  return Ragged::from_lengths(index, index_lengths(x.shape()[0]));
}

OpCase ragged_gather() {
  return {.name = "gather/ragged",
          .inputs = ragged_with_index,
          .call = [](const Tensors& in) { return gather(in_sequences(in[0]), index_beside(in[1], in[0])).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                const Index begins = begins_of_indices(in[0].shape[0]);
                return filled(in[1].shape, [&](const Index& i) {
                  return at(in[0], {begins[static_cast<std::size_t>(i[0])] + integer(in[1], i), i[1]});
                });
              },
          .tolerance = 0,
          .mixes_rows = "the rows of each sequence",
          .bad = {{[] {
                     gather(Ragged::from_lengths(ones({3, 1}), {1, 2}),
                            Ragged::from_lengths(tensor({0, 1, 2, 0}, {4, 1}, kInteger), {1, 3}));
                   },
                   {"gather", "sequence 1", "[0, 2)", "got 2 in row 1", "cases.cpp"}},
                  {[] {
                     gather(Ragged::from_lengths(ones({3, 1}), {0, 3}),
                            Ragged::from_lengths(tensor({0}, {1, 1}, kInteger), {1, 0}));
                   },
                   {"gather", "sequence 0", "[0, 0)", "got 0 in row 0"}},
                  {[] {
                     gather(Ragged::from_lengths(ones({3, 1}), {1, 2}),
                            Ragged::from_lengths(tensor({0, 1, 0}, {3, 1}, kInteger), {3}));
                   },
                   {"gather", "as many sequences as x, 2, got 1"}},
                  {[] {
                     gather(Ragged::from_lengths(ones({3, 2}), {3}),
                            Ragged::from_lengths(tensor({0, 1, 0}, {3, 1}, kInteger), {3}));
                   },
                   {"gather", "shape of x, [3, 2], but for axis 0, got [3, 1]"}}}};
}

OpCase ragged_scatter() {
  return {.name = "scatter_add/ragged",
          .inputs =
              [](Maker& make, Size size) {
                Tensors in = ragged_with_index(make, size);
                in.push_back(make.uniform(in[1].shape()));
                return in;
              },
          .call =
              [](const Tensors& in) {
                const Ragged index = index_beside(in[1], in[0]);
                return scatter_add(in_sequences(in[0]), index, index.with(in[2])).values();
              },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref y = in[0];
                const Index begins = begins_of_indices(in[0].shape[0]);
                for (std::int64_t k = 0; k < in[1].shape.size(); ++k) {
                  Index i = index_of(k, in[1].shape);
                  i[0] = begins[static_cast<std::size_t>(i[0])] + integer(in[1], i);
                  y.v[static_cast<std::size_t>(flat_of(i, y.shape))] += in[2].v[static_cast<std::size_t>(k)];
                }
                return y;
              },
          .differentiable = {0, 2},
          .mixes_rows = "adds rows to others",
          .bad = {{[] {
                     const Ragged x = Ragged::from_lengths(ones({3}), {1, 2});
                     scatter_add(x, x.with(arange(3)), Ragged::from_lengths(ones({3}), {2, 1}));
                   },
                   {"scatter_add", "same lengths", "cases.cpp"}}}};
}

OpCase selects_rows() {
  return {
      .name = "index_select/ragged_rows",
      .inputs =
          [](Maker& make, Size size) {
            const Extent n = extent_of(size);
            const Tensor index = local_indices(n.rows, 1);
            return Tensors{make.uniform({n.rows, n.cols}),
                           from_vector(index.to_vector<std::int64_t>(), {index.size()})};
          },
      .call = [](const Tensors& in) { return index_select(in_sequences(in[0]), index_beside(in[1], in[0])).values(); },
      .reference =
          [](const std::vector<Ref>& in) {
            const Index begins = begins_of_indices(in[0].shape[0]);
            return filled({in[1].shape[0], in[0].shape[1]}, [&](const Index& i) {
              return at(in[0], {begins[static_cast<std::size_t>(i[0])] + integer(in[1], {i[0]}), i[1]});
            });
          },
      .tolerance = 0,
      .mixes_rows = "the rows of each sequence",
      .bad = {{[] {
                 index_select(Ragged::from_lengths(ones({3, 2}), {1, 2}),
                              Ragged::from_lengths(tensor({0, -1}, kInteger), {1, 1}));
               },
               {"index_select", "sequence 1", "[0, 2)", "got -1 in row 0", "cases.cpp"}},
              {[] {
                 index_select(Ragged::from_lengths(ones({3, 2}), {1, 2}), 0, arange(1));
               },
               {"index_select", "behind the rows' axis 0"}}}};
}

// A row for an op on the sequences of x [rows, cols] whose rows come from `from`: the rows of x, one after the other.
OpCase moves_rows(const std::string& name, std::function<Ragged(const Ragged&)> op,
                  std::function<Index(std::int64_t rows)> from, std::vector<BadCall> bad) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in_sequences(in[0])).values(); },
          .reference =
              [from](const std::vector<Ref>& in) {
                const Index rows = from(in[0].shape[0]);
                return filled({rows.size(), in[0].shape[1]}, [&](const Index& i) {
                  return at(in[0], {rows[static_cast<std::size_t>(i[0])], i[1]});
                });
              },
          .tolerance = 0,
          .bad = std::move(bad)};
}

Index rows_between(std::int64_t begin, std::int64_t end) {
  Index rows;
  for (; begin < end; ++begin) rows.push_back(begin);
  return rows;
}

// The sequences in reverse, and the middle one again.
Index sequences_taken(std::int64_t count) {
  Index order;
  for (std::int64_t s = count - 1; s >= 0; --s) order.push_back(s);
  order.push_back(count / 2);
  return order;
}

Ragged two() { return Ragged::from_lengths(ones({3, 2}), {1, 2}); }

}  // namespace

std::vector<OpCase> ragged_index_cases() {
  std::vector<OpCase> rows;
  rows.push_back(moves_rows(
      "take/ragged", [](const Ragged& x) { return take(x, sequences_taken(x.count())); },
      [](std::int64_t total) {
        std::vector<Index> sequences;
        for_each_sequence(total, [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          sequences.push_back(rows_between(begin, begin + length));
        });
        Index from;
        for (const std::int64_t s : sequences_taken(static_cast<std::int64_t>(sequences.size()))) {
          const Index& rows = sequences[static_cast<std::size_t>(s)];
          from.insert(from.end(), rows.begin(), rows.end());
        }
        return from;
      },
      {{[] {
          take(two(), {0, 2});
        },
        {"take", "[-2, 2)", "got 2 at position 1", "cases.cpp"}}}));
  rows.back().mixes_rows = "sequences change places";
  rows.push_back(moves_rows(
      "slice/ragged", [](const Ragged& x) { return slice(x, 1, -1); },
      [](std::int64_t total) {
        Index from;
        for_each_sequence(total, [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          for (std::int64_t i = 1; i < length - 1; ++i) from.push_back(begin + i);
        });
        return from;
      },
      {}));
  rows.push_back(moves_rows(
      "slice/ragged_each",
      [](const Ragged& x) {
        Index begins, ends;
        for (std::int64_t s = 0; s < x.count(); ++s) {
          begins.push_back(s % 5 - 3);
          ends.push_back(s % 3 == 0 ? 100 : s % 4);
        }
        return slice(x, begins, ends);
      },
      [](std::int64_t total) {
        Index from;
        for_each_sequence(total, [&](std::int64_t s, std::int64_t begin, std::int64_t length) {
          const std::int64_t first = s % 5 - 3;
          const std::int64_t low = std::min(first < 0 ? std::max<std::int64_t>(first + length, 0) : first, length);
          const std::int64_t high = std::min(s % 3 == 0 ? 100 : s % 4, length);
          for (std::int64_t i = low; i < high; ++i) from.push_back(begin + i);
        });
        return from;
      },
      {{[] {
          slice(two(), Index{0}, Index{1, 2});
        },
        {"slice", "each of the 2 sequences, got 1 and 2", "cases.cpp"}}}));
  // x beside its rows without the first of each sequence.
  rows.push_back(moves_rows(
      "concatenate/ragged",
      [](const Ragged& x) {
        return concatenate({x, slice(x, 1, 100), x});
      },
      [](std::int64_t total) {
        Index from;
        for_each_sequence(total, [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          for (const std::int64_t first : {begin, begin + 1, begin})
            for (std::int64_t row = first; row < begin + length; ++row) from.push_back(row);
        });
        return from;
      },
      {{[] { concatenate(std::vector<Ragged>{}); }, {"concatenate", "at least one Ragged", "cases.cpp"}},
       {[] {
          concatenate({two(), take(two(), {0})});
        },
        {"concatenate", "as many sequences, got 2 and 1"}},
       {[] {
          concatenate({two(), Ragged::from_lengths(ones({3, 2}), {2, 1})}, 1);
        },
        {"concatenate", "same lengths"}}}));
  rows.push_back(moves_rows(
      "concatenate_batches",
      [](const Ragged& x) {
        return concatenate_batches({x, slice(x, 0, 2)});
      },
      [](std::int64_t total) {
        Index from = rows_between(0, total);
        for_each_sequence(total, [&](std::int64_t, std::int64_t begin, std::int64_t length) {
          for (std::int64_t i = 0; i < std::min<std::int64_t>(length, 2); ++i) from.push_back(begin + i);
        });
        return from;
      },
      {{[] {
          concatenate_batches({two(), Ragged::from_lengths(ones({1, 3}), {1})});
        },
        {"concatenate", "[3, 2] and [1, 3] for part 1", "cases.cpp"}}}));
  OpCase columns = moves_rows("concatenate/ragged_columns",
                              [](const Ragged& x) {
                                return concatenate({x, x}, -1);
                              },
                              {}, {});
  columns.reference = [](const std::vector<Ref>& in) {
    const std::int64_t width = in[0].shape[1];
    return filled({in[0].shape[0], 2 * width}, [&](const Index& i) { return at(in[0], {i[0], i[1] % width}); });
  };
  rows.push_back(columns);
  rows.push_back(ragged_gather());
  rows.push_back(ragged_scatter());
  rows.push_back(selects_rows());
  return rows;
}

}  // namespace reel::test
