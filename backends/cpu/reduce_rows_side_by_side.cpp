#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/reduce.h"
#include "reel/backends/cpu/row_tree.h"

// The results of reduce_rows where rows lie side by side, so that rows of memory are combined, in the order of a leaf: what each lane
// of its eight vectors adds up is a row of memory, and a tree of groups combines those, lane by lane.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

class RowsSideBySide {
 public:
  explicit RowsSideBySide(const Reduction& reduction)
      : r_(reduction),
        kernels_(row_kernels(r_.op, r_.dtype)),
        size_(static_cast<int64_t>(size_of(r_.dtype))),
        lanes_(lanes_of(r_.count, size_)),
        tile_(even_chunk(r_.kept.inner(), max(kTile / 2, min(kTile, r_.outputs / 2)))),
        tiles_(ceil_div(r_.kept.inner(), tile_)) {}

  /// Rows of one leaf; of integers any.
  static bool takes(const Reduction& r) {
    const int64_t size = static_cast<int64_t>(size_of(r.dtype));
    return !is_of_squares(r.op) && r.kept.inner_stride(0) == 1 && r.kept.inner() * size >= kVectorBytes &&
           (!is_floating(r.dtype) || r.count <= kLeafSteps * kVectors * kVectorBytes / size);
  }

  void run() {
    Scratch scratch(static_cast<std::size_t>(r_.count) * sizeof(int64_t));
    offsets_ = scratch.as<int64_t>();
    Cursor<1> cursor(r_.reduced, r_.reduced.rank, 0);
    for (int64_t i = 0; i < r_.count; ++i, cursor.next()) offsets_[i] = cursor.offsets[0];
    const int64_t outer = r_.outputs / r_.kept.inner();
    parallel_for(outer * tiles_, max<int64_t>(1, kGrain / (tile_ * r_.count)), [this](int64_t begin, int64_t end) {
      Scratch room(static_cast<std::size_t>((1 + kVectors + RowTree::levels(lanes_)) * tile_ * size_));
      for (int64_t unit = begin; unit < end; ++unit) run_tile(unit / tiles_, unit % tiles_ * tile_, room.as<char>());
    });
  }

 private:
  static constexpr int64_t kTile = 512;  // columns; half of them where there are few
  static constexpr int64_t kVectors = kLeafVectors;

  /// Of a vector, and if there are fewer elements only so many as they need.
  static int64_t lanes_of(int64_t count, int64_t size) {
    int64_t lanes = 1;
    while (lanes < min(count, kVectorBytes / size)) lanes *= 2;
    return lanes;
  }

  void run_tile(int64_t outer, int64_t column, char* room) const {
    const Cursor<1> cursor(r_.kept, r_.kept.rank - 1, outer);
    const int64_t width = min(tile_, r_.kept.inner() - column), bytes = width * size_;
    const char* const x = static_cast<const char*>(r_.x) + (cursor.offsets[0] + column) * size_;
    char *const nothing = room, *const sums = nothing + bytes, *const slots = sums + kVectors * bytes;
    move_run(&kernels_.identity, 0, nothing, 1, width, size_);
    RowTree tree(kernels_, slots, width, size_);
    const int64_t whole = r_.count / (kVectors * lanes_) * kVectors * lanes_;
    for (int64_t i = 0; i < lanes_; ++i) {
      const int64_t lane = reversed(i);  // halves, quarters and so on, as `reduce` takes the lanes of a vector
      if (r_.count <= lanes_) {
        tree.push(lane < r_.count ? x + offsets_[lane] * size_ : nothing);
        continue;
      }
      const void* rows[kVectors];
      for (int64_t k = 0; k < kVectors; ++k) {
        constexpr int kOrder[kVectors] = {0, 4, 2, 6, 1, 5, 3, 7};
        const int64_t first = kOrder[k] * lanes_ + lane, rest = rest_of(kOrder[k], lane, whole);
        char* const sum = sums + k * bytes;
        rows[k] = nothing;
        const auto add = [&](int64_t row) {
          const char* const from = x + offsets_[row] * size_;
          if (rows[k] == nothing) {
            rows[k] = from;
            return;
          }
          if (rows[k] != sum) __builtin_memcpy(sum, rows[k], static_cast<std::size_t>(bytes));
          rows[k] = sum;
          kernels_.merge(sum, from, width);
        };
        for (int64_t row = first; row < whole; row += kVectors * lanes_) add(row);
        if (rest >= 0) add(rest);
      }
      tree.push_group(rows);
    }
    char* const total = tree.total();
    kernels_.merge(total, nothing, width);  // a leaf begins with the identity: no sum is -0
    if (is_mean(r_.op)) kernels_.divide(total, r_.count, width);
    __builtin_memcpy(static_cast<char*>(r_.y) + (outer * r_.kept.inner() + column) * size_, total,
                     static_cast<std::size_t>(bytes));
  }

  int64_t reversed(int64_t i) const {
    int64_t result = 0;
    for (int64_t bit = 1; bit < lanes_; bit *= 2, i /= 2) result = 2 * result + i % 2;
    return result;
  }

  /// The element that a leaf adds to a lane of a vector at its end, after whole steps; -1: none.
  int64_t rest_of(int64_t vector, int64_t lane, int64_t whole) const {
    const int64_t rest = r_.count - whole, vectors = rest / lanes_;
    int64_t first = whole;
    if (vectors & 4) {
      if (vector < 4) return first + vector * lanes_ + lane;
      first += 4 * lanes_;
    }
    if (vectors & 2) {
      if (vector == 4 || vector == 5) return first + (vector - 4) * lanes_ + lane;
      first += 2 * lanes_;
    }
    if (vectors & 1) {
      if (vector == 6) return first + lane;
      first += lanes_;
    }
    return vector == 7 && first + lane < r_.count ? first + lane : -1;
  }

  const Reduction& r_;
  RowKernels kernels_;
  int64_t size_, lanes_;
  int64_t tile_, tiles_;
  int64_t* offsets_ = nullptr;  // of the elements of a row
};

}  // namespace

bool reduce_rows_side_by_side(const Reduction& reduction) {
  if (!RowsSideBySide::takes(reduction)) return false;
  if (is_floating(reduction.dtype)) RowsSideBySide(reduction).run();
  else reduce_columns(reduction);  // integers, for which the order does not matter
  return true;
}

}  // namespace reel::cpu::REEL_CPU_ISA
