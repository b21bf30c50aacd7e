#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/reduce.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"

// Results of consecutive elements. A leaf is 32 steps of 8 independent vectors; the partial results in the tree are vectors
// too, whose lanes are combined once, at the end. Without gaps a leaf is read in place, else it is gathered first.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kSegmentLeaves = 16;  // at most, and 2^k: a segment, which may be a task of its own, is a subtree
constexpr int64_t kBlock = 32;          // rows of single elements gathered side by side: they may share cache lines
constexpr int64_t kLongRun =
    256;                      // bytes of a run that needs no neighbours: of 128 each row alone takes 1.6 times as long
constexpr int64_t kPad = 16;  // elements between gathered rows, lest they all fall into one set of the cache
constexpr int64_t kAhead = 4096;  // bytes: masked loads, which the machine does not foresee, are asked for so far ahead
constexpr int64_t kFarAhead = 8192;  // the same for rows that are added up together
constexpr int64_t kAskedRow = 512;   // bytes: rows of less than this, from memory, are asked for kAhead before

/// Room for the partial result of any op and dtype.
struct alignas(64) Slot {
  char bytes[64];
};

/// A sum whose leaves square their elements.
struct SumOfSquares : Sum {};

/// Floating elements: a partial result is a vector.
template <class Op, class T>
struct Leaves {
  using Partial = Vec<T>;
  static constexpr int64_t kWidth = Vec<T>::width;
  static constexpr int64_t kLeaf = kLeafSteps * kLeafVectors * kWidth;

  /// kWidth times -0, then as often the identity. Added to lanes of which only the first are there, the others being 0, a
  /// window of it changes none of the first and makes the others identities.
  struct Window {
    T values[2 * kWidth];
    constexpr Window() : values() {
      for (int64_t i = 0; i < kWidth; ++i) {
        values[i] = T(-0.0);
        values[kWidth + i] = Op::template identity<T>();
      }
    }
  };

  REEL_INLINE static Vec<T> element(Vec<T> x) {
    if constexpr (std::is_same_v<Op, SumOfSquares>) return x * x;
    else return x;
  }

  /// The last `rest` < kWidth of n elements, other lanes without effect.
  REEL_INLINE static Vec<T> tail(const T* x, int64_t n, int64_t rest) {
    if constexpr (std::is_base_of_v<Sum, Op>) {
      return element(Vec<T>::load(x + n - rest, Vec<T>::first(rest)));
    } else {
      constexpr bool idempotent = !std::is_same_v<Op, Prod>;
      if (idempotent && n >= kWidth) return Vec<T>::load(x + n - kWidth);  // what is seen twice changes no max
      alignas(64) static constexpr Window window{};
      return Vec<T>::load(x + n - rest, Vec<T>::first(rest)) + Vec<T>::load(window.values + kWidth - rest);
    }
  }

  /// 0 < n <= kLeaf elements. Eight names, not an array: an array would live in memory.
  static Vec<T> leaf(const T* x, int64_t n) {
    using V = Vec<T>;
    const V identity = V::broadcast(Op::template identity<T>());
    V a = identity, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    const T* const end = x + n;
    // Offsets from one pointer: with a pointer that moves from load to load g++ takes the last line of a step first, and a
    // processor that does not see lines in order does not fetch ahead.
    const auto at = [&x](int64_t k) { return element(V::load(x + k * kWidth)); };
    for (; end - x >= 8 * kWidth; x += 8 * kWidth) {
      a = Op::combine(a, at(0));
      b = Op::combine(b, at(1));
      c = Op::combine(c, at(2));
      d = Op::combine(d, at(3));
      e = Op::combine(e, at(4));
      f = Op::combine(f, at(5));
      g = Op::combine(g, at(6));
      h = Op::combine(h, at(7));
    }
    if (end - x >= 4 * kWidth) {
      a = Op::combine(a, at(0));
      b = Op::combine(b, at(1));
      c = Op::combine(c, at(2));
      d = Op::combine(d, at(3));
      x += 4 * kWidth;
    }
    if (end - x >= 2 * kWidth) {
      e = Op::combine(e, at(0));
      f = Op::combine(f, at(1));
      x += 2 * kWidth;
    }
    if (end - x >= kWidth) {
      g = Op::combine(g, at(0));
      x += kWidth;
    }
    if (x < end) h = Op::combine(h, tail(end - n, n, end - x));
    a = Op::combine(Op::combine(a, e), Op::combine(c, g));
    b = Op::combine(Op::combine(b, f), Op::combine(d, h));
    return Op::combine(a, b);
  }

