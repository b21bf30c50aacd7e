#pragma once

// The rows that ops over axes have in common.

#include "reel/core/ragged.h"
#include "reel/ops/axes.h"
#include "reel/tests/ops/op_case.h"

namespace reel::test {

using ReduceOp = std::function<Tensor(const Tensor&, const Axes&, Keep, SourceLocation)>;
using Fold = std::function<double(const std::vector<double>&)>;

/// The elements of x that fall on each element of the result when the axes in `mask` (bit i: axis i) are reduced.
Ref folded(const Ref& x, std::uint32_t mask, bool keep, const Fold& fold);

/// What an op is tried on: any numbers, numbers without ties, numbers whose products stay near 1, or integers 0 and 1 (which
/// have no gradient).
enum class Numbers { any, distinct, near_one, bits };
Tensor made(Maker& make, const Shape& shape, Numbers numbers);

struct Reduction {
  std::string name;
  ReduceOp op;
  Fold fold;
  Numbers numbers = Numbers::any;
  std::vector<Size> skip = {};
};

/// Appends rows for x [rows, 2, cols] and several sets of axes, and returns the first, which has the bad calls.
OpCase& add_reduction(std::vector<OpCase>& rows, const Reduction& reduction);

/// The row "/ragged": each column of each sequence folded. An empty sequence's result must be finite, for differences.
OpCase per_sequence(const std::string& name, std::function<Tensor(const Ragged&)> op, const Fold& fold,
                    Numbers numbers = Numbers::any);

/// The row "/ragged_rows": each row folded, which has two numbers at least.
OpCase per_row(const std::string& name, std::function<Ragged(const Ragged&, int axis)> op, const Fold& fold,
               Numbers numbers = Numbers::any);

}  // namespace reel::test
