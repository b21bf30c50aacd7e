// Padding and its gradient, row by row: a row is written, or its gradient added up, in one pass, borders included, whatever axes
// are padded. Axes behind the last padded one, and neighbours of which neither is padded, count as one.

#include "reel/backends/cpu/pad.h"

#include <algorithm>
#include <cstring>
#include <span>

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

/// The axes before a row, outermost first, and the row: `unit` neighbouring elements, at most kGrain, are padded as one.
struct Layout {
  PaddingMode mode;
  int rank = 0;
  PaddedAxis axes[kMaxRank];
  PaddedAxis row{1, 0, 0, 1, 1};
  std::int64_t unit = 1;

  /// `x` is the array without padding; empty only if it is put among zeros.
  Layout(const Array& x, const Padding& padding) : mode(padding.mode) {
    int axis = x.rank() - 1;
    const auto is_dense = [&] { return axis >= 0 && (x.strides[axis] == unit || x.shape[axis] == 1); };
    while (is_dense() && padding.before[axis] + padding.after[axis] == 0 && unit * x.shape[axis] <= kGrain)
      unit *= x.shape[axis--];
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

/// f(at, rows, begin, end) for units [begin, end) of the row at index at[axis] of each axis, of sizes[axis], and of those at the next
/// `rows` - 1 of the last axis: all of a row's `units`, or, if it may be cut, a piece of them, then of one row.
template <class F>
void for_each_piece(const Layout& layout, const std::int64_t* sizes, std::int64_t units, bool may_be_cut, F f) {
  std::int64_t rows = 1;
  for (int k = 0; k < layout.rank; ++k) rows *= sizes[k];
  const std::int64_t piece = may_be_cut ? std::min(units, kGrain / layout.unit) : units;
  const std::int64_t pieces = (units + piece - 1) / piece;
  const auto part = [&](std::int64_t first, std::int64_t last) __attribute__((noinline)) {
    std::int64_t at[kMaxRank], rest = first / pieces, begin = first % pieces * piece;
    for (int k = layout.rank - 1; k >= 0; --k) {
      at[k] = rest % sizes[k];
      rest /= sizes[k];
    }
    const int inner = layout.rank - 1;
    for (std::int64_t i = first, count; i < last; i += count) {
      count = pieces == 1 && inner >= 0 ? std::min(last - i, sizes[inner] - at[inner]) : 1;
      f(at, count, begin, std::min(begin + piece, units));
      if ((begin += piece) < units) continue;
      begin = 0;
      for (int k = inner; k >= 0 && (at[k] += k == inner ? count : 1) == sizes[k]; --k) at[k] = 0;
    }
  };  // not inlined: parallel_for has two calls of it
  parallel_for(rows * pieces, std::max<std::int64_t>(1, kGrain / (piece * layout.unit + 48)), part);
}

/// `count` places of a padded row, from `place` on, that are not its own: places count from the padded row's begin, sources from the
/// row's; the next source is `step` units on, which is 0, 1 or -1.
struct BorderRun {
  std::int64_t place, source, count, step;
};

/// f(run) for those among places [begin, end).
template <class F>
void find_runs(const PaddedAxis& row, PaddingMode mode, std::int64_t begin, std::int64_t end, F f) {
  const std::int64_t parts[2][2] = {{begin, std::min(end, row.before)}, {std::max(begin, row.before + row.n), end}};
  for (const auto& [first, last] : parts) {
    if (first >= last) continue;
    if (scalar::repeats_edge(row.n, mode)) {
      f(BorderRun{first, first < row.before ? 0 : row.n - 1, last - first, 0});
      continue;
    }
    const scalar::Mirrors mirrors(row.n, mode);
    for (std::int64_t i = first, count; i < last; i += count) {
      const std::int64_t phase = mirrors.phase(i - row.before);
      const bool rises = phase < row.n;
      count = std::min(last - i, (rises ? row.n : mirrors.period) - phase);
      f(BorderRun{i, mirrors.element(phase), count, rises ? 1 : -1});
    }
  }
}

/// The runs of whole rows, the same for each, if there are few, and their units one by one, if these are few.
class Border {
 public:
  struct Unit {
    std::int64_t place, source;  // the source of a zero is 0
  };

  explicit Border(const Layout& layout) : row_(layout.row), mode_(layout.mode) {
    if (!row_.is_padded()) return;
    if (mode_ == PaddingMode::zero) {
      count_units({0, 0, row_.before, 0});
      count_units({row_.before + row_.n, 0, row_.after, 0});
      return;
    }
    find_runs(row_, mode_, 0, row_.padded(), [&](const BorderRun& run) {
      if (count_ < kMost) runs_[count_] = run;
      ++count_;
      count_units(run);
    });
  }
  bool has_few_units() const { return units_count_ <= kMost; }
  /// Of those that has_few_units.
  std::span<const Unit> units() const { return {units_, static_cast<std::size_t>(units_count_)}; }
  template <class F>
  void for_each_run(std::int64_t begin, std::int64_t end, F f) const {
    if (begin == 0 && end == row_.padded() && count_ <= kMost) {
      for (int i = 0; i < count_; ++i) f(runs_[i]);
    } else if (count_ > 0) {
      find_runs(row_, mode_, begin, end, f);
    }
  }

 private:
  void count_units(const BorderRun& run) {
    for (std::int64_t i = 0; i < run.count && units_count_ + i < kMost; ++i)
      units_[units_count_ + i] = {run.place + i, run.source + i * run.step};
    units_count_ += run.count;
  }

  static constexpr std::int64_t kMost = 8;
  const PaddedAxis& row_;
  PaddingMode mode_;
  std::int64_t count_ = 0, units_count_ = 0;
  BorderRun runs_[kMost];
  Unit units_[kMost];
};

/// `count` copies of `size` bytes.
void repeat(char* to, const char* from, std::int64_t size, std::int64_t count) {
  const std::int64_t most =
      std::max<std::int64_t>(size, 4096 / size * size);  // that are read again: they stay in the first cache
  const std::int64_t bytes = count * size;
  if (size == 4) std::memcpy(to, from, 4);
  else std::memcpy(to, from, static_cast<std::size_t>(size));
  for (std::int64_t done = size; done < bytes;) {
    const std::int64_t more = std::min({bytes - done, done, most});
    std::memcpy(to + done, to, static_cast<std::size_t>(more));
    done += more;
  }
}

/// The last one first.
template <class T>
void reverse_of(char* to, const char* last, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), last - i * static_cast<std::int64_t>(sizeof(T)),
                sizeof(T));
}
void reverse(char* to, const char* last, std::int64_t size, std::int64_t count) {
  if (size == 4) return reverse_of<std::uint32_t>(to, last, count);
  if (size == 8) return reverse_of<std::uint64_t>(to, last, count);
  if (size == 2) return reverse_of<std::uint16_t>(to, last, count);
  if (size == 1) return reverse_of<std::uint8_t>(to, last, count);
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * size, last - i * size, static_cast<std::size_t>(size));
}

