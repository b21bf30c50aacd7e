#pragma once

#include <string>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/macros.h"

namespace reel::nn {

/// One line of a plot. Where y is not finite (or not above 0 on a logarithmic axis) the line has a gap.
struct PlotSeries {
  std::string name;  // for the legend; none if empty
  std::vector<double> x;
  std::vector<double> y;
};

struct PlotOptions {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool log_y = false;
  int width = 760;  // in pixels at scale 1; the picture scales without loss
  int height = 440;
};

/// A learning curve, or any lines, as an SVG picture: axes with round ticks, a legend above the lines (of as many names as leave them
/// room), colours that differ also for colour-blind readers, a light and a dark look that follow the viewer's. Long series are
/// thinned to what the picture can show, without losing a peak. Equal arguments give equal text.
/// Throws ShapeError if a series' x and y differ in length, Error if the picture is smaller than 160 x 120.
REEL_API std::string plot(const std::vector<PlotSeries>& series, const PlotOptions& options = {},
                          SourceLocation where = SourceLocation::current());

/// Writes plot(series, options) whole or not at all. Throws FileError as AtomicFile does.
REEL_API void save_plot(const std::string& path, const std::vector<PlotSeries>& series, const PlotOptions& options = {},
                        SourceLocation where = SourceLocation::current());

}  // namespace reel::nn
