#include "reel/nn/plot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <regex>

#include "reel/nn/plot_axis.h"
#include "reel/tests/expect.h"

namespace reel::nn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> labels(const PlotAxis& axis) {
  std::vector<std::string> result;
  for (const Tick& tick : axis.ticks()) result.push_back(tick.label);
  return result;
}

using Labels = std::vector<std::string>;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Every tag is closed in order, every attribute quoted, and no bare & or NaN is left: a picture that viewers accept.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(count(tag, "\"") % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(count(svg, "&"), count(svg, "&amp;") + count(svg, "&lt;") + count(svg, "&gt;") + count(svg, "&quot;"));
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0);
}

/// The path of the only series without a name.
std::string path_of(const std::string& svg) {
  const std::size_t begin = svg.find("<path d=\"") + 9;
  return svg.substr(begin, svg.find('"', begin) - begin);
}

PlotSeries series(std::vector<double> x, std::vector<double> y) { return {"", std::move(x), std::move(y)}; }

TEST(PlotAxis, LinearTicksAreRound) {
  EXPECT_EQ(labels(PlotAxis::linear(0.003, 1.7, 5, true)), (Labels{"0", "0.5", "1.0", "1.5", "2.0"}));
  EXPECT_EQ(labels(PlotAxis::linear(1, 20, 8, false)), (Labels{"5", "10", "15", "20"}));
  EXPECT_EQ(labels(PlotAxis::linear(-3, 3, 4, true)), (Labels{"-4", "-2", "0", "2", "4"}));
  EXPECT_EQ(labels(PlotAxis::linear(0, 150000, 3, false)), (Labels{"0", "50,000", "100,000", "150,000"}));
  EXPECT_EQ(labels(PlotAxis::linear(0.97, 0.99, 4, true)), (Labels{"0.970", "0.975", "0.980", "0.985", "0.990"}));
  EXPECT_EQ(labels(PlotAxis::linear(0, 3e9, 3, true)), (Labels{"0", "1e9", "2e9", "3e9"}));
  EXPECT_EQ(labels(PlotAxis::linear(0, 3e-6, 3, true)), (Labels{"0", "1e-6", "2e-6", "3e-6"}));
  EXPECT_EQ(labels(PlotAxis::linear(1.00001e9, 1.00003e9, 2, true)), (Labels{"1.00001e9", "1.00002e9", "1.00003e9"}));
}

TEST(PlotAxis, LogarithmicTicksAreDecadesOrFiner) {
  EXPECT_EQ(labels(PlotAxis::logarithmic(0.003, 4, 6)), (Labels{"0.01", "0.1", "1"}));
  EXPECT_EQ(labels(PlotAxis::logarithmic(0.15, 1.7, 6)), (Labels{"0.1", "0.2", "0.5", "1", "2"}));
  for (int decade = -300; decade <= 300; ++decade)
    for (const double factor : {1.0, 2.0, 5.0}) {  // of a constant
      const double value = factor * std::pow(10, decade);
      EXPECT_TRUE(std::isfinite(PlotAxis::logarithmic(value, value, 5).place(value))) << value;
    }
  EXPECT_EQ(labels(PlotAxis::logarithmic(1e-9, 1e9, 6)),
            (Labels{"1e-9", "1e-6", "0.001", "1", "1,000", "1,000,000", "1e9"}));
  const PlotAxis axis = PlotAxis::logarithmic(0.01, 100, 6);
  EXPECT_NEAR(axis.place(0.01), 0, 1e-12);
  EXPECT_NEAR(axis.place(1), 0.5, 1e-12);
  EXPECT_NEAR(axis.place(100), 1, 1e-12);
}

TEST(PlotAxis, AnyBoundsGiveAFewFiniteTicks) {
  const double values[] = {-kInf, -1e290, -1,        -1e-300, -0.0,     0,     5e-324, 1e-290,
                           1e-12, 1,      1 + 1e-15, 1e15,    1e15 + 2, 1e290, kInf,   kNaN};
  for (const double low : values) {
    for (const double high : values) {
      for (const PlotAxis& axis : {PlotAxis::linear(low, high, 5, true), PlotAxis::linear(low, high, 5, false),
                                   PlotAxis::logarithmic(low, high, 5)}) {
        EXPECT_LE(axis.ticks().size(), 20u) << low << " " << high;
        EXPECT_LT(axis.low(), axis.high()) << low << " " << high;
        for (const Tick& tick : axis.ticks()) EXPECT_TRUE(std::isfinite(axis.place(tick.value))) << low << " " << high;
      }
    }
  }
}

TEST(Plot, ShowsTitleLabelsAndNames) {
  const std::string svg = plot({{"a < b", {1, 2, 3}, {3, 2, 1}}, {"\"c\" & d", {1, 3}, {1, 2}}},
                               {.title = "Loss", .x_label = "epoch", .y_label = "cross entropy"});
  expect_well_formed(svg);
  for (const char* text : {">Loss</title>", ">Loss</text>", ">epoch</text>", ">cross entropy</text>",
                           ">a &lt; b</text>", ">&quot;c&quot; &amp; d</text>", "prefers-color-scheme: dark"})
    EXPECT_EQ(count(svg, text), 1) << text;
  EXPECT_EQ(count(svg, "<path "), 4);    // two in the legend, two lines
  EXPECT_EQ(count(svg, "<circle "), 5);  // few points are marked
}

