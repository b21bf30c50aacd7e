#include "reel/backends/cpu/recurrent_sums.h"

namespace reel::cpu::REEL_CPU_ISA::recurrence {
namespace {

/// Rows of a weight whose gradients are a thread's unit of work: many, for each unit packs the other operand of its product anew, but
/// fewer where some threads would have none.
constexpr int64_t kMostRows = 256, kFewestRows = 64;

int64_t blocks_of(int64_t gates, int64_t parts) {
  const int64_t wanted = ceil_div(detail::available_threads(), parts);
  return max(ceil_div(gates, kMostRows), min(ceil_div(gates, kFewestRows), wanted));
}

Array columns(Array x, int64_t first, int64_t count) {
  x.data = x.as<char>() + first * static_cast<int64_t>(size_of(x.dtype));
  x.contiguous = count == x.shape[1];
  x.shape[1] = count;
  x.size = x.shape[0] * count;
  return x;
}
/// Elements of what lies side by side.
Array elements(const Array& x, int64_t first, int64_t count) {
  return matrix(x.as<char>() + first * static_cast<int64_t>(size_of(x.dtype)), x.dtype, 1, count);
}

}  // namespace

WeightSums::WeightSums(CpuOps& ops, const Parts& parts, const OfRows& rows, const RecurrentGradients& to)
    : ops_(ops),
      parts_(parts),
      rows_(rows),
      to_(to),
      gates_(rows.dz.shape[1]),
      blocks_(blocks_of(gates_, parts.count)),
      more_(parts.count - 1),
      room_(rows.dz.dtype, more_ * gates_ * (rows.x.shape[1] + rows.before.shape[1]) + 2 * parts.count * gates_),
      input_(room_.take(more_ * gates_, rows.x.shape[1])),
      recurrent_(room_.take(more_ * gates_, rows.before.shape[1])),
      bias_(room_.take(parts.count, gates_)),
      back_bias_(room_.take(parts.count, gates_)) {}

void WeightSums::compute(int64_t unit) const {
  const int64_t part = unit / blocks_, block = unit % blocks_;
  const int64_t first = gates_ * block / blocks_, count = gates_ * (block + 1) / blocks_ - first;
  const int64_t begin = parts_.begin(part), rows = parts_.begin(part + 1) - begin;
  const auto weight = [&](const Array& of_gates, const Array& of_rows, const GradientSink& sink, const Array& others) {
    if (!sink.wanted()) return;
    const Array b = rows_of(of_rows, begin, rows);
    const Array sum = part == 0 ? rows_of(sink.to, first, count) : rows_of(others, (part - 1) * gates_ + first, count);
    Gemm gemm = gemm_of(columns(rows_of(of_gates, begin, rows), first, count), true, b, false, sum.data);
    gemm.accumulate = part == 0 && sink.add;
    ops_.gemm(gemm);
  };
  const auto bias = [&](const Array& of_gates, const Array& sums) {
    ops_.reduce(ReduceOp::sum, columns(rows_of(of_gates, begin, rows), first, count),
                columns(rows_of(sums, part, 1), first, count), nullptr);
  };
  weight(rows_.dz, rows_.x, to_.input, input_);
  weight(rows_.dback, rows_.before, to_.recurrent, recurrent_);
  if (to_.input_bias.wanted() || (!two_biases() && to_.recurrent_bias.wanted())) bias(rows_.dz, bias_);
  if (two_biases() && to_.recurrent_bias.wanted()) bias(rows_.dback, back_bias_);
}

void WeightSums::join() const {
  join(to_.input, input_);
  join(to_.recurrent, recurrent_);
  join_bias(to_.input_bias, bias_);
  join_bias(to_.recurrent_bias, two_biases() ? back_bias_ : bias_);
}

void WeightSums::join(const GradientSink& sink, const Array& others) const {
  if (!sink.wanted() || more_ == 0) return;
  const int64_t size = sink.to.size;
  parallel_for(size, kGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t part = 0; part < more_; ++part)
      ops_.accumulate(elements(others, part * size + begin, end - begin), elements(sink.to, begin, end - begin));
  });
}

void WeightSums::join_bias(const GradientSink& sink, const Array& of_parts) const {
  if (!sink.wanted()) return;
  const Array here = elements(sink.to, 0, gates_);
  for (int64_t part = 0; part < parts_.count; ++part) {
    const Array sum = rows_of(of_parts, part, 1);
    if (part > 0 || sink.add) ops_.accumulate(sum, here);
    else copy_rows(sum, here);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA::recurrence
