#include "reel/nn/plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "reel/core/number_text.h"
#include "reel/nn/file.h"
#include "reel/nn/plot_axis.h"

namespace reel::nn {
namespace {

// Pixels.
constexpr double kCharacter = 6.7;  // mean width of a character of 12 pixels; the viewer's font is not known here
constexpr double kLine = 20;        // from one line of text to the next
constexpr double kMargin = 16;
constexpr double kTickGap = 8;            // between an axis and its labels
constexpr double kSwatch = 26;            // a legend's piece of line, with the space after it
constexpr double kLegendGap = 18;         // between two entries of the legend
constexpr std::size_t kMarkersUpTo = 40;  // points of a series that are few enough to be marked

// Okabe and Ito's colours, which colour-blind readers tell apart (black as grey), and the same lightened for a dark ground.
// More series than colours are dashed.
constexpr const char* kLight[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b7280"};
constexpr const char* kDark[] = {"#4ba3e3", "#ff8a4c", "#2ec99b", "#ec9fc9", "#93d3ff", "#ffc44d", "#b4bac4"};
constexpr std::size_t kColours = std::size(kLight);

// What the plot draws of a value: the extremes of double would overflow in the arithmetic of axes.
bool drawable(double value, bool log) { return std::fabs(value) <= 1e280 && (!log || value >= 1e-280); }

std::string number(double value) { return reel::detail::formatted("%.1f", value); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20) result += ' ';  // XML has no such characters
    else result += c;
  }
  return result;
}

double text_width(const std::string& text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  return kCharacter * static_cast<double>(characters);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

struct Point {
  double x, y;
};

class Plot {
 public:
  Plot(const std::vector<PlotSeries>& series, const PlotOptions& options) : series_(series), options_(options) {
    Range x, y;
    for (const PlotSeries& line : series) {
      for (std::size_t i = 0; i < line.x.size(); ++i) {
        if (!visible(line, i)) continue;
        x.include(line.x[i]);
        y.include(line.y[i]);
      }
    }
    top_ = kMargin + (options.title.empty() ? 0 : kLine + 4) + 10;
    bottom_ = options.height - kMargin - kLine - (options.x_label.empty() ? 0 : kLine);
    place_legend();
    top_ += kLine * legend_rows_;
    right_ = options.width - kMargin - 8;
    const int about = std::max(2, static_cast<int>((bottom_ - top_) / 50));
    y_ = options.log_y ? PlotAxis::logarithmic(y.low, y.high, about) : PlotAxis::linear(y.low, y.high, about, true);
    double labels = 0;
    for (const Tick& tick : y_.ticks()) labels = std::max(labels, text_width(tick.label));
    left_ = kMargin + (options.y_label.empty() ? 0 : kLine) + labels + kTickGap;
    x_ = PlotAxis::linear(x.low, x.high, std::max(2, static_cast<int>((right_ - left_) / 80)), false);
  }

  std::string svg() {
    open();
    text_lines();
    axes();
    for (std::size_t i = 0; i < series_.size(); ++i) line(i);
    return out_ + "</svg>\n";
  }

 private:
  bool visible(const PlotSeries& line, std::size_t i) const {
    return drawable(line.x[i], false) && drawable(line.y[i], options_.log_y);
  }

  Point place(const PlotSeries& line, std::size_t i) const {
    return {left_ + x_.place(line.x[i]) * (right_ - left_), bottom_ - y_.place(line.y[i]) * (bottom_ - top_)};
  }

  // Entries from left to right, in as many rows as they need, and the curves can spare.
  void place_legend() {
    double x = kMargin;
    for (const PlotSeries& line : series_) {
      const double width = kSwatch + text_width(line.name);
      if (x > kMargin && x + width > options_.width - kMargin) x = kMargin, ++legend_rows_;
      legend_.push_back({x, static_cast<double>(legend_rows_)});
      if (line.name.empty()) continue;
      x += width + kLegendGap;
      has_legend_ = true;
    }
    const int most = std::max(0, static_cast<int>((bottom_ - top_) * 0.6 / kLine));
    legend_rows_ = has_legend_ ? std::min(legend_rows_ + 1, most) : 0;
  }

  void open() {
    const std::string size = std::to_string(options_.width) + " " + std::to_string(options_.height);
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" +
           std::to_string(options_.width) + "\" height=\"" + std::to_string(options_.height) +
           "\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" "
           "font-size=\"12\">\n";
    if (!options_.title.empty()) out_ += "<title>" + escaped(options_.title) + "</title>\n";
    // The look on a light ground stands in the elements; this sheet overrides it where the viewer prefers a dark one.
    out_ +=
        "<style>@media (prefers-color-scheme: dark) { .ground { fill: #16191f } .text { fill: #d7dbe2 } "
        ".grid { stroke: #2b3038 } .axis { stroke: #6b7280 }";
    for (std::size_t i = 0; i < std::min(series_.size(), kColours); ++i)
      out_ += " .s" + std::to_string(i) + " { stroke: " + kDark[i] + " } .m" + std::to_string(i) +
              " { fill: " + kDark[i] + " }";
    out_ += " }</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n";
  }

  void text(double x, double y, const char* anchor, const std::string& content, const char* more = "") {
    out_ += "<text class=\"text\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" fill=\"#2b3038\" text-anchor=\"" +
            anchor + "\"" + more + ">" + escaped(content) + "</text>\n";
  }

  void segment(const char* kind, const char* colour, double x1, double y1, double x2, double y2) {
    out_ += std::string("<line class=\"") + kind + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" +
            number(x2) + "\" y2=\"" + number(y2) + "\" stroke=\"" + colour + "\"/>\n";
  }

  void text_lines() {
    double y = kMargin;
    if (!options_.title.empty()) {
      text(kMargin, y + 12, "start", options_.title, " font-size=\"15\" font-weight=\"600\"");
      y += kLine + 4;
    }
    for (std::size_t i = 0; i < series_.size(); ++i) {
      if (series_[i].name.empty() || legend_[i].y >= legend_rows_) continue;
      const double middle = y + kLine * legend_[i].y + 8;
      out_ += "<path d=\"M" + number(legend_[i].x) + " " + number(middle) + "h" + number(kSwatch - 8) + "\"" +
              stroke(i, "2") + "/>\n";
      text(legend_[i].x + kSwatch, middle + 4, "start", series_[i].name);
    }
    if (!options_.x_label.empty())
      text((left_ + right_) / 2, options_.height - kMargin + 2, "middle", options_.x_label);
    if (!options_.y_label.empty()) {
      const double middle = (top_ + bottom_) / 2;
      const std::string turn = " transform=\"rotate(-90 " + number(kMargin + 8) + " " + number(middle) + ")\"";
      text(kMargin + 8, middle, "middle", options_.y_label, turn.c_str());
    }
  }

  void axes() {
    for (const Tick& tick : y_.ticks()) {
      const double y = bottom_ - y_.place(tick.value) * (bottom_ - top_);
      segment("grid", "#e6e8ec", left_, y, right_, y);
      text(left_ - kTickGap, y + 4, "end", tick.label);
    }
    for (const Tick& tick : x_.ticks()) {
      const double x = left_ + x_.place(tick.value) * (right_ - left_);
      segment("axis", "#8b93a1", x, bottom_, x, bottom_ + 4);
      text(x, bottom_ + kTickGap + 12, "middle", tick.label);
    }
    segment("axis", "#8b93a1", left_, bottom_, right_, bottom_);
  }

  std::string stroke(std::size_t i, const char* width) const {
    const std::string colour = std::to_string(i % kColours);
    return " class=\"s" + colour + "\" fill=\"none\" stroke=\"" + kLight[i % kColours] + "\" stroke-width=\"" + width +
           "\" stroke-linejoin=\"round\" stroke-linecap=\"round\"" +
           (i / kColours % 2 == 1 ? " stroke-dasharray=\"6 5\"" : "");
  }

  void line(std::size_t index) {
    const PlotSeries& series = series_[index];
    const std::vector<std::vector<Point>> runs = visible_runs(series);
    std::string path, dots;
    std::size_t points = 0;
    for (const std::vector<Point>& run : runs) points += run.size();
    for (const std::vector<Point>& run : runs) {
      char command = 'M';
      for (const Point& point : run) {
        path += command + number(point.x) + " " + number(point.y);
        command = 'L';
        if (points <= kMarkersUpTo || run.size() == 1)  // a single point would leave no line
          dots += "<circle cx=\"" + number(point.x) + "\" cy=\"" + number(point.y) + "\" r=\"3\"/>";
      }
    }
    if (path.empty()) return;
    // A cloud of single batches stays behind the lines that follow it.
    const bool dense = static_cast<double>(points) > right_ - left_;
    out_ += "<path d=\"" + path + "\"" + stroke(index, dense ? "1\" stroke-opacity=\"0.5" : "2") + "/>\n";
    const std::size_t colour = index % kColours;
    if (!dots.empty())
      out_ += "<g class=\"m" + std::to_string(colour) + "\" fill=\"" + kLight[colour] + "\">" + dots + "</g>\n";
  }

  // Pieces without gaps, but those of a long series that are narrower than a pixel. Of neighbours in one column of pixels the
  // first, the last, the lowest and the highest stay: the line drawn through them covers the same pixels.
  std::vector<std::vector<Point>> visible_runs(const PlotSeries& series) const {
    std::vector<std::vector<Point>> runs;
    const bool dense = static_cast<double>(series.x.size()) > right_ - left_;
    bool open = false;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!visible(series, i)) {
        open = false;
        continue;
      }
      const Point point = place(series, i);
      const bool beside = dense && !runs.empty() && std::floor(runs.back().back().x) == std::floor(point.x);
      if (!open && !beside) runs.emplace_back();
      open = true;
      runs.back().push_back(point);
    }
    for (std::vector<Point>& run : runs) thin(run);
    return runs;
  }

