// Gradients of recurrences s = factor s + x. Where a is that of the state after an element, x has a and factor a times the state
// before; walked backwards, a is the element's own part of dy and what comes of those behind it. States are needed from the last
// one on: they are made in chunks that fit a cache, of which each begins with a state that was kept on the way to the last, and is
// made anew on the way back.

#include "reel/backends/cpu/scan_backward.h"

#include <algorithm>

#include "reel/core/parallel.h"
#include "reel/core/scratch.h"

namespace reel::cpu {

namespace {

using std::int64_t;

constexpr int64_t kGrain = 32768;        // elements that are worth a task
constexpr int64_t kMostColumns = 4096;   // of a task
constexpr int64_t kChunk = 32768;        // states
constexpr int64_t kLineChunk = 1 << 22;  // of a single line, whose states wait for each other, not for memory
constexpr int64_t kStrip = 64;           // columns that a row's kernel takes
constexpr int kLines = 4;                // at once

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// `columns` in equal parts of at most about `most`, of whole strips.
constexpr int64_t even_strips(int64_t columns, int64_t most) {
  if (columns <= most) return std::max<int64_t>(columns, 1);
  return ceil_div(ceil_div(columns, ceil_div(columns, most)), kStrip) * kStrip;
}

struct Gradients {
  const float *factor, *x, *dy, *dlast;  // x, dy or dlast null: 0
  float *dx, *dfactor;                   // null: not wanted
  double start;
  bool reverse, exclusive;

  /// From an element on, whose column, counted over all blocks, is `column`.
  Gradients from(int64_t place, int64_t column) const {
    const auto moved = [](auto* p, int64_t by) { return p == nullptr ? p : p + by; };
    return {factor + place,
            moved(x, place),
            moved(dy, place),
            moved(dlast, column),
            moved(dx, place),
            moved(dfactor, place),
            start,
            reverse,
            exclusive};
  }
};

/// `count` columns of `rows` elements that are walked side by side, each kind of which has
///   forward(begin, end, states, before)     states to those after rows begin .. end - 1; those before each to `before` [rows, count]
///   backward(begin, end, carries, before)   back over these rows: what comes of those behind them to what comes of them
/// with rows counted in the order of the walk.
struct Columns {
  const Gradients of;
  const int64_t count, rows;

  bool needs_states() const { return of.dfactor != nullptr; }
};

/// The states before chunks of a walk of at most `longest` rows, and those in the chunk at hand: [rows, columns].
class Chunks {
 public:
  Chunks(int64_t longest, int64_t columns)
      : rows_(std::max<int64_t>(1, std::min(longest, columns == 1 ? kLineChunk : kChunk / columns))),
        columns_(columns),
        room_(sizeof(double) * static_cast<std::size_t>((2 + rows_ + ceil_div(longest, rows_)) * columns)) {}

  template <class Kind>
  __attribute__((noinline)) void walk(const Kind& columns) const {
    const int64_t width = columns.count, chunks = ceil_div(columns.rows, rows_);
    double* const state = room_.as<double>();
    double *const carry = state + columns_, *const before = carry + columns_, *const kept = before + rows_ * columns_;
    const auto end = [&](int64_t chunk) { return std::min(columns.rows, (chunk + 1) * rows_); };
    std::fill(state, state + width, columns.of.start);
    for (int64_t chunk = 0; columns.needs_states() && chunk < chunks; ++chunk) {
      std::copy(state, state + width, kept + chunk * columns_);
      columns.forward(chunk * rows_, end(chunk), state, before);
    }
    std::fill(carry, carry + width, -0.0);
    if (columns.of.dlast != nullptr) std::copy(columns.of.dlast, columns.of.dlast + width, carry);
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      if (columns.needs_states() && chunk + 1 < chunks)
        columns.forward(chunk * rows_, end(chunk), kept + chunk * columns_, before);
      columns.backward(chunk * rows_, end(chunk), carry, before);
    }
  }

 private:
  int64_t rows_, columns_;
  Scratch room_;
};

/// In rows of `width` elements. A row's kernel does not choose: what is not there is read from -0 and 1, and written nowhere.
class SideBySide : public Columns {
 public:
  SideBySide(const ScanRow& row, const Gradients& of, int64_t width, int64_t rows, int64_t columns)
      : Columns{of, columns, rows},
        row_(row),
        step_(of.reverse ? -width : width),
        first_(of.reverse ? (rows - 1) * width : 0) {
    std::fill(zeros_, zeros_ + kStrip, -0.0f);
    std::fill(ones_, ones_ + kStrip, 1.0f);
  }