  /// The same of `runs` runs of `length` elements, whole steps of eight vectors, that begin `step` apart. (With no rest to be added
  /// to one of them, an array stays in registers.)
  static Vec<T> leaf_of_runs(const T* x, int64_t runs, int64_t length, int64_t step) {
    using V = Vec<T>;
    V sums[8];
    for (V& sum : sums) sum = V::broadcast(Op::template identity<T>());
    for (int64_t run = 0; run < runs; ++run, x += step) {
      for (int64_t i = 0; i < length; i += 8 * kWidth) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; ++k) sums[k] = Op::combine(sums[k], element(V::load(x + i + k * kWidth)));
      }
    }
    const V a = Op::combine(Op::combine(sums[0], sums[4]), Op::combine(sums[2], sums[6]));
    const V b = Op::combine(Op::combine(sums[1], sums[5]), Op::combine(sums[3], sums[7]));
    return Op::combine(a, b);
  }

  REEL_INLINE static T finish(Vec<T> partial) {
    return REEL_CPU_ISA::reduce(partial, [](auto a, auto b) { return Op::combine(a, b); });
  }
};

/// Integers, for which the order does not matter.
template <class Op, class T>
requires std::is_integral_v<T>
struct Leaves<Op, T> {
  using Partial = T;
  static constexpr int64_t kLeaf = 4096;

  static T leaf(const T* x, int64_t n) {
    T result = Op::template identity<T>();
    for (int64_t i = 0; i < n; ++i) result = Op::combine(result, x[i]);
    return result;
  }
  REEL_INLINE static T finish(T partial) { return partial; }
};

/// What the loops below need to know of an op and a dtype.
struct Kernels {
  int64_t leaf;                                             // elements in a leaf
  void (*segment)(const void* x, int64_t count, Slot* to);  // the tree of a segment's leaves
  // A leaf of runs that begin `step` elements apart, of a multiple of `run_step` elements each; null: none.
  void (*runs)(const void* x, int64_t runs, int64_t length, int64_t step, Slot* to);
  int64_t run_step;
  void (*merge)(const Slot* slots, int64_t count, Slot* to);  // the tree of consecutive subtrees
  void (*finish)(const Slot* slot, int64_t divisor, void* y);
  // All of the above for rows of one segment, `step` elements apart. `far`: each of one leaf, and from memory.
  void (*rows)(const void* x, int64_t rows, int64_t step, int64_t count, int64_t divisor, bool far, void* y);
};

template <class Op, class T>
struct KernelsOf {
  using L = Leaves<Op, T>;
  using Partial = typename L::Partial;

  __attribute__((noinline)) static Partial tree_of_leaves(const T* x, int64_t count) {
    Tree<Op, Partial> tree;
    for (int64_t i = 0; i < count; i += L::kLeaf) tree.push(L::leaf(x + i, min(L::kLeaf, count - i)));
    return tree.total();
  }
  REEL_INLINE static Partial tree(const T* x, int64_t count) {
    return count <= L::kLeaf ? L::leaf(x, count) : tree_of_leaves(x, count);
  }
  REEL_INLINE static void write(Partial partial, int64_t divisor, void* y) {
    T value = L::finish(partial);
    if (divisor != 1) value = static_cast<T>(value / static_cast<T>(divisor));
    *static_cast<T*>(y) = value;
  }

