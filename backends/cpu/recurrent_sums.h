#pragma once

#include "reel/backends/cpu/recurrent.h"

/// The gradients of a recurrent layer's weights, as sums over parts of its sequences.
namespace reel::cpu::REEL_CPU_ISA::recurrence {

/// The parts of the sequences. A part's rows lie side by side, a step's after another's, the last step's first.
struct Parts {
  Steps steps;
  int64_t sequences, count;

  int64_t first(int64_t part) const { return sequences * part / count; }
  /// Of a part's pieces.
  int64_t pieces() const { return ceil_div(ceil_div(sequences, count), kSequences); }
  Piece piece(int64_t part, int64_t i) const {
    const int64_t begin = first(part), n = first(part + 1) - begin;
    return {steps, begin + n * i / pieces(), begin + n * (i + 1) / pieces()};
  }
  /// Where a part's rows begin: behind those of all sequences before.
  int64_t begin(int64_t part) const {
    if (steps.steps.offsets == nullptr) return steps.count() * first(part);
    int64_t rows = 0;
    for (int64_t t = 0; t < steps.count(); ++t) rows += steps.rows(t, 0, first(part));
    return rows;
  }
};

/// All rows' gradients of the input's part of the gates and of the recurrent part, one array but for gru; the states before each
/// row; the rows of x. All in the parts' order.
struct OfRows {
  Array dz, dback, before, x;
};

/// The gradients of the weights and biases: sums of parts, of which the first go where the gradients go.
class WeightSums {
 public:
  WeightSums(CpuOps& ops, const Parts& parts, const OfRows& rows, const RecurrentGradients& to);

  int64_t units() const { return parts_.count * blocks_; }
  /// A part's sums of some of the weights' rows.
  void compute(int64_t unit) const;
  /// In the order of the parts.
  void join() const;

 private:
  bool two_biases() const { return rows_.dback.data != rows_.dz.data; }
  void join(const GradientSink& sink, const Array& others) const;
  void join_bias(const GradientSink& sink, const Array& of_parts) const;

  CpuOps& ops_;
  const Parts& parts_;
  const OfRows& rows_;
  const RecurrentGradients& to_;
  int64_t gates_, blocks_, more_;  // blocks of the weights' rows; parts but the first
  Room room_;
  Array input_, recurrent_, bias_, back_bias_;
};

}  // namespace reel::cpu::REEL_CPU_ISA::recurrence
