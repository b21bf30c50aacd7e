#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/reduce.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"

// Results side by side in memory: rows of x are combined element by element. A leaf is a group of 8 rows, read as 8 streams;
// the tree of leaves keeps whole rows of a tile of columns, which stay in the level 2 cache.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kGroup = 8;           // rows in a leaf
constexpr int64_t kGathered = 16;       // rows moved at once where columns are not side by side
constexpr int64_t kBlock = 512;         // rows taken at once of a single column: 2^k groups
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

/// y[j] = x[2 j] with x[2 j + 1]. y may begin where x does: reads run ahead. (Once per type: inlined it would be there for
/// each size.)
template <class Op, class T>
__attribute__((noinline)) void combine_neighbours(const T* x, T* y, int64_t count) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = Op::combine(x[2 * j], x[2 * j + 1]);
}

/// The tree of a single column without gaps, without tiles: y[0] of x[0 .. count - 1].
template <class Op, class T>
void combine_column(const void* from, int64_t count, void* to) {
  const T* x = static_cast<const T*>(from);
  Tree<Op, T> blocks;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    T pairs[kBlock / 2];
    const T* source = x + i;
    for (int64_t half = kBlock / 2; half > 0; half /= 2) {
      combine_neighbours<Op>(source, pairs, half);
      source = pairs;
    }
    blocks.push(pairs[0]);
  }
  if (i < count) {
    T rest[kBlock];
    const int64_t left = count - i, padded = ceil_div(left, kGroup) * kGroup;
    const T identity = Op::template identity<T>();
    move_run(x + i, 1, rest, 1, left, sizeof(T));
    move_run(&identity, 0, rest + left, 1, padded - left, sizeof(T));
    for (int64_t merged = 2; merged <= kGroup; merged *= 2) combine_neighbours<Op>(rest, rest, padded / merged);
    Tree<Op, T> groups;
    for (int64_t k = 0; k < padded / kGroup; ++k) groups.push(rest[k]);
    blocks.push(groups.total());
  }
  *static_cast<T*>(to) = blocks.total();
}

template <class T>
void divide_row(void* to, int64_t divisor, int64_t width) {
  T* y = static_cast<T*>(to);
  for (int64_t j = 0; j < width; ++j) y[j] = static_cast<T>(y[j] / static_cast<T>(divisor));
}

/// What the loops below need to know of an op and a dtype.
struct Kernels {
  std::uint64_t identity;  // its first bytes
  void (*group)(const void* const* rows, void* y, int64_t width);
  void (*merge_group)(const void* const* rows, void* y, int64_t width);
  void (*merge)(void* older, const void* newer, int64_t width);
  void (*column)(const void* x, int64_t count, void* y);
  void (*divide)(void* y, int64_t divisor, int64_t width);
};

Kernels kernels_of(ReduceOp op, DType dtype) {
  return dispatch_reduction(op, dtype, []<class Op, class T>() {
    Kernels kernels = {0,
                       combine_group<Op, T, false>,
                       combine_group<Op, T, true>,
                       combine_rows<Op, T>,
                       combine_column<Op, T>,
                       divide_row<T>};
    const T identity = Op::template identity<T>();
    __builtin_memcpy(&kernels.identity, &identity, sizeof identity);
    return kernels;
  });
}

/// The tree of partial results, each a row of `width` columns of `size` bytes in one of the slots.
class RowTree {
 public:
  RowTree(const Kernels& kernels, char* slots, int64_t width, int64_t size)
      : kernels_(kernels), slots_(slots), width_(width), bytes_(width * size) {}

  /// Slots that a tree of so many pushes may need.
  static int64_t levels(int64_t pushes) { return 65 - __builtin_clzll(static_cast<std::uint64_t>(pushes)); }

  void push_group(const void* const* rows) {
    if (pushed_ & 1) {
      kernels_.merge_group(rows, slot(top_ - 1), width_);
    } else {
      kernels_.group(rows, slot(top_++), width_);
    }
    climb();
  }
  void push(const void* row) {
    if (pushed_ & 1) {
      kernels_.merge(slot(top_ - 1), row, width_);
    } else {
      __builtin_memcpy(slot(top_++), row, static_cast<std::size_t>(bytes_));
    }
    climb();
  }
  const void* total() {
    while (top_ > 1) merge_top();
    return slots_;
  }

 private:
  void climb() {
    for (int64_t merges = pushed_++ >> 1; (pushed_ & 1) == 0 && (merges & 1); merges >>= 1) merge_top();
  }
  void merge_top() {
    --top_;
    kernels_.merge(slot(top_ - 1), slot(top_), width_);
  }
  char* slot(int i) { return slots_ + i * bytes_; }

  const Kernels& kernels_;
  char* slots_;
  int64_t width_, bytes_;
  int64_t pushed_ = 0;
  int top_ = 0;
};

class Columns {
 public:
  explicit Columns(const Reduction& reduction) : r_(reduction), kernels_(kernels_of(r_.op, r_.dtype)) {
    size_ = static_cast<int64_t>(size_of(r_.dtype));
    columns_ = r_.kept.inner();
    stride_ = r_.kept.inner_stride(0);
    outer_ = r_.outputs / columns_;
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
        if (columns_ == 1 && r_.reduced.rank == 1 && r_.reduced.inner_stride(0) == 1) {
          const int64_t first = segment * segment_;
          kernels_.column(place(outer, 0) + first * size_, min(segment_, r_.count - first), target);
          continue;
        }
        RowTree tree(kernels_, scratch.as<char>(), width, size_);
        run_segment(outer, segment, column, width, tree, nothing);
        __builtin_memcpy(target, tree.total(), static_cast<std::size_t>(width * size_));
      }
    });
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
  Kernels kernels_;
  int64_t size_;
  int64_t columns_, stride_, outer_;
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
  const Kernels kernels = kernels_of(op, dtype);
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