  static void segment(const void* x, int64_t count, Slot* to) {
    const Partial partial = tree(static_cast<const T*>(x), count);
    __builtin_memcpy(to, &partial, sizeof partial);
  }
  static void runs(const void* x, int64_t runs, int64_t length, int64_t step, Slot* to) {
    const Partial partial = L::leaf_of_runs(static_cast<const T*>(x), runs, length, step);
    __builtin_memcpy(to, &partial, sizeof partial);
  }
  static void merge(const Slot* slots, int64_t count, Slot* to) {
    Tree<Op, Partial> tree;
    for (int64_t i = 0; i < count; ++i) {
      Partial partial;
      __builtin_memcpy(&partial, slots + i, sizeof partial);
      tree.push(partial);
    }
    const Partial total = tree.total();
    __builtin_memcpy(to, &total, sizeof total);
  }
  static void finish(const Slot* slot, int64_t divisor, void* y) {
    Partial partial;
    __builtin_memcpy(&partial, slot, sizeof partial);
    write(partial, divisor, y);
  }
  static void rows(const void* x, int64_t rows, int64_t step, int64_t count, int64_t divisor, [[maybe_unused]] bool far,
                   void* y) {
    const T* from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(y);
    if constexpr (kFew > 0)
      if (count <= kFew && step == count) return few(from, rows, count, divisor, to);
    const bool ask = count * static_cast<int64_t>(sizeof(T)) < kVectorBytes;
    int64_t row = 0;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<T, float> && kVectorBytes > 16) {
      constexpr int64_t width = Vec<T>::width;
      if (count < 4 * width) row = short_sums<false>(from, rows, step, count, static_cast<T>(divisor), to);
      else if (count < 8 * width) row = short_sums<true>(from, rows, step, count, static_cast<T>(divisor), to);
    }
    from += row * step;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<T, float> && kVectorBytes == 32) {
      for (; far && row < rows; ++row, from += step) {
        ask_for(reinterpret_cast<const char*>(from) + kAhead, count * static_cast<int64_t>(sizeof(T)));
        write(L::leaf(from, count), divisor, to + row);
      }
    }
    for (; row < rows; ++row, from += step) {
      if (ask) __builtin_prefetch(reinterpret_cast<const char*>(from) + kAhead);
      write(tree(from, count), divisor, to + row);
    }
  }

  /// Sums of rows of less than eight vectors, with four at least or not, the same to the bit: as many together as a vector has
  /// lanes, so that all their lanes are added up at once. (A leaf begins with zeros, this one with elements, which may all be -0;
  /// but among the lanes of the rest one at least is +0.) Returns how many rows there were.
  template <bool four>
  static int64_t short_sums(const T* from, int64_t rows, int64_t step, int64_t count, T divisor, T* to) {
    using V = Vec<T>;
    constexpr int64_t width = V::width;
    const int64_t vectors = count / width;
    const auto all_if = [](bool is_there) { return V::first(is_there ? width : 0); };
    const auto pair = all_if(vectors & 2), single = all_if(vectors & 1), rest = V::first(count % width);
    const int64_t of_pair = vectors & 4, of_single = vectors & 6;  // in vectors
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    int64_t row = 0;
    for (; row + width <= rows; row += width) {
      V sums[width];
      for (int64_t r = 0; r < width; ++r, from += step) {
        const char* const ahead = reinterpret_cast<const char*>(from) + kFarAhead;
        for (int64_t byte = 0; byte < bytes; byte += 128) __builtin_prefetch(ahead + byte);  // lines come in pairs
        const auto at = [from](int64_t k) { return from + k * width; };
        V e = V::load(at(of_pair), pair), f = V::load(at(of_pair + 1), pair);
        V g = V::load(at(of_single), single), h = V::load(at(vectors), rest);
        if constexpr (four) {
          e = V::load(at(0)) + e, f = V::load(at(1)) + f;
          g = V::load(at(2)) + g, h = V::load(at(3)) + h;
        }
        sums[r] = (e + g) + (f + h);
      }
      const V total = reduce_each(sums, [](V a, V b) { return a + b; });
      (divisor == 1 ? total : total / V::broadcast(divisor)).store(to + row);
    }
    return row;
  }
  static constexpr bool kAnyOrder = is_one_of<Op, Max, Min>;
  // Elements that need no vector.
  static constexpr int64_t kFew = std::is_integral_v<T> || std::is_same_v<Op, SumOfSquares> ? 0 : kAnyOrder ? 8 : 4;

  /// In any order, or in that in which the lanes of a vector are combined: those two apart, then neighbours.
  REEL_INLINE static void few(const T* from, int64_t rows, int64_t count, int64_t divisor, T* to) {
    for (int64_t row = 0; row < rows; ++row, from += count) {
      T value = Op::combine(Op::template identity<T>(), from[0]);
      if constexpr (kAnyOrder) {
        for (int64_t i = 1; i < count; ++i) value = Op::combine(value, from[i]);
      } else {
        T other = count > 1 ? from[1] : Op::template identity<T>();
        if (count > 2) value = Op::combine(value, from[2]);
        if (count > 3) other = Op::combine(other, from[3]);
        value = Op::combine(value, other);
      }
      to[row] = divisor == 1 ? value : static_cast<T>(value / static_cast<T>(divisor));
    }
  }
};

