// Padding and its gradient, row by row: a row is written, or its gradient added up, in one pass, borders included, whatever axes
// are padded. Axes behind the last padded one, and neighbours of which neither is padded, count as one.

#include "reel/backends/cpu/pad.h"

#include <algorithm>
#include <cstring>

#include "reel/core/parallel.h"
#include "reel/core/scalar/padding.h"
#include "reel/core/scratch.h"

namespace reel::cpu {

namespace {

/// Elements that are worth a task, as for other kernels that move memory.
constexpr std::int64_t kGrain = 32768;

struct PaddedAxis {
  std::int64_t n, before, after;
  std::int64_t stride, padded_stride;  // elements from one to the next, without and with padding

  std::int64_t padded() const { return before + n + after; }
  bool is_padded() const { return before + after > 0; }
};

/// The axes before a row, outermost first, and the row: `unit` neighbouring elements are padded as one.
struct Layout {
  PaddingMode mode;
  int rank = 0;
  PaddedAxis axes[kMaxRank];
  PaddedAxis row{1, 0, 0, 1, 1};
  std::int64_t unit = 1;
  bool padded_rows = false;  // whether there are rows around the rows

  /// `x` is the array without padding.
  Layout(const Array& x, const Padding& padding) : mode(padding.mode) {
    int axis = x.rank() - 1;
    const auto is_dense = [&] { return axis >= 0 && (x.strides[axis] == unit || x.shape[axis] == 1); };
    while (is_dense() && padding.before[axis] + padding.after[axis] == 0) unit *= x.shape[axis--];
    std::int64_t padded_stride = unit;
    const auto next = [&] {
      const PaddedAxis found{x.shape[axis], padding.before[axis], padding.after[axis], x.strides[axis], padded_stride};
      padded_stride *= found.padded();
      --axis;
      return found;
    };
    if (is_dense()) row = next();
    PaddedAxis inner_first[kMaxRank];
    while (axis >= 0) {
      const PaddedAxis found = next();
      if (found.n == 1 && !found.is_padded()) continue;
      padded_rows = padded_rows || found.is_padded();
      PaddedAxis* last = rank > 0 ? &inner_first[rank - 1] : nullptr;
      if (last != nullptr && !last->is_padded() && !found.is_padded() && found.stride == last->stride * last->n) {
        last->n *= found.n;
      } else {
        inner_first[rank++] = found;
      }
    }
    std::reverse_copy(inner_first, inner_first + rank, axes);
  }
};

/// Of so many units of each row, how many to a task's piece; rows by themselves are enough where others stand around them.
std::int64_t piece_of(const Layout& layout, std::int64_t units) {
  const std::int64_t most = std::max<std::int64_t>(1, kGrain / layout.unit);
  return layout.padded_rows || units <= most ? std::max<std::int64_t>(units, 1) : most;
}

/// f(at, begin, end) for units [begin, end) of the row at index at[axis] of each axis, of sizes[axis].
template <class F>
void for_each_piece(const Layout& layout, const std::int64_t* sizes, std::int64_t units, F f) {
  std::int64_t rows = 1;
  for (int k = 0; k < layout.rank; ++k) rows *= sizes[k];
  if (rows == 0 || units == 0 || layout.unit == 0) return;
  const std::int64_t piece = piece_of(layout, units), pieces = (units + piece - 1) / piece;
  const std::int64_t elements = std::min(units, piece) * layout.unit;
  const auto part = [&](std::int64_t first, std::int64_t last) __attribute__((noinline)) {
    std::int64_t at[kMaxRank], rest = first / pieces, begin = first % pieces * piece;
    for (int k = layout.rank - 1; k >= 0; --k) {
      at[k] = rest % sizes[k];
      rest /= sizes[k];
    }
    for (std::int64_t i = first; i < last; ++i) {
      f(at, begin, std::min(begin + piece, units));
      if ((begin += piece) < units) continue;
      begin = 0;
      for (int k = layout.rank - 1; k >= 0 && ++at[k] == sizes[k]; --k) at[k] = 0;
    }
  };  // not inlined: parallel_for has two calls of it
  parallel_for(rows * pieces, std::max<std::int64_t>(1, kGrain / (elements + 48)), part);
}

/// f(unit, source) for those of a row's places [begin, end) that are not its own: places count from the padded row's begin, sources
/// from the row's.
template <class F>
void for_each_of_border(const Layout& layout, std::int64_t begin, std::int64_t end, F f) {
  const PaddedAxis& row = layout.row;
  const std::int64_t parts[2][2] = {{begin, std::min(end, row.before)}, {std::max(begin, row.before + row.n), end}};
  for (const auto& [first, last] : parts) {
    if (first >= last) continue;
    if (scalar::repeats_edge(row.n, layout.mode)) {
      for (std::int64_t i = first; i < last; ++i) f(i, i < row.before ? 0 : row.n - 1);
      continue;
    }
    const scalar::Mirrors mirrors(row.n, layout.mode);
    std::int64_t phase = mirrors.phase(first - row.before);
    for (std::int64_t i = first; i < last; ++i) {
      f(i, mirrors.element(phase));
      if (++phase == mirrors.period) phase = 0;
    }
  }
}

/// `count` copies of the first `size` bytes of `value`.
void fill(char* to, std::uint64_t value, std::int64_t size, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count * size);
  if (value == 0 || size == 1) {
    std::memset(to, static_cast<int>(value), bytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * size, &value, static_cast<std::size_t>(size));
}

/// What pad writes, all lengths in bytes.
struct Rows {
  const Layout& layout;
  const char* x;
  char* y;
  std::uint64_t value;
  std::int64_t size;  // of an element