/// What pad writes, all lengths in bytes.
struct Rows {
  const Layout& layout;
  const Border& border;
  const char* x;
  char* y;
  const char* value;
  std::int64_t size;  // of an element, and of the value

  /// Places [begin, end) of a padded row; `from` null: of `value` alone.
  void write(const char* from, std::int64_t begin, std::int64_t end, char* to) const {
    const PaddedAxis& row = layout.row;
    const std::int64_t unit = layout.unit * size, behind = row.before + row.n;
    const auto outside = [&](std::int64_t first, std::int64_t last) {
      if (first < last) repeat(to + first * unit, value, size, (last - first) * layout.unit);
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
    border.for_each_run(begin, end, [&](const BorderRun& run) {
      char* first_place = to + run.place * unit;
      const char* sources = from + run.source * unit;
      if (run.count == 1 && unit == 4) std::memcpy(first_place, sources, 4);
      else if (run.step == 0) repeat(first_place, sources, unit, run.count);
      else if (run.step < 0) reverse(first_place, sources, unit, run.count);
      else std::memcpy(first_place, sources, static_cast<std::size_t>(run.count * unit));
    });
  }
  /// Null: among zeros.
  const char* source(const PaddedAxis& axis, const char* from, std::int64_t place) const {
    const std::int64_t source = scalar::padding_source(place - axis.before, axis.n, layout.mode);
    return source < 0 || from == nullptr ? nullptr : from + source * axis.stride * size;
  }
  /// Whole rows of elements of T's size at places [begin, end) of the last axis, their borders element by element, the first one
  /// to `to`. All that does not vary from row to row is read once: a row of a small image takes less than reading it.
  template <class T>
  void write_whole(const PaddedAxis& axis, const char* from, std::int64_t begin, std::int64_t end, char* to) const {
    const std::int64_t step = axis.padded_stride * size, own = layout.row.before;
    const auto bytes = static_cast<std::size_t>(layout.row.n) * sizeof(T);
    const bool is_zero = layout.mode == PaddingMode::zero;
    const auto units = border.units();
    for (std::int64_t place = begin; place < end; ++place, to += step) {
      const char* row = source(axis, from, place);
      if (row == nullptr) {
        repeat(to, value, size, layout.row.padded());
        continue;
      }
      std::memcpy(to + own * sizeof(T), row, bytes);
      const char* sources = is_zero ? value : row;
      for (const Border::Unit& unit : units)
        std::memcpy(to + unit.place * sizeof(T), sources + unit.source * sizeof(T), sizeof(T));
    }
  }
  void write_at(const std::int64_t* at, std::int64_t rows, std::int64_t begin, std::int64_t end) const {
    const char* from = x;
    char* to = y;
    const int inner = layout.rank - 1;
    for (int k = 0; k < inner; ++k) {
      to += at[k] * layout.axes[k].padded_stride * size;
      from = source(layout.axes[k], from, at[k]);
    }
    if (inner < 0) return write(from, begin, end, to);
    const PaddedAxis axis = layout.axes[inner];
    const std::int64_t step = axis.padded_stride * size, first = at[inner];
    to += first * step;
    if (layout.unit == 1 && border.has_few_units() && begin == 0 && end == layout.row.padded()) {
      if (size == 4) return write_whole<std::uint32_t>(axis, from, first, first + rows, to);
      if (size == 8) return write_whole<std::uint64_t>(axis, from, first, first + rows, to);
      if (size == 2) return write_whole<std::uint16_t>(axis, from, first, first + rows, to);
    }
    for (std::int64_t i = 0; i < rows; ++i) write(source(axis, from, first + i), begin, end, to + i * step);
  }
};

/// The rows of dy at whose places one row stands.
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

/// sums[j] for units [begin, end) of a row += the borders of `row`, a row of dy.
template <class Sum, class T>
void add_borders(const Layout& layout, const Border& border, const T* row, std::int64_t begin, std::int64_t end,
                 Sum* sums) {
  const std::int64_t unit = layout.unit;
  if (layout.mode == PaddingMode::zero) return;
  if (unit == 1 && border.has_few_units() && begin == 0 && end == layout.row.n) {
    for (const Border::Unit& of : border.units()) sums[of.source] += row[of.place];
    return;
  }
  border.for_each_run(0, layout.row.padded(), [&](const BorderRun& run) {
    std::int64_t source = run.source;
    for (std::int64_t place = run.place; place < run.place + run.count; ++place, source += run.step) {
      if (source < begin || source >= end) continue;
      for (std::int64_t j = 0; j < unit; ++j) sums[(source - begin) * unit + j] += row[place * unit + j];
    }
  });
}

/// What has few terms is added up in T, all else in f64.
template <class T>
void add_up(const Layout& layout, const T* dy, T* dx) {
  constexpr std::int64_t kWide = kGrain / 8;  // each of a row's pieces looks through all of its borders
  const PaddedAxis& row = layout.row;
  const std::int64_t unit = layout.unit;
  const bool few = few_places(layout);
  const Border border(layout);
  std::int64_t sizes[kMaxRank];
  for (int k = 0; k < layout.rank; ++k) sizes[k] = layout.axes[k].n;
  const auto add_up_row = [&](const std::int64_t* at, std::int64_t begin, std::int64_t end) {
    const std::int64_t count = (end - begin) * unit, own = (row.before + begin) * unit;
    T* to = dx + begin * unit;
    for (int k = 0; k < layout.rank; ++k) to += at[k] * layout.axes[k].stride;
    const RowPlaces<T> places(layout, at, dy);
    const T* first = places.at(0);
    if (few && places.count() == 1) {
      std::memcpy(to, first + own, static_cast<std::size_t>(count) * sizeof(T));
      add_borders(layout, border, first, begin, end, to);
      return;
    }
    const Scratch scratch(static_cast<std::size_t>(count) * sizeof(double));
    double* sums = scratch.as<double>();
    std::fill(sums, sums + count, 0.0);
    for (std::int64_t i = 0; i < places.count(); ++i) {
      const T* place = places.at(i);
      for (std::int64_t j = 0; j < count; ++j) sums[j] += place[own + j];
      add_borders(layout, border, place, begin, end, sums);
    }
    for (std::int64_t j = 0; j < count; ++j) to[j] = static_cast<T>(sums[j]);
  };
  const auto add_up_rows = [&](const std::int64_t* first, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    std::int64_t at[kMaxRank];
    std::copy(first, first + layout.rank, at);
    for (std::int64_t i = 0; i < rows; ++i) {
      add_up_row(at, begin, end);
      if (layout.rank > 0) ++at[layout.rank - 1];
    }
  };
  for_each_piece(layout, sizes, row.n, row.before + row.after <= kWide, add_up_rows);
}

}  // namespace

void pad(const Array& x, const Padding& padding, std::uint64_t value, const Array& y) {
  if (y.size == 0) return;
  const Layout layout(x, padding);
  const Border border(layout);
  const Rows rows{layout,
                  border,
                  x.as<char>(),
                  y.as<char>(),
                  reinterpret_cast<const char*>(&value),
                  static_cast<std::int64_t>(size_of(y.dtype))};
  std::int64_t sizes[kMaxRank];
  for (int k = 0; k < layout.rank; ++k) sizes[k] = layout.axes[k].padded();
  for_each_piece(layout, sizes, layout.row.padded(), true,
                 [&](const std::int64_t* at, std::int64_t count, std::int64_t begin, std::int64_t end) {
                   rows.write_at(at, count, begin, end);
                 });
}

void pad_backward(const void* dy, const Padding& padding, const Array& dx) {
  if (dx.size == 0) return;
  const Layout layout(dx, padding);
  dx.dtype == DType::f32 ? add_up(layout, static_cast<const float*>(dy), dx.as<float>())
                         : add_up(layout, static_cast<const double*>(dy), dx.as<double>());
}

}  // namespace reel::cpu
