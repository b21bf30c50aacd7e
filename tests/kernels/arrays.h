#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "reel/core/array.h"
#include "reel/core/ops.h"
#include "reel/core/parallel.h"

// Arrays with memory of their own for the tests of kernels, which need no Tensor.

namespace reel::test {

/// What every instruction set writes past the caches; only repeated rows stay in them up to 48 MiB.
inline std::int64_t bytes_past_caches() { return std::max<std::int64_t>(24 << 20, detail::last_cache_bytes() / 16); }

/// How an array lies in memory. Strides of axes of size 1 are odd numbers that no kernel may use.
enum class Layout {
  contiguous,
  column_major,  // the first axis is the dense one
  gapped,        // row-major, with gaps between elements and rows
  reversed,      // row-major, walked backwards
  broadcast,     // every second axis, from the last, has stride 0: for inputs
};
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::column_major, Layout::gapped, Layout::reversed,
                                      Layout::broadcast};
inline constexpr Layout kOutputLayouts[] = {Layout::contiguous, Layout::column_major, Layout::gapped, Layout::reversed};

inline std::vector<std::int64_t> strides_of(const Shape& shape, Layout layout) {
  const int rank = shape.rank();
  std::vector<std::int64_t> strides(static_cast<std::size_t>(rank));
  std::int64_t stride = layout == Layout::gapped ? 2 : 1;
  for (int i = 0; i < rank; ++i) {
    const int axis = layout == Layout::column_major ? i : rank - 1 - i;
    auto& result = strides[static_cast<std::size_t>(axis)];
    result = layout == Layout::reversed ? -stride : stride;
    if (layout == Layout::broadcast && i % 2 == 0) {
      result = 0;
    } else {
      stride *= shape[axis] + (layout == Layout::gapped ? 1 : 0);
    }
    if (shape[axis] == 1 && layout != Layout::contiguous) result = 12345;
  }
  return strides;
}

/// Memory for an Array of the given shape and layout, bytes around and between its elements marked.
template <class T>
class TestArray {
 public:
  explicit TestArray(const Shape& shape, Layout layout = Layout::contiguous)
      : TestArray(shape, strides_of(shape, layout)) {}

  TestArray(const Shape& shape, const std::vector<std::int64_t>& strides) {
    array_.shape = shape;
    array_.size = shape.size();
    array_.dtype = dtype_of<T>;
    array_.contiguous = true;
    std::int64_t low = 0, high = 0, dense = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const std::int64_t stride = strides[static_cast<std::size_t>(axis)], size = shape[axis];
      array_.strides[axis] = stride;
      if (size > 1) {
        (stride < 0 ? low : high) += stride * (size - 1);
        if (stride != dense) array_.contiguous = false;
      }
      dense *= size;
    }
    memory_.assign(static_cast<std::size_t>(high - low + 1) * sizeof(T) + 2 * kMargin, kMark);
    origin_ = static_cast<std::int64_t>(kMargin) - low * static_cast<std::int64_t>(sizeof(T));
    array_.data = memory_.data() + origin_;
    for (std::int64_t i = 0; i < size(); ++i) set(i, T());
  }

  TestArray(const TestArray& other) { *this = other; }
  TestArray& operator=(const TestArray& other) {
    memory_ = other.memory_;
    array_ = other.array_;
    origin_ = other.origin_;
    array_.data = memory_.data() + origin_;
    return *this;
  }

  const Array& array() const { return array_; }
  operator const Array&() const { return array_; }
  operator Operand() const { return {.array = &array_, .scalar = {}}; }
  std::int64_t size() const { return array_.size; }

  /// Element `i` in row-major order.
  T operator[](std::int64_t i) const {
    T value;
    std::memcpy(&value, array_.as<T>() + offset(i), sizeof value);
    return value;
  }
  void set(std::int64_t i, T value) { std::memcpy(array_.as<T>() + offset(i), &value, sizeof value); }

  /// All elements in row-major order.
  std::vector<T> values() const {
    std::vector<T> all(static_cast<std::size_t>(size()));
    for (std::int64_t i = 0; i < size(); ++i) all[static_cast<std::size_t>(i)] = (*this)[i];
    return all;
  }

  /// Whether nothing was written around or between the elements.
  bool margins_intact() const {
    std::vector<char> expected = memory_;
    for (std::int64_t i = 0; i < size(); ++i) {
      std::memset(expected.data() + origin_ + offset(i) * static_cast<std::int64_t>(sizeof(T)), kMark, sizeof(T));
    }
    for (char byte : expected) {
      if (byte != kMark) return false;
    }
    return true;
  }

  /// Where element `i` in row-major order is, in elements from `data`.
  std::int64_t offset(std::int64_t i) const {
    if (array_.contiguous) return i;
    std::int64_t result = 0;
    for (int axis = array_.rank() - 1; axis >= 0; --axis) {
      const std::int64_t size = array_.shape[axis];
      if (size > 1) result += i % size * array_.strides[axis];
      i /= size;
    }
    return result;
  }

 private:
  static constexpr std::size_t kMargin = 64;
  static constexpr char kMark = '\x5a';

  std::vector<char> memory_;
  std::int64_t origin_ = 0;
  Array array_;
};