  void forward(int64_t begin, int64_t end, double* states, double* before) const {
    each_strip(begin, end, 1, [&](int64_t i, int64_t strip, int64_t place, int64_t columns) {
      row_.forward(of.factor + place, of.x == nullptr ? zeros_ : of.x + place, states + strip,
                   before + (i - begin) * count + strip, columns);
    });
  }
  void backward(int64_t begin, int64_t end, double* carries, const double* before) const {
    float nowhere[kStrip];
    const double no_states[kStrip] = {};
    each_strip(end - 1, begin - 1, -1, [&](int64_t i, int64_t strip, int64_t place, int64_t columns) {
      const float *const factor = of.factor + place, *const dy = of.dy == nullptr ? zeros_ : of.dy + place;
      row_.backward(factor, dy, of.exclusive ? zeros_ : dy, of.exclusive ? ones_ : factor,
                    needs_states() ? before + (i - begin) * count + strip : no_states, carries + strip,
                    of.dx == nullptr ? nowhere : of.dx + place, needs_states() ? of.dfactor + place : nowhere, columns);
    });
  }

 private:
  template <class F>
  void each_strip(int64_t first, int64_t last, int step, F f) const {
    for (int64_t i = first; i != last; i += step)
      for (int64_t strip = 0; strip < count; strip += kStrip)
        f(i, strip, first_ + i * step_ + strip, std::min(kStrip, count - strip));
  }

  const ScanRow& row_;
  const int64_t step_, first_;
  float zeros_[kStrip], ones_[kStrip];
};

/// `lines` lines without gaps, one after the other. A state waits for the one before it, so that several are under way at once.
template <int lines>
class Lines : public Columns {
 public:
  Lines(const Gradients& of, int64_t length) : Columns{of, lines, length} {}

  void forward(int64_t begin, int64_t end, double* states, double* before) const {
    double state[lines];
    for (int k = 0; k < lines; ++k) state[k] = states[k];
    const float *const factor = of.factor, *const x = of.x;
    for (int64_t i = begin; i < end; ++i, before += lines)
#pragma GCC unroll 4
      for (int k = 0; k < lines; ++k) {
        const int64_t at = place(i, k);
        before[k] = state[k];
        state[k] *= factor[at];
        if (x != nullptr) state[k] += x[at];
      }
    for (int k = 0; k < lines; ++k) states[k] = state[k];
  }

  void backward(int64_t begin, int64_t end, double* carries, const double* before) const {
    double carry[lines];
    for (int k = 0; k < lines; ++k) carry[k] = carries[k];
    const float *const factor = of.factor, *const dy = of.dy;
    float *const dx = of.dx, *const dfactor = of.dfactor;
    const bool exclusive = of.exclusive;
    const double* states = before + (end - begin) * lines;
    for (int64_t i = end - 1; i >= begin; --i) {
      states -= lines;
#pragma GCC unroll 4
      for (int k = 0; k < lines; ++k) {
        const int64_t at = place(i, k);
        const double by = factor[at];
        double after = carry[k];
        carry[k] *= by;
        if (dy != nullptr) {
          const double own = dy[at];
          if (!exclusive) after += own;
          carry[k] += exclusive ? own : by * own;
        }
        if (dx != nullptr) dx[at] = static_cast<float>(after);
        if (dfactor != nullptr) dfactor[at] = static_cast<float>(after * states[k]);
      }
    }
    for (int k = 0; k < lines; ++k) carries[k] = carry[k];
  }

