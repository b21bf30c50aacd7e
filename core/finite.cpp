#include <algorithm>
#include <cmath>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/given_numbers.h"
#include "reel/core/index_text.h"
#include "reel/core/node_list.h"
#include "reel/core/ops.h"

namespace reel::detail {

thread_local constinit const GivenNumbers* GivenNumbers::innermost = nullptr;

namespace {

std::string range_text(const Tensor& x) {
  std::ostringstream text;
  text << name_of(x.dtype()) << ' ' << x.shape().str();
  if (x.size() == 0) return text.str();
  double low = INFINITY, high = -INFINITY;
  std::int64_t nans = 0;
  for (const double value : x.to_vector<double>()) {
    low = value < low ? value : low;
    high = value > high ? value : high;
    nans += std::isnan(value);
  }
  if (nans < x.size()) text << " in [" << low << ", " << high << "]";
  if (nans > 0) text << " with " << nans << " NaN";
  return text.str();
}

template <class T>
bool all_finite(const T* values, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i)
    if (!std::isfinite(values[i])) return false;
  return true;
}

bool is_finite_on_host(const Tensor& x) {
  const Tensor packed = x.is_contiguous() ? x : copied(x, x.dtype());
  return packed.dtype() == f32 ? all_finite(packed.array().as<float>(), packed.size())
                               : all_finite(packed.array().as<double>(), packed.size());
}

bool has_infinity(const NamedOperand& operand) {
  const Tensor& x = operand.tensor;
  if (!x.defined() || !is_floating(x.dtype())) return false;
  const std::vector<double> values = x.to_vector<double>();
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isinf(value); });
}

/// Of nothing: the infinity of a largest or least element among none is a value that was agreed on.
bool is_of_nothing(const Computed& computed) {
  bool empty = false;
  for (const NamedOperand& operand : computed.operands) {
    if (!operand.tensor.defined()) continue;
    if (operand.tensor.size() > 0) return false;
    empty = true;
  }
  return empty;
}

bool gives_infinity(const Computed& computed) {
  return is_of_nothing(computed) || std::any_of(computed.operands.begin(), computed.operands.end(), has_infinity) ||
         std::any_of(computed.numbers.begin(), computed.numbers.end(),
                     [](double number) { return std::isinf(number); });
}

/// Throws if the values have a NaN, or an infinity that none of the operands has: one that was given may be a mask.
/// What sequences without rows give is told by the op (ops/offsets.h).
void judge(const Computed& computed) {
  const std::vector<double> values = computed.x.to_vector<double>();
  auto bad = std::find_if(values.begin(), values.end(), [](double value) { return std::isnan(value); });
  if (bad == values.end()) {
    bad = std::find_if(values.begin(), values.end(), [](double value) { return std::isinf(value); });
    if (bad == values.end() || gives_infinity(computed)) return;
  }
  std::ostringstream text;
  text << computed.op << ": " << computed.what << " must be finite on a tape with check_finite, got "
       << (std::isnan(*bad) ? NAN : *bad) << " at index "  // NaN without its sign
       << index_text(bad - values.begin(), computed.x.shape()) << " of " << computed.x.shape().str();
  const char* separator = "; from ";
  for (const NamedOperand& operand : computed.operands) {
    if (!operand.tensor.defined()) continue;
    text << separator << operand.name << ' ' << range_text(operand.tensor);
    separator = ", ";
  }
  for (const double number : computed.numbers) {
    text << separator << "the number " << number;
    separator = ", ";
  }
  throw Error(text.str(), computed.where);
}

// --- on a GPU ---------------------------------------------------------------------------------------------------------

// Without the cost of reaching what has to be constructed.
thread_local constinit bool any_unread = false, any_late = false;

/// What a GPU has computed and nobody has looked at: the least and the largest element of each go to a list there, which is
/// read once for all.
class Unread {
 public:
  void add(Computed computed) {
    const Tensor& x = computed.x;
    Tensor& ranges = ranges_[x.dtype() == f64];
    const bool elsewhere = !ranges.defined() || !(ranges.device() == x.device());
    if (all_.size() == kMost || (elsewhere && ranges.defined())) read();
    if (elsewhere) ranges = empty({kMost, 2}, x.options());
    const std::int64_t place = static_cast<std::int64_t>(all_.size());
    std::int64_t steps[kMaxRank];
    Shape one;
    for (int axis = 0; axis < x.rank(); ++axis) {
      one.push_back(1);
      steps[axis] = 1;
    }
    Ops& ops = backend(x.device());
    ops.reduce(ReduceOp::min, x.array(), view(ranges, 2 * place, one, steps).array(), nullptr);
    ops.reduce(ReduceOp::max, x.array(), view(ranges, 2 * place + 1, one, steps).array(), nullptr);
    all_.push_back(std::move(computed));
    any_unread = true;
  }

