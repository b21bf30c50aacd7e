#pragma once

// The table of ops on Ragged for tests/ragged_properties_test.cpp.

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "reel/core/ragged.h"

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
  std::string name;
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

std::vector<RaggedOp> ragged_ops();
// In ragged_properties_shape.cpp.
std::vector<RaggedOp> ragged_shape_ops();

}  // namespace reel::test
