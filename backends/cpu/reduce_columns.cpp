#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/reduce.h"
#include "reel/backends/cpu/row_tree.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"

// Results side by side in memory: rows of x are combined element by element. A leaf is a group of 8 rows, read as 8 streams;
// the tree of leaves keeps whole rows of a tile of columns, which stay in the level 2 cache.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kGroup = RowTree::kGroup;
constexpr int64_t kGathered = 16;       // rows moved at once where columns are not side by side
constexpr int64_t kLines = 8;           // columns without gaps, of many rows, that are taken together
constexpr int64_t kBlock = 4096;        // elements of such columns that are taken together: 2^k groups of each
constexpr int64_t kLongLine = 24;       // elements from which on such columns are not gathered
constexpr int64_t kTile = 4096;         // columns at a time, about; a quarter of them where they have to be gathered
constexpr int64_t kTask = 16 * kGrain;  // elements of a large reduction that make a task; two threads halve its time
constexpr int64_t kLongSegment = 256;   // rows whose result is little beside them: tasks of a quarter of kTask even out
constexpr int64_t kShortRow = 2048;     // bytes
constexpr int64_t kAskedRow =
    kVectorBytes == 64 ? 2048 : 512;                       // bytes: of rows up to this long lines are asked for ahead
constexpr int64_t kAhead = kVectorBytes == 64 ? 4096 : 0;  // bytes; 0: one group

/// Reads memory in order, one element of each cache line. The eight streams of a group of short rows share pages, where the
/// processor takes them for no stream at all and waits for each line.
REEL_INLINE void read_lines(const void* from, int64_t bytes) {
  const volatile char* const p = static_cast<const char*>(from);
  for (int64_t i = 0; i < bytes; i += 64) static_cast<void>(p[i]);
}

/// Whether the op's instruction passes over a NaN, which has to be looked for then.
template <class Op, class T>
inline constexpr bool kPassesNan = is_one_of<Op, Max, Min>&& std::is_floating_point_v<T>;

/// y = or y += the rows of one group: a tree of its own.
template <class Op, class T, bool merge>
void combine_group(const void* const* rows, void* to, int64_t width) {
  const T *a = static_cast<const T*>(rows[0]), *b = static_cast<const T*>(rows[1]);
  const T *c = static_cast<const T*>(rows[2]), *d = static_cast<const T*>(rows[3]);
  const T *e = static_cast<const T*>(rows[4]), *f = static_cast<const T*>(rows[5]);
  const T *g = static_cast<const T*>(rows[6]), *h = static_cast<const T*>(rows[7]);
  T* y = static_cast<T*>(to);
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    T group;
    if constexpr (kPassesNan<Op, T>) {  // asks for NaN once for two rows, not with each step
      const T low = Op::of_numbers(Op::of_numbers(a[j], b[j]), Op::of_numbers(c[j], d[j]));
      const T high = Op::of_numbers(Op::of_numbers(e[j], f[j]), Op::of_numbers(g[j], h[j]));
      const bool some_nan = __builtin_isunordered(a[j], b[j]) | __builtin_isunordered(c[j], d[j]) |
                            __builtin_isunordered(e[j], f[j]) | __builtin_isunordered(g[j], h[j]);
      group = some_nan ? T(__builtin_nan("")) : Op::of_numbers(low, high);
    } else {
      const T low = Op::combine(Op::combine(a[j], b[j]), Op::combine(c[j], d[j]));
      const T high = Op::combine(Op::combine(e[j], f[j]), Op::combine(g[j], h[j]));
      group = Op::combine(low, high);
    }
    y[j] = merge ? Op::combine(y[j], group) : group;
  }
}

template <class Op, class T>
void combine_rows(void* older, const void* newer, int64_t width) {
  T* y = static_cast<T*>(older);
  const T* x = static_cast<const T*>(newer);
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) y[j] = Op::combine(y[j], x[j]);
}

/// y[j] = x[2 j] with x[2 j + 1]. y may begin where x does: reads run ahead.
template <class Op, class T>
void combine_neighbours(const void* from, void* to, int64_t count) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = Op::combine(x[2 * j], x[2 * j + 1]);
}

