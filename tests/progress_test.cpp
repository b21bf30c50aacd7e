#include "reel/nn/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace reel::nn {
namespace {

/// A file in memory and a clock that stands still until it is moved.
class ProgressLine : public testing::Test {
 protected:
  ~ProgressLine() override {
    std::fclose(file_);
    std::free(buffer_);
  }

  ProgressOptions options(bool terminal, std::int64_t epochs, std::int64_t steps_per_epoch) {
    return {.epochs = epochs,
            .steps_per_epoch = steps_per_epoch,
            .file = file_,
            .terminal = terminal,
            .clock = [this] { return now_; },
            .columns = 100};
  }

  std::string written() {
    std::fflush(file_);
    return {buffer_, size_};
  }

  /// What a terminal shows: each line after its last erasure.
  static std::vector<std::string> screen(const std::string& written) {
    std::vector<std::string> lines = {""};
    const std::string erase = "\r\x1b[K";
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (written.compare(i, erase.size(), erase) == 0) {
        lines.back().clear();
        i += erase.size() - 1;
      } else if (written[i] == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += written[i];
      }
    }
    return lines;
  }

  char* buffer_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_ = ::open_memstream(&buffer_, &size_);
  double now_ = 1000;
};

TEST_F(ProgressLine, TellsEpochStepMeansSpeedAndTimeLeft) {
  Progress progress(options(true, 10, 23));
  now_ += 1;
  progress.step(100, 0.5, 0.80);
  now_ += 1;
  progress.step(300, 0.1, 0.96);
  // Means by samples: (50 + 30) / 400 and (80 + 288) / 400. Since the first step 300 samples in a second. Two steps took
  // two seconds, 228 are left.
  EXPECT_EQ(screen(written()).back(),
            "epoch  1/10  step  2/23  loss 0.2000  accuracy 92.0 %  300 samples/s  3:48 left");
}

TEST_F(ProgressLine, RewritesTheLineTenTimesASecondAtMost) {
  Progress progress(options(true, 1, 100000));
  for (int i = 0; i < 20000; ++i) {
    now_ += 0.0001;
    progress.step(1);
  }
  const std::string text = written();
  const auto rewritten = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(rewritten, 15);
  EXPECT_LE(rewritten, 21);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
}

TEST_F(ProgressLine, PlainLinesHoldNoControlCharacters) {
  {
    Progress progress(options(false, 3, 2));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 2; ++i) {
        now_ += 2;
        progress.step(64, 1.0 / (epoch + 1));
      }
      progress.end_epoch("test " + std::to_string(epoch));
    }
  }
  EXPECT_EQ(written(),
            "epoch 1/3  loss 1.0000  32.0 samples/s  0:08 left  test 0\n"
            "epoch 2/3  loss 0.5000  32.0 samples/s  0:04 left  test 1\n"
            "epoch 3/3  loss 0.3333  32.0 samples/s  in 0:12  test 2\n");
}

TEST_F(ProgressLine, ManyShortEpochsDoNotFlood) {
  for (const bool terminal : {false, true}) {
    const auto before = written().size();
    Progress progress(options(terminal, 100000, 1));
    for (int epoch = 0; epoch < 100000; ++epoch) {  // 1562.5 seconds
      now_ += 1.0 / 64;
      progress.step(1);
      progress.end_epoch();
    }
    progress.finish();
    const std::string text = written().substr(before);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_GE(lines, 50);
    EXPECT_LE(lines, 120);
    EXPECT_EQ(screen(text).at(static_cast<std::size_t>(lines) - 1), "epoch 100000/100000  64.0 samples/s  in 26:03");
  }
}

TEST_F(ProgressLine, ALongEpochGivesPlainSignsOfLife) {
  Progress progress(options(false, 1, 1000));
  for (int i = 0; i < 1000; ++i) {
    now_ += 0.5;
    progress.step(1);
  }
  const std::string text = written();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 15);
  EXPECT_LE(lines, 50);
  EXPECT_EQ(text.substr(0, text.find('\n')), "epoch 1/1  step   20/1000  2.0 samples/s  8:10 left");
}

