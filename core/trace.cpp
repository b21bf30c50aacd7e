#include "reel/core/trace.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <ostream>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/number_text.h"
#include "reel/core/running.h"
#include "reel/core/trace_log.h"

namespace reel {

namespace detail {

using Clock = std::chrono::steady_clock;

struct TraceLog {
  TraceLog* outer = nullptr;
  Clock::time_point origin = Clock::now();
  std::vector<TraceEvent> events;
  double begun = -1;               // when the op under way began; < 0: none
  std::vector<TraceEvent> within;  // callbacks under way, the innermost last

  double now() const { return std::chrono::duration<double, std::micro>(Clock::now() - origin).count(); }
  void add(TraceEvent event) {
    if (!within.empty()) within.back().inside += event.duration;
    events.push_back(std::move(event));
    begun = -1;
  }
};

namespace {

thread_local constinit TraceLog* log = nullptr;

// A tensor's maker.
struct Site {
  const TraceLog* log;
  std::string op;
  SourceLocation where;
  std::int64_t bytes;
};
struct Sites {
  std::mutex mutex;
  std::map<const TensorState*, Site> all;
};
Sites& sites() {
  static Sites* const instance = new Sites;  // never destroyed: tensors may outlive static objects
  return *instance;
}

// Parts of what the user called have its line.
SourceLocation line_or_running(SourceLocation where) {
  if (where.known()) return where;
  return running.where.known() ? running.where : running.forward;
}

void add_tensors(TraceEvent& event, const Tensor* const* tensors, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!tensors[i]->defined()) continue;
    event.shapes += (event.shapes.empty() ? "" : " ") + tensors[i]->shape().str();
    event.bytes += tensors[i]->size() * static_cast<std::int64_t>(size_of(tensors[i]->dtype()));
  }
}

}  // namespace

void trace_start() {
  if (log->begun < 0) log->begun = log->now();
}

void trace_settle() { log->begun = -1; }

void trace_op(const char* op, SourceLocation where, const Tensor* const* inputs, std::size_t input_count,
              const Tensor* const* outputs, std::size_t output_count) {
  bool views = log->begun < 0;
  for (std::size_t i = 0; i < output_count; ++i) views = views && outputs[i]->state()->owner != nullptr;
  if (views) return;  // nothing ran
  const char* const caller = where.known() || running.op == nullptr ? op : running.op;
  where = line_or_running(where);
  const double end = log->now();
  TraceEvent event{.op = op, .where = where, .start = log->begun < 0 ? end : log->begun};
  event.duration = end - event.start;
  add_tensors(event, inputs, input_count);
  event.shapes += event.shapes.empty() ? "->" : " ->";
  add_tensors(event, outputs, output_count);
  log->add(std::move(event));

  const std::lock_guard lock(sites().mutex);
  for (std::size_t i = 0; i < output_count; ++i) {
    const auto site = outputs[i]->defined() ? sites().all.find(outputs[i]->state()) : sites().all.end();
    if (site == sites().all.end()) continue;
    site->second.op = caller;
    site->second.where = where;
  }
}

void trace_created(TensorState* state, SourceLocation where) {
  state->traced = true;
  const std::int64_t bytes = state->array.size * static_cast<std::int64_t>(size_of(state->array.dtype));
  const std::lock_guard lock(sites().mutex);
  sites().all[state] = {log, running.op != nullptr ? running.op : "memory", line_or_running(where), bytes};
}

void trace_destroyed(TensorState* state) noexcept {
  const std::lock_guard lock(sites().mutex);
  sites().all.erase(state);
}

void BackwardTrace::begin(const Node& node, const Gradients& gradients) {
  TraceEvent event{.op = node.op, .backward = true, .where = node.where, .start = log->now()};
  for (int i = 0; i < node.output_count; ++i) {
    const Tensor* dy = &gradients.dy(i);
    add_tensors(event, &dy, 1);
  }
  event.shapes += " ->";
  for (int i = 0; i < node.edge_count; ++i)
    if (gradients.needs(i)) {
      const Shape shape = gradients.shape(i);
      event.shapes += " " + shape.str();
      event.bytes += shape.size() * static_cast<std::int64_t>(size_of(gradients.dtype(i)));
    }
  log->begun = -1;
  log->within.push_back(std::move(event));
  began_ = true;
}

void BackwardTrace::end() {
  if (log == nullptr || log->within.empty()) return;  // the Trace began and ended inside the callback
  TraceEvent event = std::move(log->within.back());
  log->within.pop_back();
  event.duration = log->now() - event.start;
  log->add(std::move(event));
}

}  // namespace detail

