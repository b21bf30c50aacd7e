#pragma once

// Private to ops/: one layer of a recurrent network in one direction, over rows in order of steps: first the first rows of all
// sequences, the longest first, then the second rows of those that have one, and so on. So the sequences of a step are the
// first ones of the step before.

#include <array>

#include "reel/core/ragged.h"

namespace reel::detail::recurrent {

// What one pass over the rows is.
struct Pass {
  CellOp op;
  bool reverse;
  Offsets steps;  // the rows of each step, as many as sequences that have it

  bool is_lstm() const { return op == CellOp::lstm; }
  bool is_gru() const { return op == CellOp::gru; }
  std::int64_t gates() const { return is_lstm() ? 4 : is_gru() ? 3 : 1; }
  const char* name() const { return is_lstm() ? "lstm" : is_gru() ? "gru" : "rnn"; }
  std::int64_t begin(std::int64_t step) const { return steps.span()[static_cast<std::size_t>(step)]; }
  std::int64_t rows(std::int64_t step) const { return step < 0 || step >= steps.count() ? 0 : steps.length(step); }
  // The i-th step to be computed.
  std::int64_t at(std::int64_t i) const { return reverse ? steps.count() - 1 - i : i; }
};

// The inputs of a pass, in the order in which its gradients are given; a bias may be undefined.
enum Input { kX, kWeightIh, kWeightHh, kBiasIh, kBiasHh, kH0, kC0, kInputs };
using Inputs = std::array<Tensor, kInputs>;

// y: the states of all rows [total, hidden]; h, c: the last ones of all sequences [n, hidden].
struct Outputs {
  Tensor y, h, c;
};

/// All rows through the layer; recorded as one op. A gradient that is to be differentiated again is computed in plain ops.
Outputs run(const Pass& pass, const Inputs& given, SourceLocation where);

}  // namespace reel::detail::recurrent