TEST_F(ProgressLine, TheLastStateStaysWhenTrainingEndsEarly) {
  for (const bool terminal : {false, true}) {
    try {
      Progress progress(options(terminal, 5, 10));
      now_ += 0.01;
      progress.step(8, 0.25);
      now_ += 0.01;
      progress.step(8, 0.75);
      throw std::runtime_error("out of data");
    } catch (const std::runtime_error&) {
    }
    const auto lines = screen(written());
    EXPECT_EQ(lines.back(), "");
    EXPECT_EQ(lines[lines.size() - 2], "epoch 1/5  step  2/10  loss 0.5000  800 samples/s  0:01 left");
  }
}

TEST_F(ProgressLine, FinishingTwiceOrWithoutAStepWritesNothing) {
  {
    Progress progress(options(true, 1, 1));
    progress.finish();
    EXPECT_EQ(written(), "");
    now_ += 1;
    progress.step(1);
    progress.end_epoch();
    const std::string text = written();
    progress.finish();
    progress.finish();
    EXPECT_EQ(written(), text);
  }
  EXPECT_EQ(screen(written()), (std::vector<std::string>{"epoch 1/1  1.0 samples/s  in 0:01", ""}));
}

TEST_F(ProgressLine, PrintingGoesAboveTheLine) {
  Progress progress(options(true, 1, 10));
  now_ += 1;
  progress.step(1);
  progress.print("saved");
  now_ += 0.01;
  progress.step(1);
  const auto lines = screen(written());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "saved");
  EXPECT_EQ(lines[1].substr(0, 22), "epoch 1/1  step  2/10 ");
}

TEST_F(ProgressLine, ALineIsCutToTheTerminal) {
  ProgressOptions narrow = options(true, 1, 10);
  narrow.columns = 20;
  Progress progress(narrow);
  now_ += 1;
  progress.step(1);
  EXPECT_EQ(screen(written()).back(), "epoch 1/1  step  1/");
  progress.print("");
  now_ += 1;
  progress.end_epoch("never kept short");
  EXPECT_NE(written().find("never kept short\n"), std::string::npos);
}

TEST_F(ProgressLine, AnUnknownNumberOfStepsIsLearntFromTheFirstEpoch) {
  Progress progress(options(true, 2, 0));
  now_ += 1;
  progress.step(1);
  EXPECT_EQ(screen(written()).back(), "epoch 1/2  step 1  1.0 samples/s");
  now_ += 1;
  progress.step(1);
  progress.end_epoch();
  now_ += 1;
  progress.step(1);
  EXPECT_EQ(screen(written()).back(), "epoch 2/2  step 1/2  1.0 samples/s  0:01 left");
}

TEST_F(ProgressLine, AResumedRunCountsOn) {
  ProgressOptions resumed = options(true, 4, 10);
  resumed.epochs_done = 2;
  resumed.steps_done = 6;
  Progress progress(resumed);
  now_ += 2;
  progress.step(10);
  // 7 of this epoch, 13 are left at two seconds each.
  EXPECT_EQ(screen(written()).back(), "epoch 3/4  step  7/10  5.0 samples/s  0:26 left");
}

TEST_F(ProgressLine, ExtremesAreShownAsTheyAre) {
  const auto shown = [&](double loss) {
    Progress progress(options(true, 1, 2));
    now_ += 3600;
    progress.step(0, loss);
    return screen(written()).back();
  };
  EXPECT_EQ(shown(std::numeric_limits<double>::quiet_NaN()), "epoch 1/1  step 1/2  loss nan  1:00:00 left");
  EXPECT_EQ(shown(-std::numeric_limits<double>::quiet_NaN()), "epoch 1/1  step 1/2  loss nan  1:00:00 left");
  EXPECT_EQ(shown(-std::numeric_limits<double>::infinity()), "epoch 1/1  step 1/2  loss -inf  1:00:00 left");
  EXPECT_EQ(shown(1.5e-7), "epoch 1/1  step 1/2  loss 1.500e-07  1:00:00 left");
  EXPECT_EQ(shown(0), "epoch 1/1  step 1/2  loss 0.0000  1:00:00 left");
}

TEST_F(ProgressLine, AFileIsNoTerminal) {
  ProgressOptions plain = options(true, 1, 1);
  plain.terminal.reset();
  Progress progress(plain);
  now_ += 1;
  progress.step(1);
  progress.end_epoch();
  EXPECT_EQ(written(), "epoch 1/1  1.0 samples/s  in 0:01\n");
}

}  // namespace
}  // namespace reel::nn