 private:
  int64_t place(int64_t i, int k) const { return k * rows + (of.reverse ? rows - 1 - i : i); }
};

/// Whether neighbouring lines begin about a multiple of 4,096 bytes apart: elements of several lines of five arrays share a set of
/// the caches then.
bool share_sets(int64_t length) {
  constexpr int64_t kSets = 4096, kNear = 64;
  const int64_t bytes = length * static_cast<int64_t>(sizeof(float));
  return bytes > kSets - kNear && (bytes + kNear) % kSets < 2 * kNear;
}

void walk_lines(const Gradients& of, const ScanBlocks& blocks, int64_t size) {
  const bool single = blocks.offsets != nullptr || blocks.count == 1 || share_sets(blocks.length);
  const int64_t together = single ? 1 : kLines, average = std::max<int64_t>(1, size / blocks.count);
  parallel_for(
      ceil_div(blocks.count, together), std::max<int64_t>(1, kGrain / (average * together)),
      [&](int64_t begin, int64_t end) {
        const Chunks chunks(blocks.length, together);
        int64_t line = begin * together;
        const int64_t last = std::min(end * together, blocks.count);
        for (; together == kLines && line + kLines <= last; line += kLines)
          chunks.walk(Lines<kLines>(of.from(blocks.first(line), line), blocks.length));
        for (; line < last; ++line)
          chunks.walk(Lines<1>(of.from(blocks.first(line), line), blocks.first(line + 1) - blocks.first(line)));
      });
}

void walk_columns(const ScanRow& row, const Gradients& of, const ScanBlocks& blocks, int64_t size) {
  const int64_t width = blocks.width, bytes = 4 * size * static_cast<int64_t>(sizeof(float));
  const int64_t piece = columns_of_a_task(blocks, size, bytes), pieces = ceil_div(width, piece),
                average = std::max<int64_t>(1, size / (blocks.count * width));
  parallel_for(blocks.count * pieces, std::max<int64_t>(1, kGrain / (average * piece)),
               [&](int64_t begin, int64_t end) {
                 const Chunks chunks(blocks.length, piece);
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t block = unit / pieces, column = unit % pieces * piece, first = blocks.first(block);
                   chunks.walk(SideBySide(row, of.from(first * width + column, block * width + column), width,
                                          blocks.first(block + 1) - first, std::min(piece, width - column)));
                 }
               });
}

}  // namespace

// Threads that write next to each other in a row take lines from each other, and so do their prefetchers: of two threads of a Zen 4
// each wrote half of rows of 128 elements, and 1024 rows took two to eight times as long as by one thread; of 20,000 rows of 100 it
// would be 0.8 of the time. Few columns of few blocks are therefore one thread's, many are shared by strips, of which each thread
// walks several, one after the other. Beyond the caches a strip's lines come one by one, from pages that the next strip needs again
// (four times as long for 10,000 rows of 1,000), so that rows are walked whole, or, if they are wide or threads many, in parts.
int64_t columns_of_a_task(const ScanBlocks& blocks, int64_t size, int64_t bytes) {
  constexpr int64_t kWideRow = 2048, kLargeBytes = 16 << 20;
  const int64_t threads = detail::available_threads(), width = blocks.width;
  if (threads == 1 || size <= kGrain || blocks.count >= 4 * threads || width < 8 * kStrip)
    return even_strips(width, kMostColumns);
  if (bytes < kLargeBytes || bytes < detail::last_cache_bytes() / 16) return even_strips(width, kStrip);
  const int64_t part = width < kWideRow ? kWideRow : kWideRow / 2;  // as measured with two threads
  return even_strips(width, std::max<int64_t>(4 * kStrip, part / (threads / 2)));
}

void scan_backward(const ScanRow& row, ScanOp op, const Array& x, const Array* factor, const ScanBlocks& blocks,
                   bool reverse, bool exclusive, const ScanGradients& gradients) {
  if (x.size == 0) return;
  const auto elements = [](const Array* array) { return array == nullptr ? nullptr : array->as<float>(); };
  const bool products = op == ScanOp::prod;  // x is the factor
  const float* const from = x.as<float>();
  float *const dx = elements(gradients.dx), *const dfactor = elements(gradients.dfactor);
  const bool no_results = gradients.dy == nullptr;  // no element's own part: as if exclusive, without a product with 0
  const Gradients of{products ? from : elements(factor),
                     products ? nullptr : from,
                     elements(gradients.dy),
                     elements(gradients.dlast),
                     products ? nullptr : dx,
                     products ? dx : dfactor,
                     products ? 1.0 : 0.0,
                     reverse,
                     exclusive || no_results};
  blocks.width == 1 ? walk_lines(of, blocks, x.size) : walk_columns(row, of, blocks, x.size);
}

}  // namespace reel::cpu