/// For arguments that may be absent.
template <class T>
const Array* pointer(const TestArray<T>& x, bool there) {
  return there ? &x.array() : nullptr;
}

/// A contiguous array from the start of a line on, as the allocator gives it, where large results may be written past the
/// caches, or from `offset` elements after it. The elements before and after it are marked.
template <class T>
class LineAlignedArray {
 public:
  explicit LineAlignedArray(const Shape& shape, std::int64_t offset = 0)
      : memory_(static_cast<std::size_t>(shape.size() + offset) + 2 * kLine, kMark) {
    array_.shape = shape;
    array_.size = shape.size();
    array_.dtype = dtype_of<T>;
    array_.contiguous = true;
    std::int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      array_.strides[axis] = stride;
      stride *= shape[axis];
    }
    array_.data = reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory_.data() + 1) + 63) / 64 * 64) + offset;
  }
  LineAlignedArray(const LineAlignedArray&) = delete;

  operator const Array&() const { return array_; }
  T operator[](std::int64_t i) const { return array_.as<T>()[i]; }
  bool margins_intact() const { return (*this)[-1] == kMark && (*this)[array_.size] == kMark; }

 private:
  static constexpr std::size_t kLine = 64 / sizeof(T);
  static constexpr T kMark = T(-7);

  std::vector<T> memory_;
  Array array_;
};

/// Whole numbers from `low` to `high`, plus a fraction for floating types; the same for the same seed.
template <class T>
void randomize(TestArray<T>& x, unsigned seed, double low = -4, double high = 4) {
  std::mt19937 bits(seed);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double value = low + (high - low) * (static_cast<double>(bits() >> 5) * 0x1p-27);
    if constexpr (std::is_same_v<T, bool>) {
      x.set(i, value > 0.5 * (low + high));
    } else if constexpr (std::is_unsigned_v<T>) {
      x.set(i, static_cast<T>(value < 0 ? -value : value));
    } else {
      x.set(i, static_cast<T>(value));
    }
  }
}

template <class T>
TestArray<T> random_array(const Shape& shape, unsigned seed, Layout layout = Layout::contiguous) {
  TestArray<T> x(shape, layout);
  randomize(x, seed);
  return x;
}

/// Whether two arrays hold the same bytes, element for element.
template <class T>
bool same_bits(const TestArray<T>& a, const TestArray<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const T x = a[i], y = b[i];
    if (std::memcmp(&x, &y, sizeof x) != 0) return false;
  }
  return true;
}

/// Thread counts under which results must be the same, in this scope only.
inline constexpr int kThreadCounts[] = {1, 2, 3, 7, 16};
class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

inline constexpr std::int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 1025, 100000};

/// Of every rank.
inline std::vector<Shape> shapes() {
  return {Shape(),
          Shape{0},
          Shape{1},
          Shape{37},
          Shape{3, 0},
          Shape{5, 33},
          Shape{64, 40},
          Shape{1, 257},
          Shape{257, 1},
          Shape{3, 1, 70},
          Shape{4, 5, 6},
          Shape{2, 3, 4, 5},
          Shape{2, 1, 3, 9, 4},
          Shape{2, 2, 2, 2, 2, 2},
          Shape{2, 3, 1, 2, 2, 3, 2},
          Shape{2, 1, 2, 3, 2, 1, 2, 3},
          Shape{8, 3, 50, 30}};
}

inline Ops& cpu() { return backend(Device::cpu()); }

}  // namespace reel::test