  /// Places [begin, end) of a padded row; `from` null: of `value` alone.
  void write(const char* from, std::int64_t begin, std::int64_t end, char* to) const {
    const PaddedAxis& row = layout.row;
    const std::int64_t unit = layout.unit * size, behind = row.before + row.n;
    const auto outside = [&](std::int64_t first, std::int64_t last) {
      if (first < last) fill(to + first * unit, value, size, (last - first) * layout.unit);
    };
    if (from == nullptr) return outside(begin, end);
    const std::int64_t first = std::max(begin, row.before), last = std::min(end, behind);
    if (first < last)
      std::memcpy(to + first * unit, from + (first - row.before) * unit,
                  static_cast<std::size_t>((last - first) * unit));
    if (!row.is_padded()) return;
    if (layout.mode == PaddingMode::zero) {
      outside(begin, std::min(end, row.before));
      outside(std::max(begin, behind), end);
      return;
    }
    for_each_of_border(layout, begin, end, [&](std::int64_t i, std::int64_t source) {
      unit == 4 ? std::memcpy(to + i * 4, from + source * 4, 4)
                : std::memcpy(to + i * unit, from + source * unit, static_cast<std::size_t>(unit));
    });
  }
  void write_at(const std::int64_t* at, std::int64_t begin, std::int64_t end) const {
    const char* from = x;
    char* to = y;
    for (int k = 0; k < layout.rank; ++k) {
      const PaddedAxis& axis = layout.axes[k];
      to += at[k] * axis.padded_stride * size;
      const std::int64_t source = scalar::padding_source(at[k] - axis.before, axis.n, layout.mode);
      from = source < 0 || from == nullptr ? nullptr : from + source * axis.stride * size;
    }
    write(from, begin, end, to);
  }
};

/// The rows of dy that stand for one row, one after the other.
template <class T>
class RowPlaces {
 public:
  RowPlaces(const Layout& layout, const std::int64_t* at, const T* dy) : layout_(layout) {
    for (int k = 0; k < layout.rank; ++k) {
      const PaddedAxis& axis = layout.axes[k];
      const scalar::PaddingPlaces places(at[k], axis.n, axis.before, axis.after, layout.mode);
      dy += (places.first + axis.before) * axis.padded_stride;
      count_ *= places.count;
      counts_[k] = places.count;
      steps_[k][0] = places.steps[0] * axis.padded_stride;
      steps_[k][1] = places.steps[1] * axis.padded_stride;
    }
    first_ = dy;
  }
  std::int64_t count() const { return count_; }
  const T* at(std::int64_t i) const {
    const T* row = first_;
    for (int k = layout_.rank - 1; k >= 0; --k) {
      const std::int64_t place = i % counts_[k];
      i /= counts_[k];
      row += (place >> 1) * (steps_[k][0] + steps_[k][1]) + (place & 1) * steps_[k][0];
    }
    return row;
  }

