#include "reel/nn/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "reel/core/number_text.h"

namespace reel::nn {
namespace {

constexpr double kRedraw = 0.1;             // seconds between two rewritings of the line
constexpr double kKeep = 1;                 // at least, between two lines that stay
constexpr double kKeepShare = 1.0 / 20;     // of the time passed, so that lines grow rarer
constexpr double kKeepMost = 60;            // and no rarer than this
constexpr double kKeepWithinEpoch = 10;     // at least, for a line in the middle of an epoch
constexpr const char* kErase = "\r\x1b[K";  // to the start of the line, and clear it

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_capable_terminal(std::FILE* file) {
  const int descriptor = ::fileno(file);
  const char* term = std::getenv("TERM");
  return descriptor >= 0 && ::isatty(descriptor) && term != nullptr && std::strcmp(term, "dumb") != 0;
}

int columns_of(std::FILE* file) {
  winsize size = {};
  return ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The first `columns` characters: UTF-8 continuation bytes take no room and stay with theirs.
std::string cut(const std::string& text, int columns) {
  std::size_t end = 0;
  for (int used = 0; end < text.size(); ++end)
    if ((text[end] & 0xc0) != 0x80 && ++used > columns) break;
  return text.substr(0, end);
}

using reel::detail::formatted;

// "1,234,567"
std::string with_commas(double value) {
  std::string digits = formatted("%.0f", value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

// "4:05" or "1:04:05"
std::string clock_time(double seconds) {
  const auto total = static_cast<long long>(std::ceil(std::min(seconds, 3.6e8)));
  const long long hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? formatted("%lld:%02lld:%02lld", hours, minutes, rest) : formatted("%lld:%02lld", minutes, rest);
}

// "step  7/23": the count as wide as the total, so that the line does not jump.
std::string of_total(const char* what, std::int64_t count, std::int64_t total) {
  if (total <= 0) return std::string(what) + " " + std::to_string(count);
  const std::string all = std::to_string(total);
  return formatted("%s %*lld/%s", what, static_cast<int>(all.size()), static_cast<long long>(count), all.c_str());
}

std::string loss_text(double loss) {
  const double size = std::fabs(loss);
  if (std::isnan(loss)) return "loss nan";  // printf would tell of a sign, which x86 gives to its own
  return formatted(loss == 0 || (size >= 1e-3 && size < 1e4) ? "loss %.4f" : "loss %.3e", loss);
}

}  // namespace

void Progress::Mean::add(std::optional<double> value, std::int64_t count) {
  if (!value) return;
  sum += *value * double(std::max<std::int64_t>(count, 1));
  samples += std::max<std::int64_t>(count, 1);
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), epoch_(options_.epochs_done), step_(options_.steps_done) {
  terminal_ = options_.terminal.value_or(is_capable_terminal(options_.file));
  if (!options_.clock) options_.clock = steady_seconds;
  start_ = options_.clock();
}

void Progress::step(std::int64_t samples, std::optional<double> loss, std::optional<double> accuracy) {
  const double now = elapsed();
  if (!ended_epoch_.empty()) {  // the first step of a new epoch
    ended_epoch_.clear();
    step_ = 0;
    epoch_samples_ = 0;
    loss_ = accuracy_ = {};
  }
  if (step_ == 0 || steps_ == 0) epoch_start_ = now;
  else epoch_samples_ += samples;
  ++step_;
  ++steps_;
  samples_ += samples;
  loss_.add(loss, samples);
  accuracy_.add(accuracy, samples);
  pending_ = true;

  if (terminal_) {
    if (now - drawn_at_ >= kRedraw) draw(text(now, false), now);
  } else if (now - kept_at_ >= std::clamp(now * kKeepShare, kKeepWithinEpoch, kKeepMost)) {
    keep(text(now, false), now);
  }
}

void Progress::end_epoch(const std::string& note) {
  const double now = elapsed();
  if (options_.steps_per_epoch == 0) options_.steps_per_epoch = step_;
  ended_epoch_ = text(now, true) + (note.empty() ? "" : "  " + note);
  ++epoch_;
  pending_ = true;
  const bool last = epoch_ >= options_.epochs;
  if (last || now - kept_at_ >= std::clamp(now * kKeepShare, kKeep, kKeepMost)) keep(ended_epoch_, now);
  else if (terminal_ && now - drawn_at_ >= kRedraw) draw(ended_epoch_, now);
}

void Progress::print(const std::string& text) {
  erase();
  std::fputs((text + "\n").c_str(), options_.file);
  std::fflush(options_.file);
  drawn_at_ = kNever;  // the line comes back at the next step
}

void Progress::finish() {
  if (!pending_) return;
  const double now = elapsed();
  keep(ended_epoch_.empty() ? text(now, false) : ended_epoch_, now);
}

std::string Progress::text(double now, bool epoch_ended) const {
  std::string line = of_total("epoch", epoch_ + 1, options_.epochs);
  if (!epoch_ended) line += "  " + of_total("step", step_, options_.steps_per_epoch);
  if (loss_.samples > 0) line += "  " + loss_text(loss_.sum / double(loss_.samples));
  if (accuracy_.samples > 0) line += formatted("  accuracy %.1f %%", 100 * accuracy_.sum / double(accuracy_.samples));
  return line + speed(now) + time(now);
}

// Of this epoch, from its first step to now: a pause for an evaluation between two epochs does not count.
std::string Progress::speed(double now) const {
  double samples_per_second = 0;
  if (epoch_samples_ > 0 && now > epoch_start_) samples_per_second = double(epoch_samples_) / (now - epoch_start_);
  else if (now > 0) samples_per_second = double(samples_) / now;
  if (samples_per_second <= 0) return "";
  const bool few = samples_per_second < 100;
  return "  " + (few ? formatted("%.1f", samples_per_second) : with_commas(samples_per_second)) + " samples/s";
}

// Of the whole run, evaluations included: they will come again.
std::string Progress::time(double now) const {
  if (options_.steps_per_epoch <= 0 || steps_ == 0) return "";
  const std::int64_t left = (options_.epochs - epoch_) * options_.steps_per_epoch - step_;
  if (left <= 0) return "  in " + clock_time(now);
  return "  " + clock_time(now / double(steps_) * double(left)) + " left";
}

void Progress::draw(const std::string& text, double now) {
  const int columns = options_.columns > 0 ? options_.columns : columns_of(options_.file);
  // The last column stays empty: a character there moves the cursor of some terminals to the next line.
  std::fputs((kErase + cut(text, columns - 1)).c_str(), options_.file);
  std::fflush(options_.file);
  line_open_ = true;
  drawn_at_ = now;
}

void Progress::keep(const std::string& text, double now) {
  print(text);
  pending_ = false;
  kept_at_ = now;
}

void Progress::erase() {
  if (line_open_) std::fputs(kErase, options_.file);
  line_open_ = false;
}

}  // namespace reel::nn
