#include "reel/nn/confusion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reel/core/number_text.h"

namespace reel::nn {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : double(part) / double(whole);
}

std::string percent(double value) { return std::isnan(value) ? "-" : reel::detail::formatted("%.1f", 100 * value); }

// Characters on the screen: in UTF-8, bytes that do not continue one.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

using Row = std::vector<std::string>;

// Cells flush right. The columns between the first and the last are of one width.
std::string aligned(const std::vector<Row>& rows) {
  const std::size_t last = rows[0].size() - 1;
  std::size_t first_width = 0, inner_width = 0, last_width = 0;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::size_t& widest = i == 0 ? first_width : i == last ? last_width : inner_width;
      widest = std::max(widest, width(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t column = i == 0 ? first_width : 2 + (i == last ? last_width : inner_width);
      text += std::string(column - width(row[i]), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Confusion::Confusion(int classes, SourceLocation where) : classes_(classes) {
  if (classes < 1) throw Error("Confusion: at least one class is required, got " + std::to_string(classes), where);
  try {
    counts_.resize(static_cast<std::size_t>(classes) * static_cast<std::size_t>(classes));
  } catch (const std::exception&) {  // bad_alloc, or length_error if no vector could be so long
    throw OutOfMemory("Confusion: memory for the counts of " + std::to_string(classes) + " classes is not to be had",
                      where);
  }
}

void Confusion::check(std::int64_t label, const char* what, SourceLocation where) const {
  if (label < 0 || label >= classes_)
    throw IndexError("Confusion: a " + std::string(what) + " class in [0, " + std::to_string(classes_) +
                         ") is required, got " + std::to_string(label),
                     where);
}

void Confusion::add(std::int64_t truth, std::int64_t predicted, SourceLocation where) {
  check(truth, "true", where);
  check(predicted, "predicted", where);
  ++counts_[truth * classes_ + predicted];
}

void Confusion::add(const std::vector<std::int64_t>& truth, const std::vector<std::int64_t>& predicted,
                    SourceLocation where) {
  if (truth.size() != predicted.size())
    throw ShapeError("Confusion: as many predictions as true classes are required, got " +
                         std::to_string(predicted.size()) + " and " + std::to_string(truth.size()),
                     where);
  for (const std::int64_t label : truth) check(label, "true", where);
  for (const std::int64_t label : predicted) check(label, "predicted", where);
  for (std::size_t i = 0; i < truth.size(); ++i) ++counts_[truth[i] * classes_ + predicted[i]];
}

std::int64_t Confusion::count(int truth, int predicted, SourceLocation where) const {
  check(truth, "true", where);
  check(predicted, "predicted", where);
  return counts_[static_cast<std::int64_t>(truth) * classes_ + predicted];
}

std::int64_t Confusion::total() const { return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0}); }

std::int64_t Confusion::right() const {
  std::int64_t right = 0;
  for (int i = 0; i < classes_; ++i) right += count(i, i);
  return right;
}

double Confusion::accuracy() const { return share(right(), total()); }

double Confusion::precision(int label, SourceLocation where) const {
  check(label, "predicted", where);
  std::int64_t predicted = 0;
  for (int truth = 0; truth < classes_; ++truth) predicted += count(truth, label);
  return share(count(label, label), predicted);
}

double Confusion::recall(int label, SourceLocation where) const {
  check(label, "true", where);
  std::int64_t present = 0;
  for (int predicted = 0; predicted < classes_; ++predicted) present += count(label, predicted);
  return share(count(label, label), present);
}

std::string Confusion::str(const std::vector<std::string>& names, SourceLocation where) const {
  if (!names.empty() && static_cast<int>(names.size()) != classes_)
    throw ShapeError("Confusion: a name for each of " + std::to_string(classes_) + " classes is required, got " +
                         std::to_string(names.size()),
                     where);
  const auto name = [&](int label) { return names.empty() ? std::to_string(label) : names[label]; };

  Row header = {"true \\ predicted"}, footer = {"precision %"};
  std::vector<Row> rows;
  for (int truth = 0; truth < classes_; ++truth) {
    header.push_back(name(truth));
    footer.push_back(percent(precision(truth)));
    Row& row = rows.emplace_back(Row{name(truth)});
    for (int predicted = 0; predicted < classes_; ++predicted)
      row.push_back(count(truth, predicted) == 0 ? "." : std::to_string(count(truth, predicted)));
    row.push_back(percent(recall(truth)));
  }
  header.push_back("recall %");
  rows.insert(rows.begin(), std::move(header));
  rows.push_back(std::move(footer));
  return aligned(rows) + "accuracy " + percent(accuracy()) + (total() == 0 ? " (" : " % (") + std::to_string(right()) +
         " of " + std::to_string(total()) + ")\n";
}

}  // namespace reel::nn
