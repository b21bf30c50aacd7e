#pragma once

#include <string>
#include <vector>

// Where the ticks of a plot's axis go. Internal to nn/.
namespace reel::nn {

struct Tick {
  double value;
  std::string label;
};

/// Maps values to [0, 1] and knows the round values in between.
class PlotAxis {
 public:
  /// An axis on which [low, high] lies, a little wider so that it ends on round values if `widen`. Bounds that are not
  /// finite, not ordered or (for a logarithmic axis) not positive give an axis of some default range.
  static PlotAxis linear(double low, double high, int about_ticks, bool widen);
  static PlotAxis logarithmic(double low, double high, int about_ticks);

  /// 0 at the low end, 1 at the high end.
  double place(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool log_ = false;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
};

/// A tick's text: no more decimals than `step` needs, thousands set apart, powers of ten for the very large and small.
std::string tick_label(double value, double step);

}  // namespace reel::nn