 private:
  const Layout& layout_;
  const T* first_;
  std::int64_t count_ = 1, counts_[kMaxRank], steps_[kMaxRank][2];
};

/// Whether no element of a row stands at more than five places of it, in most cases three.
bool few_places(const Layout& layout) {
  const PaddedAxis& row = layout.row;
  if (scalar::repeats_edge(row.n, layout.mode)) return row.before + row.after <= 4;
  return row.before <= row.n && row.after <= row.n;
}

/// What has few terms is added up in T, all else in f64.
template <class T>
void add_up(const Layout& layout, const T* dy, T* dx) {
  const PaddedAxis& row = layout.row;
  const std::int64_t unit = layout.unit, own = row.before * unit, padded = row.padded() * unit;
  const bool few = few_places(layout);
  std::int64_t sizes[kMaxRank];
  for (int k = 0; k < layout.rank; ++k) sizes[k] = layout.axes[k].n;
  const auto piece = [&](const std::int64_t* at, std::int64_t begin, std::int64_t end) {
    T* to = dx;
    for (int k = 0; k < layout.rank; ++k) to += at[k] * layout.axes[k].stride;
    const RowPlaces<T> places(layout, at, dy);
    const T* first = places.at(0);
    if (few && places.count() == 1) {
      std::memcpy(to + begin * unit, first + own + begin * unit,
                  static_cast<std::size_t>((end - begin) * unit) * sizeof(T));
      for_each_of_border(layout, 0, row.padded(), [&](std::int64_t i, std::int64_t source) {
        if (source < begin || source >= end) return;
        for (std::int64_t j = 0; j < unit; ++j) to[source * unit + j] += first[i * unit + j];
      });
      return;
    }
    const Scratch scratch(static_cast<std::size_t>(padded) * sizeof(double));
    double* sums = scratch.as<double>();
    for (std::int64_t j = 0; j < padded; ++j) sums[j] = first[j];
    for (std::int64_t i = 1; i < places.count(); ++i) {
      const T* more = places.at(i);
      for (std::int64_t j = 0; j < padded; ++j) sums[j] += more[j];
    }
    for_each_of_border(layout, 0, row.padded(), [&](std::int64_t i, std::int64_t source) {
      for (std::int64_t j = 0; j < unit; ++j) sums[own + source * unit + j] += sums[i * unit + j];
    });
    for (std::int64_t j = begin * unit; j < end * unit; ++j) to[j] = static_cast<T>(sums[own + j]);
  };
  for_each_piece(layout, sizes, row.n, piece);
}

}  // namespace

void pad(const Array& x, const Padding& padding, std::uint64_t value, const Array& y) {
  const Layout layout(x, padding);
  const Rows rows{layout, x.as<char>(), y.as<char>(), value, static_cast<std::int64_t>(size_of(y.dtype))};
  std::int64_t sizes[kMaxRank];
  for (int k = 0; k < layout.rank; ++k) sizes[k] = layout.axes[k].padded();
  for_each_piece(layout, sizes, layout.row.padded(),
                 [&](const std::int64_t* at, std::int64_t begin, std::int64_t end) { rows.write_at(at, begin, end); });
}

void pad_backward(const void* dy, const Padding& padding, const Array& dx) {
  const Layout layout(dx, padding);
  dx.dtype == DType::f32 ? add_up(layout, static_cast<const float*>(dy), dx.as<float>())
                         : add_up(layout, static_cast<const double*>(dy), dx.as<double>());
}

}  // namespace reel::cpu
