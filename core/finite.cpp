#include <cmath>
#include <sstream>
#include <string>

#include "reel/core/error.h"
#include "reel/core/index_text.h"
#include "reel/core/node_list.h"

namespace reel::detail {

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
std::int64_t first_not_finite(const T* values, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i)
    if (!std::isfinite(values[i])) return i;
  return -1;
}

}  // namespace

void check_finite(const Tensor& x, const char* op, const char* what, const std::vector<NamedOperand>& operands,
                  SourceLocation where) {
  if (!x.defined() || !is_floating(x.dtype())) return;
  const Tensor host = transferred(x.is_contiguous() ? x : copied(x, x.dtype()), Device::cpu());
  const std::int64_t bad = host.dtype() == f32 ? first_not_finite(host.array().as<float>(), host.size())
                                               : first_not_finite(host.array().as<double>(), host.size());
  if (bad < 0) return;
  const double found = host.dtype() == f32 ? host.array().as<float>()[bad] : host.array().as<double>()[bad];
  const double value = std::isnan(found) ? NAN : found;  // without its sign
  std::ostringstream text;
  text << op << ": " << what << " must be finite on a tape with check_finite, got " << value << " at index "
       << index_text(bad, x.shape()) << " of " << x.shape().str();
  const char* separator = "; from ";
  for (const NamedOperand& operand : operands) {
    if (!operand.tensor.defined()) continue;
    text << separator << operand.name << ' ' << range_text(operand.tensor);
    separator = ", ";
  }
  throw Error(text.str(), where);
}

void check_results(const char* op, const Tensor* const* inputs, std::size_t input_count, const Tensor* const* outputs,
                   std::size_t output_count, SourceLocation where) {
  std::vector<NamedOperand> operands;
  for (std::size_t i = 0; i < input_count; ++i) operands.push_back({"input " + std::to_string(i), *inputs[i]});
  for (std::size_t i = 0; i < output_count; ++i)
    check_finite(*outputs[i], op, output_count == 1 ? "the result" : ("result " + std::to_string(i)).c_str(), operands,
                 where);
}

}  // namespace reel::detail
