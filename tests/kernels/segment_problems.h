#pragma once

// For tests of the kernels that work within segments: segments, and the rows of one.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel::segment_testing {

using std::int64_t;
using test::TestArray;

inline constexpr int64_t kWidths[] = {1, 2, 3, 15, 16, 17, 33, 64, 70, 257};

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();

/// Segments with the memory of their offsets.
class Ragged {
 public:
  explicit Ragged(const std::vector<int64_t>& lengths) : offsets_(1, 0) {
    for (int64_t length : lengths) {
      offsets_.push_back(offsets_.back() + length);
      longest_ = std::max(longest_, length);
    }
  }
  operator Segments() const { return {count(), offsets_.data(), total(), longest_}; }
  int64_t count() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t total() const { return offsets_.back(); }
  int64_t start(int64_t s) const { return offsets_[static_cast<std::size_t>(s)]; }
  int64_t length(int64_t s) const { return start(s + 1) - start(s); }
  int64_t longest() const { return longest_; }

 private:
  std::vector<int64_t> offsets_;
  int64_t longest_ = 0;
};

/// Every fifth segment is empty.
inline Ragged random_ragged(int64_t count, int64_t longest, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<int64_t> lengths;
  for (int64_t s = 0; s < count; ++s) {
    lengths.push_back(bits() % 5 == 0 ? 0 : static_cast<int64_t>(bits()) % (longest + 1));
  }
  return Ragged(lengths);
}

inline std::vector<Ragged> many_raggeds() {
  return {Ragged({}),
          Ragged({0}),
          Ragged({0, 0, 0}),
          Ragged({1}),
          Ragged({31, 0, 32, 33, 0, 1, 0}),
          Ragged({0, 255, 257}),
          Ragged({1025, 0, 128, 129, 256}),
          random_ragged(70, 100, 1)};
}

/// Rows of x that belong to segment s, alone.
template <class T>
TestArray<T> segment_alone(const TestArray<T>& x, const Ragged& ragged, int64_t s) {
  const int64_t width = x.array().shape[1];
  TestArray<T> alone(Shape{ragged.length(s), width});
  for (int64_t i = 0; i < alone.size(); ++i) alone.set(i, x[ragged.start(s) * width + i]);
  return alone;
}

/// Short ones between some that are long enough to be cut.
inline Ragged long_ragged(int64_t width) {
  const int64_t longest = 700000 / width;
  return Ragged({5, longest, 0, 100, longest / 2 + 17, 3, longest / 3, 0, 1});
}

}  // namespace reel::segment_testing