TEST(Plot, NothingToDrawIsStillAPicture) {
  expect_well_formed(plot({}));
  expect_well_formed(plot({series({}, {})}));
  expect_well_formed(plot({series({1, 2}, {kNaN, kInf})}, {.log_y = true}));
  expect_well_formed(plot({series({1e300}, {-1e300}), series({5e-324}, {5e-324})}, {.width = 160, .height = 120}));
}

TEST(Plot, AGapBreaksTheLine) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(count(path_of(plot({series(x, {1, 2, 3, 4, 5, 6})})), "M"), 1);
  EXPECT_EQ(count(path_of(plot({series(x, {1, 2, kNaN, 4, 5, 6})})), "M"), 2);
  EXPECT_EQ(count(path_of(plot({series(x, {1, 2, 0, 4, -5, 6})}, {.log_y = true})), "M"), 3);
  EXPECT_EQ(count(path_of(plot({series(x, {kInf, 2, 3, 4, 5, kInf})})), "L"), 3);
}

TEST(Plot, ALongSeriesWithGapsIsThinnedToo) {
  std::vector<double> x, y;
  for (int i = 0; i < 100'000; ++i) {
    x.push_back(i);
    y.push_back(i % 2 == 0 ? std::sin(i / 1000.0) : kNaN);
  }
  EXPECT_LT(plot({series(x, y)}).size(), 100'000u);
}

TEST(Plot, TheLegendLeavesRoomForTheCurves) {
  std::vector<PlotSeries> many;
  for (int i = 0; i < 150; ++i)
    many.push_back({.name = "series number " + std::to_string(i), .x = {0, 1}, .y = {0, 1}});
  for (const PlotOptions& options :
       {PlotOptions{}, PlotOptions{.title = "T", .x_label = "x", .width = 160, .height = 120}}) {
    const std::string svg = plot(many, options);
    expect_well_formed(svg);
    const std::regex grid("class=\"grid\"[^>]* y1=\"([0-9.]+)\"");
    double before = 1e9;  // from the lowest value up
    for (std::sregex_iterator i(svg.begin(), svg.end(), grid), end; i != end; ++i) {
      const double at = std::stod((*i)[1]);
      EXPECT_LT(at, before);
      EXPECT_LT(at, options.height);
      before = at;
    }
    EXPECT_LT(before, 1e9);
  }
}

TEST(Plot, ALongSeriesIsThinnedButKeepsItsPeaks) {
  const int n = 300000;
  std::vector<double> x(n), y(n);
  for (int i = 0; i < n; ++i) {
    x[i] = i;
    y[i] = std::sin(i * 0.7);
  }
  y[123456] = 100;
  y[222222] = -100;
  const std::string svg = plot({series(x, y)});
  const std::string path = path_of(svg);
  EXPECT_LT(svg.size(), 60000u);
  EXPECT_GT(count(path, "L"), 4 * 600);  // four points for each column of pixels
  EXPECT_EQ(count(svg, "<circle "), 0);

  double highest = kInf, lowest = -kInf;  // pixels count downwards
  for (std::size_t at = path.find(' '); at != std::string::npos; at = path.find(' ', at + 1)) {
    highest = std::min(highest, std::stod(path.substr(at + 1)));
    lowest = std::max(lowest, std::stod(path.substr(at + 1)));
  }
  const std::string small = path_of(plot({series({0, 299999}, {100, -100})}));
  EXPECT_NEAR(highest, std::stod(small.substr(small.find(' ') + 1)), 0.11);
  EXPECT_NEAR(lowest, std::stod(small.substr(small.rfind(' ') + 1)), 0.11);
}

TEST(Plot, ALegendThatDoesNotFitTakesMoreRows) {
  std::vector<PlotSeries> many(20, {"a rather long name", {0, 1}, {0, 1}});
  const std::string svg = plot(many, {.height = 600});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, ">a rather long name</text>"), 20);
  EXPECT_GT(count(svg, "stroke-dasharray"), 0);  // more lines than colours
}

TEST(Plot, BadArgumentsAreRefused) {
  EXPECT_THROW(plot({series({1, 2}, {1})}), ShapeError);
  EXPECT_THROW(plot({}, {.width = 159}), Error);
  EXPECT_THROW(plot({}, {.height = 0}), Error);
  EXPECT_THROW_WITH(save_plot("/nonexistent/x.svg", {}), FileError,
                    "nn::save_plot: '/nonexistent/x.svg': cannot create a file in its folder: No such file",
                    "plot_test.cpp:");
}

TEST(Plot, IsSavedAsItIs) {
  const auto path = std::filesystem::temp_directory_path() / ("reel-plot-" + std::to_string(::getpid()) + ".svg");
  const std::vector<PlotSeries> lines = {series({1, 2, 3}, {3, 1, 2})};
  save_plot(path.string(), lines, {.title = "t"});
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), plot(lines, {.title = "t"}));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace reel::nn
