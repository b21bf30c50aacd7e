#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "reel/core/macros.h"

namespace reel::nn {

struct ProgressOptions {
  std::int64_t epochs = 1;
  std::int64_t steps_per_epoch = 0;    // 0: not known before the first epoch has ended
  std::int64_t epochs_done = 0;        // by an earlier run that this one resumes
  std::int64_t steps_done = 0;         // of the epoch that was under way then
  std::FILE* file = stderr;            // stderr, because speeds and times differ from run to run and results must not
  std::optional<bool> terminal = {};   // whether to rewrite one line; not given: whether `file` is a terminal that can
  std::function<double()> clock = {};  // seconds; not given: a steady clock
  int columns = 0;                     // of the terminal; 0: asked for, and 80 if that gives nothing
};

/// Shows how training goes:
///
///   epoch  3/10  step  12/23  loss 0.3121  accuracy 91.2 %  23,100 samples/s  0:04 left
///
/// On a terminal one line is rewritten, at most ten times a second. Elsewhere (a file, a pipe, TERM=dumb) plain lines are
/// printed: at the ends of epochs, and within long ones now and then. Either way a line that stays comes at most once a
/// second and, as time goes on, at most once a minute, but the last epoch's always does. The destructor leaves the cursor
/// at the start of a line, also when an exception passes.
///
/// Loss and accuracy are means over the epoch so far, each step weighing as much as it has samples. Errors of writing are
/// ignored: training goes on. For one thread.
class REEL_API Progress {
 public:
  using Options = ProgressOptions;

  explicit Progress(ProgressOptions options = {});
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A step has been made with so many samples. Loss and accuracy (0 to 1) where they are known: on a GPU, asking for
  /// them at every step would mean waiting for every step.
  void step(std::int64_t samples, std::optional<double> loss = {}, std::optional<double> accuracy = {});

  /// An epoch has ended. `note` is put at the end of its line, such as "test 98.6 %".
  void end_epoch(const std::string& note = "");

  /// A line of text above the progress line.
  void print(const std::string& text);

  /// No more steps: ends the line. Calling it again does nothing.
  void finish();

 private:
  static constexpr double kNever = -1e9;  // a time long before the start

  /// A mean over samples of what was known of them.
  struct Mean {
    double sum = 0;
    std::int64_t samples = 0;

    void add(std::optional<double> value, std::int64_t count);
  };

  double elapsed() const { return options_.clock() - start_; }
  std::string text(double now, bool epoch_ended) const;
  std::string speed(double now) const;
  std::string time(double now) const;
  void draw(const std::string& text, double now);
  void keep(const std::string& text, double now);
  void erase();

  ProgressOptions options_;
  bool terminal_;
  double start_;                    // what the clock said at first; all other times count from it
  double drawn_at_ = kNever;        // when the line was last rewritten
  double kept_at_ = 0;              // when a line was last left standing
  double epoch_start_ = 0;          // when the epoch's first step had been made
  bool line_open_ = false;          // the cursor is at the end of a rewritten line
  bool pending_ = false;            // something has happened that no line left standing tells
  std::string ended_epoch_;         // the line of an epoch that has ended, until the next begins
  std::int64_t epoch_;              // epochs that have ended, earlier runs' included
  std::int64_t step_;               // steps of this epoch
  std::int64_t steps_ = 0;          // steps of this run
  std::int64_t samples_ = 0;        // of this run
  std::int64_t epoch_samples_ = 0;  // of this epoch, after its first step
  Mean loss_, accuracy_;
};

}  // namespace reel::nn
