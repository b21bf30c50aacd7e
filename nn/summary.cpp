#include "reel/nn/summary.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "reel/nn/module_state.h"

namespace reel::nn {

namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kTextColumns = 3;  // flush left; the others are numbers

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blank(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (i < kTextColumns ? row[i] + blank : blank + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Counts each parameter once.
class Table {
 public:
  void add(const std::string& path, const detail::ModuleState& module) {
    std::string shapes;
    std::int64_t count = 0, bytes = 0;
    for (const detail::Entry& entry : module.entries) {
      const Parameter& parameter = entry.parameter;
      if (!parameter.defined()) continue;
      const bool first = seen_.insert(parameter.state().get()).second;
      shapes += (shapes.empty() ? "" : ", ") + entry.name + " " + parameter.shape().str();
      if (!first) shapes += " (shared)";
      if (!parameter.trainable()) shapes += " (frozen)";
      if (!first) continue;
      count += parameter.size();
      bytes += parameter.size() * static_cast<std::int64_t>(size_of(parameter.dtype()));
      if (parameter.trainable()) trainable_ += parameter.size();
    }
    rows_.push_back({path, module.kind, shapes, with_commas(count), with_commas(bytes)});
    count_ += count;
    bytes_ += bytes;
  }

  std::string str() {
    rows_.push_back({"total", "", "", with_commas(count_), with_commas(bytes_)});
    std::string text = aligned(rows_);
    if (trainable_ != count_) text += "trainable: " + with_commas(trainable_) + "\n";
    return text;
  }

 private:
  std::vector<Row> rows_{{"module", "kind", "parameters", "count", "bytes"}};
  std::set<const void*> seen_;
  std::int64_t count_ = 0, bytes_ = 0, trainable_ = 0;
};

}  // namespace

std::string summary(const Module& module) {
  Table table;
  const auto has_parameters = [](const detail::ModuleState& state) {
    return std::any_of(state.entries.begin(), state.entries.end(),
                       [](const detail::Entry& entry) { return entry.parameter.defined(); });
  };
  if (has_parameters(*module.state())) table.add("", *module.state());
  detail::for_each_entry(*module.state(), [&](const std::string& path, const detail::Entry& entry) {
    if (entry.child != nullptr) table.add(path, *entry.child);
  });
  return table.str();
}

}  // namespace reel::nn
