#include "reel/nn/plot_axis.h"

#include <algorithm>
#include <cmath>

#include "reel/core/number_text.h"

namespace reel::nn {
namespace {

// Beyond these the arithmetic of an axis would overflow or lose digits.
constexpr double kSmallest = 1e-280, kLargest = 1e280;

// The round number (1, 2 or 5 times a power of ten) nearest above `rough`.
double round_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

using reel::detail::formatted;

// "12345" -> "12,345", also behind a sign and before decimals.
std::string with_commas(std::string digits) {
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  std::size_t at = std::min(digits.find('.'), digits.size());
  while (at > first + 3) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace

std::string tick_label(double value, double step) {
  const double size = std::max(std::fabs(value), step);
  if (std::fabs(value) < step * 1e-6) return "0";
  if (size >= 1e7 || size < 1e-4) {
    // As many digits as tell neighbours apart, without the noise of "1.0e+07".
    const int digits =
        std::max(0, static_cast<int>(std::floor(std::log10(std::fabs(value))) - std::floor(std::log10(step))));
    std::string text = formatted("%.*e", std::min(digits, 12), value);
    const std::size_t e = text.find('e');
    return text.substr(0, e) + "e" + std::to_string(std::stoi(text.substr(e + 1)));
  }
  return with_commas(formatted("%.*f", std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))), value));
}

PlotAxis PlotAxis::linear(double low, double high, int about_ticks, bool widen) {
  PlotAxis axis;
  if (!(std::isfinite(low) && std::isfinite(high) && low <= high)) low = 0, high = 1;
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  const double size = std::max(std::fabs(low), std::fabs(high));
  if (high - low <= 1e-12 * size || size < kSmallest) {  // all values (nearly) the same: some room on both sides
    const double room = size < kSmallest ? 1 : 0.1 * size;
    low -= room;
    high += room;
  }
  const double step = round_step(high / about_ticks - low / about_ticks);
  // Counting ticks rather than adding steps: no drift, and no endless loop where step < epsilon * value.
  const double first = widen ? std::floor(low / step + 1e-9) : std::ceil(low / step - 1e-9);
  const double last = widen ? std::ceil(high / step - 1e-9) : std::floor(high / step + 1e-9);
  axis.low_ = widen ? first * step : low;
  axis.high_ = widen ? last * step : high;
  for (int i = 0; i <= static_cast<int>(last - first); ++i)
    axis.ticks_.push_back({(first + i) * step, tick_label((first + i) * step, step)});
  return axis;
}

PlotAxis PlotAxis::logarithmic(double low, double high, int about_ticks) {
  if (!(std::isfinite(low) && std::isfinite(high) && low > 0 && low <= high)) low = 0.1, high = 1;
  low = std::clamp(low, kSmallest, kLargest);
  high = std::clamp(high, kSmallest, kLargest);
  PlotAxis axis;
  axis.log_ = true;
  // Ends at 1, 2 or 5 times a power of ten, the nearest outside.
  const auto round_below = [](double value) {
    const double power = std::pow(10.0, std::floor(std::log10(value) + 1e-12));
    for (const double factor : {5.0, 2.0})
      if (value >= factor * power * (1 - 1e-12)) return factor * power;
    return power;
  };
  axis.low_ = round_below(low);
  axis.high_ = 1 / round_below(1 / high);
  if (axis.high_ <= axis.low_ * (1 + 1e-9)) axis.high_ = axis.low_ * 2;

  const int first = static_cast<int>(std::floor(std::log10(axis.low_) + 1e-9));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high_) - 1e-9));
  const int every = std::max(1, (last - first + about_ticks - 1) / about_ticks);  // decades between ticks
  const bool fine = (last - first) * 3 <= about_ticks + 3;                        // room for 2 and 5 as well
  for (int decade = first; decade <= last; decade += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, decade);
      if ((factor > 1 && !fine) || value < axis.low_ * (1 - 1e-9) || value > axis.high_ * (1 + 1e-9)) continue;
      axis.ticks_.push_back({value, tick_label(value, std::pow(10.0, decade))});
    }
  }
  return axis;
}

double PlotAxis::place(double value) const {
  if (log_) return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (value - low_) / (high_ - low_);
}

}  // namespace reel::nn