Kernels kernels_of(ReduceOp op, DType dtype) {
  Kernels kernels = dispatch_reduction(op, dtype, []<class Op, class T>() {
    using K = KernelsOf<Op, T>;
    Kernels kernels = {Leaves<Op, T>::kLeaf, K::segment, nullptr, 1, K::merge, K::finish, K::rows};
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<T, float>) {
      kernels.runs = K::runs;
      kernels.run_step = 8 * Vec<T>::width;
    }
    return kernels;
  });
  if (is_of_squares(op))
    dispatch_floating(dtype, [&kernels]<class T>() {
      kernels.segment = KernelsOf<SumOfSquares, T>::segment;
      kernels.runs = nullptr;
      kernels.rows = KernelsOf<SumOfSquares, T>::rows;
    });
  return kernels;
}

class Rows {
 public:
  explicit Rows(const Reduction& reduction)
      : r_(reduction),
        kernels_(kernels_of(r_.op, r_.dtype)),
        size_(static_cast<int64_t>(size_of(r_.dtype))),
        segment_((r_.outputs * r_.count > 8 * kGrain ? kSegmentLeaves : kSegmentLeaves / 4) * kernels_.leaf),
        segments_(ceil_div(r_.count, segment_)),
        block_(r_.reduced.inner_stride(0) == 1 && r_.reduced.inner() * size_ >= kLongRun ? 1 : kBlock),
        divisor_(is_mean(r_.op) ? r_.count : 1) {}