template <class T>
void divide_row(void* to, int64_t divisor, int64_t width) {
  T* y = static_cast<T*>(to);
  for (int64_t j = 0; j < width; ++j) y[j] = static_cast<T>(y[j] / static_cast<T>(divisor));
}

}  // namespace

RowKernels row_kernels(ReduceOp op, DType dtype) {
  return dispatch_reduction(op, dtype, []<class Op, class T>() {
    constexpr bool usual = std::is_same_v<T, float> || (std::is_same_v<T, double> && std::is_same_v<Op, Sum>);
    RowKernels kernels = {
        0, 0, combine_group<Op, T, false>, nullptr, combine_rows<Op, T>, combine_neighbours<Op, T>, divide_row<T>};
    if constexpr (usual) kernels.merge_group = combine_group<Op, T, true>;
    const T identity = Op::template identity<T>(), neutral = identity == T(0) ? static_cast<T>(-0.0) : identity;
    __builtin_memcpy(&kernels.identity, &identity, sizeof identity);
    __builtin_memcpy(&kernels.neutral, &neutral, sizeof neutral);
    return kernels;
  });
}

namespace {

class Columns {
 public:
  explicit Columns(const Reduction& reduction) : r_(reduction), kernels_(row_kernels(r_.op, r_.dtype)) {
    size_ = static_cast<int64_t>(size_of(r_.dtype));
    columns_ = r_.kept.inner();
    stride_ = r_.kept.inner_stride(0);
    outer_ = r_.outputs / columns_;
    const bool long_lines =
        r_.count >= kLongLine || (stride_ == r_.count && (r_.count & (r_.count - 1)) == 0 && r_.count >= kGroup);
    lines_ = r_.reduced.rank == 1 && r_.reduced.inner_stride(0) == 1 && (columns_ == 1 || (stride_ != 1 && long_lines));
    tile_ = even_chunk(columns_, stride_ == 1 ? kTile : kTile / 4);
    tiles_ = ceil_div(columns_, tile_);
    const int64_t size = r_.outputs * r_.count;
    task_ = min(max(size / 16, size <= kGrain ? kAlone : kGrain), kTask);
    segment_ = kGroup;  // times 2^k: a subtree
    while (segment_ * tile_ < (segment_ < kLongSegment ? task_ : min(task_, kTask / 4))) segment_ *= 2;
    segments_ = ceil_div(r_.count, segment_);
  }

  void run() const {
    if (segments_ == 1) {
      run_segments(static_cast<char*>(r_.y));
    } else {
      Scratch scratch(static_cast<std::size_t>(r_.outputs * segments_ * size_));
      run_segments(scratch.as<char>());
      combine_segments(scratch.as<char>());
    }
    if (r_.op == ReduceOp::mean) {
      parallel_for(r_.outputs, even_chunk(r_.outputs), [this](int64_t begin, int64_t end) {
        kernels_.divide(static_cast<char*>(r_.y) + begin * size_, r_.count, end - begin);
      });
    }
  }

 private:
  /// to[outer, segment, column], one task for a segment of a tile.
  void run_segments(char* to) const {
    const int64_t chunk = max<int64_t>(1, min(task_, kGrain) / (tile_ * min(r_.count, segment_)));
    parallel_for(outer_ * segments_ * tiles_, chunk, [=, this](int64_t begin, int64_t end) {
      const int64_t levels = RowTree::levels(ceil_div(min(r_.count, segment_), kGroup));
      const int64_t gathered = stride_ == 1 ? 0 : kGathered;
      Scratch scratch(static_cast<std::size_t>((levels + 1 + gathered) * tile_ * size_));
      char* nothing = scratch.as<char>() + levels * tile_ * size_;
      if (r_.count % kGroup != 0) move_run(&kernels_.identity, 0, nothing, 1, tile_, size_);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t tile = unit % tiles_, segment = unit / tiles_ % segments_, outer = unit / tiles_ / segments_;
        const int64_t column = tile * tile_, width = min(tile_, columns_ - column);
        char* target = to + ((outer * segments_ + segment) * columns_ + column) * size_;
        if (lines_) {
          const int64_t first = segment * segment_;
          run_lines(place(outer, column) + first * size_, min(segment_, r_.count - first), width, target);
          continue;
        }
        RowTree tree(kernels_, scratch.as<char>(), width, size_);
        run_segment(outer, segment, column, width, tree, nothing);
        __builtin_memcpy(target, tree.total(), static_cast<std::size_t>(width * size_));
      }
    });
  }

