#pragma once

// What rows of the table share that cut their inputs into sequences.

#include <algorithm>

#include "reel/core/ragged.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

/// The lengths that go with `rows` rows, 0 to 8: a function of the number alone, so that both call and reference have them.
inline std::vector<std::int64_t> lengths_for(std::int64_t rows) { return Maker(f64, 4).lengths(rows); }

inline std::int64_t longest(std::int64_t rows) {
  const auto lengths = lengths_for(rows);
  return *std::max_element(lengths.begin(), lengths.end());
}

inline Ragged ragged(const Tensor& values) { return Ragged::from_lengths(values, lengths_for(values.shape()[0])); }

/// Calls f(begin, end, sequence) for each sequence.
template <class F>
void for_each_sequence(std::int64_t rows, F&& f) {
  std::int64_t begin = 0, sequence = 0;
  for (const std::int64_t length : lengths_for(rows)) {
    f(begin, begin + length, sequence++);
    begin += length;
  }
}

}  // namespace reel::test
