#pragma once

// The table of ops on Ragged, for tests/ragged_properties_test.cpp.

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "reel/core/ragged.h"
#include "reel/ops/views.h"

namespace reel::test {

/// An input beside the sequences: numbers for each of their rows, [total, ...], for each sequence, [n, ...], or for all.
struct Beside {
  enum class Kind { row, sequence, shared } kind;
  std::function<Shape(std::int64_t width)> trailing;  // its axes behind the rows; all axes, if shared
  double low = -2, high = 2;
  bool index = false;  // i64 in [low, high), without gradient
};

/// An op on sequences x of rows [width] and the same on one of them. Both give a row of results for each row or, if
/// `per_sequence`, for each sequence; `list` then gives that row alone, without the axis.
struct RaggedOp {
  std::string name;  // the public function's; behind a '/' a variant, /row if it is along the axes of a row
  std::function<Tensor(const Ragged& x, const Tensors& beside)> ragged;
  /// Of one sequence [length, width], with its part of what is beside it: [length, ...], [1, ...], or all.
  std::function<Tensor(const Tensor& x, const Tensors& beside)> list;
  std::vector<Beside> beside = {};
  bool per_sequence = false;
  /// What masks rows: `list` gives the same for a sequence followed by rows of this number.
  std::optional<double> padding = 0;
  /// What a sequence without rows gives, if `list` does not say.
  std::optional<double> empty = {};
  double low = -2, high = 2;  // x's numbers
};

inline void PrintTo(const RaggedOp& op, std::ostream* out) { *out << op.name; }

/// Each op per row, then those of ragged_sequence_ops().
std::vector<RaggedOp> ragged_ops();
/// Ops within sequences and per sequence.
std::vector<RaggedOp> ragged_sequence_ops();

// What rows of both are made of.

/// Numbers for each row, as wide as x's.
inline Beside rows(double low = -2, double high = 2) {
  return {Beside::Kind::row, [](std::int64_t width) { return Shape{width}; }, low, high};
}
/// A matrix [out, in] for all; in = 0: x's width; in < 0: a vector [out].
inline Beside weight(std::int64_t out, std::int64_t in = 0) {
  return {Beside::Kind::shared,
          [=](std::int64_t width) {
            return in < 0 ? Shape{out} : Shape{out, in == 0 ? width : in};
          },
          -0.5, 0.5};
}
/// The first number of each row, of a Ragged or of one sequence.
inline Tensor first_column(const Tensor& x) { return select(x, 1, 0); }
inline Ragged first_column(const Ragged& x) { return x.with(select(x.values(), 1, 0)); }

/// Ops that rearrange rows or look beside them (ragged_properties_shape.cpp).
std::vector<RaggedOp> ragged_shape_ops();

}  // namespace reel::test