  void read() { tell(taken(), ranges_); }

  /// Nothing is left, on the GPU either. What would be told is kept.
  void end(bool silently) noexcept {
    const std::vector<Computed> all = taken();
    const Tensor ranges[] = {std::exchange(ranges_[0], {}), std::exchange(ranges_[1], {})};
    if (silently) return;
    try {
      tell(all, ranges);
    } catch (...) {
      if (!any_late) late_ = std::current_exception();
      any_late = true;
    }
  }

  /// Throws what has been kept.
  void tell_late() {
    any_late = false;
    std::rethrow_exception(std::exchange(late_, nullptr));
  }

 private:
  std::vector<Computed> taken() {
    any_unread = false;
    return std::exchange(all_, {});
  }

  static void tell(const std::vector<Computed>& all, const Tensor* ranges) {
    std::vector<double> seen[2];
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool wide = all[i].x.dtype() == f64;
      if (seen[wide].empty()) seen[wide] = first_of(ranges[wide], static_cast<std::int64_t>(all.size()));
      if (std::isfinite(seen[wide][2 * i]) && std::isfinite(seen[wide][2 * i + 1])) continue;
      try {
        judge(all[i]);
      } catch (Error& error) {
        if (all[i].backward) error.prepend("backward of " + described(all[i].op, all[i].recorded));
        throw;
      }
    }
  }

  static std::vector<double> first_of(const Tensor& ranges, std::int64_t count) {
    const std::int64_t steps[] = {2, 1};
    return view(ranges, 0, {count, 2}, steps).to_vector<double>();
  }

  static constexpr std::int64_t kMost = 4096;
  std::vector<Computed> all_;
  Tensor ranges_[2];  // f32 and f64, [kMost, 2]: of all_[i] in one of them
  std::exception_ptr late_;
};

Unread& unread() {
  thread_local Unread instance;
  return instance;
}

}  // namespace

void check_finite(Computed computed) {
  if (!computed.x.defined() || !is_floating(computed.x.dtype()) || computed.x.size() == 0) return;
  if (is_half(computed.x.dtype())) computed.x = copied(computed.x, f32);
  const Tensor& x = computed.x;
  if (!x.device().is_cpu()) unread().add(std::move(computed));
  else if (!is_finite_on_host(x)) judge(computed);
}

void check_unread() {
  if (any_unread) unread().read();
}
void check_unread_after_wait() {
  check_told_late();
  if (any_unread && !thread_tape.list->is_sweeping()) [[unlikely]]
    unread().read();
}
void end_unread(bool silently) noexcept { unread().end(silently); }
void check_told_late() {
  if (any_late && !thread_tape.list->is_sweeping()) [[unlikely]]
    unread().tell_late();
}

std::int8_t given_infinity() {
  if (const GivenNumbers* given = GivenNumbers::current())
    for (const Scalar& number : *given)
      if (const double value = number.as<double>(); std::isinf(value)) return value > 0 ? 1 : -1;
  return 0;
}

void check_results(const char* op, const Tensor* const* inputs, std::size_t input_count, const Tensor* const* outputs,
                   std::size_t output_count, SourceLocation where) {
  std::vector<NamedOperand> operands;
  for (std::size_t i = 0; i < input_count; ++i) operands.push_back({"input " + std::to_string(i), *inputs[i]});
  std::vector<double> numbers;
  if (const GivenNumbers* given = GivenNumbers::current())
    for (const Scalar& number : *given) numbers.push_back(number.as<double>());
  for (std::size_t i = 0; i < output_count; ++i)
    check_finite(
        {*outputs[i], op, output_count == 1 ? "the result" : "result " + std::to_string(i), operands, numbers, where});
}

}  // namespace reel::detail