  /// y[j] of the elements x[j stride_ + i], i < count: neighbours are combined until one is left, a block of some columns at once.
  void run_lines(const char* x, int64_t count, int64_t width, char* y) const {
    int64_t block = kGroup;  // elements of one column, 2^k
    while (block < min(count, kBlock)) block *= 2;
    const int64_t lines = min(width, max(kLines, kBlock / block));
    while (block > kGroup && block * lines > kBlock) block /= 2;
    const bool joined = count == block && stride_ == count;
    // The last block is filled up: its last group as that of rows, behind it what changes nothing at all.
    const int64_t rest = count % block;
    int64_t padded = kGroup;
    while (padded < rest) padded *= 2;
    const int64_t levels = RowTree::levels(ceil_div(count, block));
    Scratch scratch(static_cast<std::size_t>((levels * lines + kBlock + lines * padded) * size_));
    char *partials = scratch.as<char>() + levels * lines * size_, *last = partials + kBlock * size_;
    for (int64_t line = 0; rest > 0 && line < lines; ++line) {
      char* const to = last + line * padded * size_;
      const int64_t groups = ceil_div(rest, kGroup) * kGroup;
      move_run(&kernels_.identity, 0, to + rest * size_, 1, groups - rest, size_);
      move_run(&kernels_.neutral, 0, to + groups * size_, 1, padded - groups, size_);
    }
    for (int64_t column = 0; column < width; column += lines) {
      const int64_t n = min(lines, width - column);
      RowTree tree(kernels_, scratch.as<char>(), n, size_);
      for (int64_t i = 0; i < count; i += block) {
        const char* from = x + (column * stride_ + i) * size_;
        const bool whole = i + block <= count;
        int64_t half = (whole ? block : padded) / 2;
        if (joined) kernels_.neighbours(from, partials, n * half);
        for (int64_t line = 0; line < n && !joined; ++line, from += stride_ * size_) {
          if (whole) kernels_.neighbours(from, partials + line * half * size_, half);
          else move_run(from, 1, last + line * padded * size_, 1, rest, size_);
        }
        if (!whole) kernels_.neighbours(last, partials, n * half);
        while ((half /= 2) > 0) kernels_.neighbours(partials, partials, n * half);
        tree.push(partials);
      }
      __builtin_memcpy(y + column * size_, tree.total(), static_cast<std::size_t>(n * size_));
    }
  }

  /// `nothing` is a row that changes nothing, for the last group, followed by room for rows that have to be gathered.
  void run_segment(int64_t outer, int64_t segment, int64_t column, int64_t width, RowTree& tree, char* nothing) const {
    const char* x = place(outer, column);
    const int64_t begin = segment * segment_, end = min(r_.count, begin + segment_);
    const int64_t step = r_.reduced.inner_stride(0);
    const bool one_axis = r_.reduced.rank == 1;
    const int64_t row_bytes = width * size_;
    const bool short_rows = one_axis && stride_ == 1 && step == width && row_bytes <= kShortRow;
    // From memory what lies kAhead further on comes while a group is added up. (Rows need not be read in order then, without
    // AVX-512 those of whole lines; rows of less than a line are not worth the asking.)
    const bool asks = kVectorBytes >= 32 && short_rows && row_bytes >= 64 && row_bytes <= kAskedRow &&
                      is_past_caches(r_.outputs * r_.count * size_);
    const bool reads = short_rows && !(asks && (kVectorBytes == 64 || row_bytes % 64 == 0));
    const int64_t ahead = kAhead != 0 ? kAhead : kGroup * row_bytes;
    Cursor<1> cursor(r_.reduced, r_.reduced.rank, begin);
    for (int64_t i = begin; i < end; i += kGathered) {
      const int64_t count = min(kGathered, end - i);
      const void* rows[kGathered];
      for (int64_t k = 0; k < kGathered; ++k) rows[k] = nothing;
      for (int64_t k = 0; k < count; ++k) {
        rows[k] = x + (one_axis ? (i + k) * step : cursor.offsets[0]) * size_;
        if (!one_axis) cursor.next();
      }
      if (stride_ != 1) gather(rows, count, one_axis && step == 1, nothing + tile_ * size_, width);
      for (int64_t k = 0; k < count; k += kGroup) {
        if (reads) read_lines(rows[k], min(kGroup, count - k) * row_bytes);
        if (asks) ask_for(static_cast<const char*>(rows[k]) + ahead, kGroup * row_bytes);
        tree.push_group(rows + k);
      }
    }
  }