namespace {

std::string named(const TraceEvent& event) { return event.op + (event.backward ? " backward" : ""); }

std::string line_of(SourceLocation where) {
  const std::string file = where.file;
  return file.empty() ? "" : file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

using detail::formatted;

std::string bytes_text(std::int64_t bytes) {
  const auto count = static_cast<double>(bytes);
  return bytes < 10'000       ? formatted("%.0f B", count)
         : bytes < 10'000'000 ? formatted("%.1f kB", count * 1e-3)
                              : formatted("%.1f MB", count * 1e-6);
}

// A part of a row.
std::string cell(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text + '\t';
}

// What a row of a table sums up; rows are found by their text, whose parts end with tabs.
struct Sum {
  double weight = 0;  // the rows with most come first
  std::int64_t count = 0, bytes = 0;
};
using Sums = std::map<std::string, Sum>;

// `numbers` gives a row its leading columns, each ending with a tab; the first `right` columns are aligned to the right. At
// most `most` rows.
std::string table_of(const Sums& sums, std::string head, int right, int most,
                     std::string (*numbers)(const Sum&, double)) {
  std::vector<const Sums::value_type*> order;
  double total = 0;
  for (const Sums::value_type& entry : sums) {
    order.push_back(&entry);
    total += entry.second.weight;
  }
  const std::size_t count = std::min(order.size(), static_cast<std::size_t>(std::max(most, 0)));
  for (std::size_t i = 0; i < count; ++i)  // few rows are shown: the heaviest of the rest is looked for each time
    for (std::size_t j = i + 1; j < order.size(); ++j)
      if (order[j]->second.weight > order[i]->second.weight) std::swap(order[i], order[j]);
  std::vector<std::string> rows{std::move(head)};
  for (std::size_t i = 0; i < count; ++i) rows.push_back(numbers(order[i]->second, total) + order[i]->first);

  // Column by column: cells up to the tab, then blanks.
  std::vector<std::string> lines(rows.size());
  for (int column = 0; !rows[0].empty(); ++column) {
    std::size_t width = 0;
    for (const std::string& row : rows) width = std::max(width, row.find('\t'));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::size_t length = rows[r].find('\t');
      const std::string blanks(width - length, ' '), text = rows[r].substr(0, length);
      lines[r] += (column < right ? blanks + text : text + blanks) + "  ";
      rows[r].erase(0, length + 1);
    }
  }
  std::string text;
  for (std::string& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  if (const std::size_t more = order.size() - count; more > 0)
    text += "and " + std::to_string(more) + (more == 1 ? " more row\n" : " more rows\n");
  return text;
}

std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    char escaped[8];
    if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      quoted += escaped;
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

Trace::Trace() : log_(std::make_unique<detail::TraceLog>()) {
  log_->outer = std::exchange(detail::log, log_.get());
  detail::thread_tape.traced = true;
}

Trace::~Trace() {
  detail::log = log_->outer;
  detail::thread_tape.traced = detail::log != nullptr;
  const std::lock_guard lock(detail::sites().mutex);
  std::erase_if(detail::sites().all, [this](const auto& entry) { return entry.second.log == log_.get(); });
}

const std::vector<TraceEvent>& Trace::events() const { return log_->events; }

std::string Trace::table(int rows) const {
  Sums sums;
  for (const TraceEvent& event : events()) {
    Sum& sum = sums[cell(named(event)) + cell(event.shapes) + cell(line_of(event.where))];
    sum.weight += event.duration - event.inside;
    sum.bytes += event.bytes;
    ++sum.count;
  }
  return table_of(sums, "ms\tshare\tcalls\tbytes\top\tshapes\tline\t", 4, rows, [](const Sum& sum, double total) {
    return formatted("%.3f\t", sum.weight * 1e-3) + formatted("%.1f %%\t", total > 0 ? 100 * sum.weight / total : 0) +
           std::to_string(sum.count) + '\t' + bytes_text(sum.bytes) + '\t';
  });
}

std::string Trace::live_tensors(int rows) const {
  Sums sums;
  {
    const std::lock_guard lock(detail::sites().mutex);
    for (const auto& [state, site] : detail::sites().all) {
      if (site.log != log_.get()) continue;
      Sum& sum = sums[cell(site.op) + cell(line_of(site.where))];
      sum.weight += static_cast<double>(site.bytes);
      sum.bytes += site.bytes;
      ++sum.count;
    }
  }
  return table_of(sums, "bytes\ttensors\top\tline\t", 2, rows, [](const Sum& sum, double) {
    return bytes_text(sum.bytes) + '\t' + std::to_string(sum.count) + '\t';
  });
}

void Trace::write_chrome(const std::string& path, SourceLocation where) const {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const char* separator = "\n";
  for (const TraceEvent& event : events()) {
    text += separator + ("{\"name\": " + json_text(named(event))) +
            ", \"cat\": " + (event.backward ? "\"backward\"" : "\"forward\"") +
            formatted(", \"ph\": \"X\", \"ts\": %.3f", event.start) + formatted(", \"dur\": %.3f", event.duration) +
            ", \"pid\": 1, \"tid\": 1, \"args\": {\"shapes\": " + json_text(event.shapes) +
            ", \"bytes\": " + std::to_string(event.bytes) +
            ", \"line\": " + json_text(std::string(event.where.file) + ":" + std::to_string(event.where.line)) + "}}";
    separator = ",\n";
  }
  text += "\n]}\n";
  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed)
    throw FileError("Trace::write_chrome: '" + path + "': cannot be written: " + std::strerror(errno), where);
}

std::ostream& operator<<(std::ostream& out, const Trace& trace) { return out << trace.table(); }

}  // namespace reel