  static void thin(std::vector<Point>& run) {
    const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
    std::size_t kept = 0;
    for (std::size_t begin = 0, end; begin < run.size(); begin = end) {
      for (end = begin + 1; end < run.size() && std::floor(run[end].x) == std::floor(run[begin].x);) ++end;
      const auto first = run.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = run.begin() + static_cast<std::ptrdiff_t>(end) - 1;
      const auto [low, high] = std::minmax_element(first, last + 1, lower);
      const Point stay[] = {*first, *std::min(low, high), *std::max(low, high), *last};
      const std::size_t count = std::min<std::size_t>(end - begin, 4);
      if (count == 4) std::copy(stay, stay + 4, run.begin() + static_cast<std::ptrdiff_t>(kept));
      else std::copy(first, last + 1, run.begin() + static_cast<std::ptrdiff_t>(kept));
      kept += count;
    }
    run.resize(kept);
  }

  const std::vector<PlotSeries>& series_;
  const PlotOptions& options_;
  std::vector<Point> legend_;  // x in pixels, y in rows
  int legend_rows_ = 0;
  bool has_legend_ = false;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;  // of the area between the axes
  PlotAxis x_, y_;
  std::string out_;
};

}  // namespace

std::string plot(const std::vector<PlotSeries>& series, const PlotOptions& options, SourceLocation where) {
  if (options.width < 160 || options.height < 120)
    throw Error("plot: a picture of at least 160 x 120 is required, got " + std::to_string(options.width) + " x " +
                    std::to_string(options.height),
                where);
  for (const PlotSeries& line : series)
    if (line.x.size() != line.y.size())
      throw ShapeError("plot: as many x as y are required in '" + line.name + "', got " +
                           std::to_string(line.x.size()) + " and " + std::to_string(line.y.size()),
                       where);
  return Plot(series, options).svg();
}

void save_plot(const std::string& path, const std::vector<PlotSeries>& series, const PlotOptions& options,
               SourceLocation where) {
  const std::string picture = plot(series, options, where);
  try {
    write_file(path, picture, where);
  } catch (FileError& error) {
    error.prepend("nn::save_plot");
    throw;
  }
}

}  // namespace reel::nn
