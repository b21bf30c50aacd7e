#pragma once

// Sequences for rows of the op-case table: their lengths are a function of the number of rows alone, so that inputs, call and
// reference agree on them.

#include <algorithm>

#include "reel/core/ragged.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

/// Lengths of 0 to 8 that sum up to `rows`, the first and the last 0.
inline std::vector<std::int64_t> sequence_lengths(std::int64_t rows) { return Maker(f64, 4).lengths(rows); }

inline Ragged in_sequences(const Tensor& values) {
  return Ragged::from_lengths(values, sequence_lengths(values.shape()[0]));
}

inline std::int64_t longest(std::int64_t rows) {
  const std::vector<std::int64_t> lengths = sequence_lengths(rows);
  return *std::max_element(lengths.begin(), lengths.end());
}

/// One sequence of no rows, one of one, and one of the rest.
inline Ragged in_three_sequences(const Tensor& values) {
  const std::int64_t rows = values.shape()[0], one = std::min<std::int64_t>(rows, 1);
  return Ragged::from_lengths(values, {0, one, rows - one});
}

/// Calls f(sequence, begin, length) for each of them.
template <class F>
void for_each_sequence(std::int64_t rows, F&& f) {
  std::int64_t sequence = 0, begin = 0;
  for (const std::int64_t length : sequence_lengths(rows)) {
    f(sequence++, begin, length);
    begin += length;
  }
}

/// How many indices each sequence gets: none without rows, else one or two more than its rows or fewer.
inline std::vector<std::int64_t> index_lengths(std::int64_t rows) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : sequence_lengths(rows))
    lengths.push_back(length == 0 ? 0 : std::max<std::int64_t>(length + 2 - length % 4, 0));
  return lengths;
}

/// Indices of each sequence's rows, [their total, columns].
inline Tensor local_indices(std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> values;
  const std::vector<std::int64_t> lengths = sequence_lengths(rows), counts = index_lengths(rows);
  std::int64_t total = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    total += counts[s];
    for (std::int64_t i = 0; i < counts[s] * columns; ++i)
      values.push_back((i * 5 + static_cast<std::int64_t>(s)) % lengths[s]);
  }
  return from_vector(values, {total, columns});
}

/// The row of x that row i of such indices is about begins its sequence here.
inline std::vector<std::int64_t> begins_of_indices(std::int64_t rows) {
  std::vector<std::int64_t> begins;
  const std::vector<std::int64_t> counts = index_lengths(rows);
  for_each_sequence(rows, [&](std::int64_t s, std::int64_t begin, std::int64_t) {
    begins.insert(begins.end(), static_cast<std::size_t>(counts[static_cast<std::size_t>(s)]), begin);
  });
  return begins;
}

}  // namespace reel::test
