#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/core/ops.h"

/// Rows that lie in memory, combined element by element in a tree (reduce.h).
namespace reel::cpu::REEL_CPU_ISA {

/// What the loops over rows need to know of an op and a dtype.
struct RowKernels {
  std::uint64_t identity;  // its first bytes
  std::uint64_t neutral;   // the same, but for sums -0, with which -0 stays what it is
  void (*group)(const void* const* rows, void* y, int64_t width);
  void (*merge_group)(const void* const* rows, void* y,
                      int64_t width);  // null: `group` to another row, which is merged
  void (*merge)(void* older, const void* newer, int64_t width);
  void (*neighbours)(const void* x, void* y, int64_t count);  // y may begin where x does
  void (*divide)(void* y, int64_t divisor, int64_t width);
};

/// Of every op but sums of squares.
RowKernels row_kernels(ReduceOp op, DType dtype);

/// The tree of partial results, each a row of `width` columns of `size` bytes in one of the slots.
class RowTree {
 public:
  static constexpr int64_t kGroup = 8;  // rows in a leaf

  RowTree(const RowKernels& kernels, char* slots, int64_t width, int64_t size)
      : kernels_(kernels), slots_(slots), width_(width), bytes_(width * size) {}

  /// Slots that a tree of so many pushes may need.
  static int64_t levels(int64_t pushes) { return 65 - __builtin_clzll(static_cast<std::uint64_t>(pushes)); }

  void push_group(const void* const* rows) {
    if ((pushed_ & 1) && kernels_.merge_group != nullptr) {
      kernels_.merge_group(rows, slot(top_ - 1), width_);
    } else {
      kernels_.group(rows, slot(top_++), width_);
      if (pushed_ & 1) merge_top();
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
  char* total() {
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

  const RowKernels& kernels_;
  char* slots_;
  int64_t width_, bytes_;
  int64_t pushed_ = 0;
  int top_ = 0;
};

}  // namespace reel::cpu::REEL_CPU_ISA