  void run() {
    const bool dense = r_.reduced.rank == 1 && r_.reduced.inner_stride(0) == 1;
    if (dense && segments_ == 1) {
      parallel_for(r_.outputs, max<int64_t>(1, kGrain / r_.count), [=, this](int64_t begin, int64_t end) {
        const int64_t inner = r_.kept.inner(), step = r_.kept.inner_stride(0), row_bytes = r_.count * size_;
        const bool far = step == r_.count && row_bytes >= 8 * kVectorBytes && row_bytes < kAskedRow &&
                         is_past_caches(r_.outputs * row_bytes);
        Cursor<1> cursor(r_.kept, r_.kept.rank - 1, begin / inner);
        for (int64_t row = begin; row < end; cursor.next()) {
          const int64_t skipped = row % inner, rows = min(inner - skipped, end - row);
          kernels_.rows(at(cursor.offsets[0] + skipped * step), rows, step, r_.count, divisor_, far, y(row));
          row += rows;
        }
      });
      return;
    }
    Scratch scratch(static_cast<std::size_t>(r_.outputs * segments_) * sizeof(Slot));
    Slot* slots = scratch.as<Slot>();
    if (dense) {
      parallel_for(r_.outputs * segments_, 1, [=, this](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const Cursor<1> cursor(r_.kept, r_.kept.rank, unit / segments_);
          const int64_t first = unit % segments_ * segment_;
          kernels_.segment(at(cursor.offsets[0] + first), min(segment_, r_.count - first), slots + unit);
        }
      });
    } else {
      const int64_t chunk = max<int64_t>(1, kGrain / (block_ * min(r_.count, segment_)));
      parallel_for(ceil_div(r_.outputs, block_) * segments_, chunk, [=, this](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit)
          gather_segment(unit / segments_ * block_, unit % segments_, slots);
      });
    }
    for (int64_t row = 0; row < r_.outputs; ++row) {
      Slot* first = slots + row * segments_;
      kernels_.merge(first, segments_, first);
      kernels_.finish(first, divisor_, y(row));
    }
  }

 private:
  const char* at(int64_t offset) const { return static_cast<const char*>(r_.x) + offset * size_; }
  char* y(int64_t row) const { return static_cast<char*>(r_.y) + row * size_; }

  /// One segment of up to block_ rows whose elements are not all side by side.
  void gather_segment(int64_t first_row, int64_t segment, Slot* slots) const {
    const int64_t rows = min(block_, r_.outputs - first_row);
    const int64_t begin = segment * segment_, end = min(r_.count, begin + segment_);
    const int64_t pitch = (min(kernels_.leaf, end - begin) + kPad) * size_;  // bytes from row to row of `elements`
    Scratch scratch(static_cast<std::size_t>(block_ * kSegmentLeaves) * sizeof(Slot) +
                    static_cast<std::size_t>(rows * pitch));
    Slot* leaves = scratch.as<Slot>();  // [rows, kSegmentLeaves]
    char* elements = scratch.as<char>() + block_ * kSegmentLeaves * static_cast<int64_t>(sizeof(Slot));
    int64_t offsets[kBlock];
    Cursor<1> cursor(r_.kept, r_.kept.rank, first_row);
    for (int64_t row = 0; row < rows; ++row, cursor.next()) offsets[row] = cursor.offsets[0];

    int64_t count = 0;
    for (int64_t i = begin; i < end; i += kernels_.leaf, ++count) {
      const int64_t n = min(kernels_.leaf, end - i);
      if (block_ == 1 && i % r_.reduced.inner() + n <= r_.reduced.inner()) {  // a piece of a run
        const Cursor<1> run(r_.reduced, r_.reduced.rank - 1, i / r_.reduced.inner());
        kernels_.segment(at(offsets[0] + run.offsets[0] + i % r_.reduced.inner()), n, leaves + count);
        continue;
      }
      if (block_ == 1 && kernels_.runs != nullptr && are_even_runs(i, n)) {
        const int64_t length = r_.reduced.inner(), step = r_.reduced.strides[0][0];
        kernels_.runs(at(offsets[0] + i / length * step), n / length, length, step, leaves + count);
        continue;
      }
      gather(offsets, rows, i, n, elements, pitch);
      for (int64_t row = 0; row < rows; ++row) {
        kernels_.segment(elements + row * pitch, n, leaves + row * kSegmentLeaves + count);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      kernels_.merge(leaves + row * kSegmentLeaves, count, slots + (first_row + row) * segments_ + segment);
    }
  }

  /// Whether elements [first, first + n) of a row are whole runs at even distances that `runs` takes.
  bool are_even_runs(int64_t first, int64_t n) const {
    const int64_t length = r_.reduced.inner();
    return r_.reduced.rank == 2 && length % kernels_.run_step == 0 && first % length == 0 && n % length == 0;
  }

  /// Elements [first, first + n) of the rows that start at `offsets`, in the order in which they lie.
  void gather(const int64_t* offsets, int64_t rows, int64_t first, int64_t n, char* elements, int64_t pitch) const {
    const int64_t inner = r_.reduced.inner(), stride = r_.reduced.inner_stride(0);
    const bool rows_are_near = rows > 1 && stride != 1 && offsets[rows - 1] - offsets[0] == rows - 1 &&
                               r_.kept.inner_stride(0) == 1;  // rows of one line, side by side
    Cursor<1> cursor(r_.reduced, r_.reduced.rank - 1, first / inner);
    int64_t skipped = first % inner;
    for (int64_t done = 0; done < n; cursor.next()) {
      const int64_t count = min(inner - skipped, n - done);
      const char* from = at(cursor.offsets[0] + skipped * stride);
      char* to = elements + done * size_;
      if (rows_are_near) {
        dispatch_bytes(static_cast<std::size_t>(size_), [&]<class Bytes>() {
          transpose_block(reinterpret_cast<const Bytes*>(from) + offsets[0], stride, reinterpret_cast<Bytes*>(to),
                          pitch / size_, rows, count);
        });
      } else {
        for (int64_t row = 0; row < rows; ++row) {
          move_run(from + offsets[row] * size_, stride, to + row * pitch, 1, count, size_);
        }
      }
      done += count;
      skipped = 0;
    }
  }

  const Reduction& r_;
  Kernels kernels_;
  int64_t size_;
  int64_t segment_, segments_;  // elements in a segment; segments of a row
  int64_t block_;               // rows that are gathered together
  int64_t divisor_;
};

}  // namespace

void reduce_rows(const Reduction& reduction) {
  if (!reduce_rows_side_by_side(reduction)) Rows(reduction).run();
}

void reduce_dense_rows(ReduceOp op, DType dtype, const void* x, int64_t rows, int64_t count, void* y) {
  kernels_of(op, dtype).rows(x, rows, count, count, is_mean(op) ? count : 1, false, y);
}

}  // namespace reel::cpu::REEL_CPU_ISA