  /// Moves `count` rows to `to`, kGathered rows of tile_ columns without gaps.
  void gather(const void** rows, int64_t count, bool rows_are_near, char* to, int64_t width) const {
    if (rows_are_near) {
      dispatch_bytes(static_cast<std::size_t>(size_), [&]<class Bytes>() {
        transpose_block(static_cast<const Bytes*>(rows[0]), stride_, reinterpret_cast<Bytes*>(to), tile_, count, width);
      });
    }
    for (int64_t k = 0; k < count; ++k) {
      char* row = to + k * tile_ * size_;
      if (!rows_are_near) move_run(rows[k], stride_, row, 1, width, size_);
      rows[k] = row;
    }
  }

  const char* place(int64_t outer, int64_t column) const {
    const Cursor<1> cursor(r_.kept, r_.kept.rank - 1, outer);
    return static_cast<const char*>(r_.x) + (cursor.offsets[0] + column * stride_) * size_;
  }

  void combine_segments(const char* partials) const {
    parallel_for(outer_ * tiles_, max<int64_t>(1, kGrain / (tile_ * segments_)), [=, this](int64_t begin, int64_t end) {
      Scratch scratch(static_cast<std::size_t>(RowTree::levels(segments_) * tile_ * size_));
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t outer = unit / tiles_, column = unit % tiles_ * tile_;
        const int64_t width = min(tile_, columns_ - column);
        RowTree tree(kernels_, scratch.as<char>(), width, size_);
        for (int64_t s = 0; s < segments_; ++s)
          tree.push(partials + ((outer * segments_ + s) * columns_ + column) * size_);
        __builtin_memcpy(static_cast<char*>(r_.y) + (outer * columns_ + column) * size_, tree.total(),
                         static_cast<std::size_t>(width * size_));
      }
    });
  }

  const Reduction& r_;
  RowKernels kernels_;
  int64_t size_;
  int64_t columns_, stride_, outer_;
  bool lines_;                  // columns without gaps
  int64_t tile_, tiles_;        // columns of a tile
  int64_t task_;                // elements that a thread does at once, or a quarter of kTask in long segments
  int64_t segment_, segments_;  // rows of a segment
};

constexpr int64_t kSmallBytes = 4096;

}  // namespace

bool reduce_small_matrix(ReduceOp op, DType dtype, const void* x, int64_t rows, int64_t width, void* y) {
  const auto bytes = width * static_cast<int64_t>(size_of(dtype));
  const int64_t groups = (rows + kGroup - 1) / kGroup;
  if ((RowTree::levels(groups) + 1) * bytes > kSmallBytes) return false;
  const RowKernels kernels = row_kernels(op, dtype);
  alignas(64) char buffer[kSmallBytes];
  char* nothing = buffer + kSmallBytes - bytes;
  if (rows % kGroup != 0) move_run(&kernels.identity, 0, nothing, 1, width, bytes / width);
  RowTree tree(kernels, buffer, width, bytes / width);
  const char* row = static_cast<const char*>(x);
  for (int64_t i = 0; i < rows; i += kGroup) {
    const void* group[kGroup];
    for (int64_t k = 0; k < kGroup; ++k, row += bytes) group[k] = i + k < rows ? row : nothing;
    tree.push_group(group);
  }
  __builtin_memcpy(y, tree.total(), static_cast<std::size_t>(bytes));
  if (op == ReduceOp::mean) kernels.divide(y, rows, width);
  return true;
}

void reduce_columns(const Reduction& reduction) { Columns(reduction).run(); }

}  // namespace reel::cpu::REEL_CPU_ISA
