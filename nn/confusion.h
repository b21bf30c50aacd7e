#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/macros.h"

namespace reel::nn {

/// Counts of (true class, predicted class), from which accuracy, precision and recall follow.
class REEL_API Confusion {
 public:
  /// Throws Error unless classes >= 1, OutOfMemory.
  explicit Confusion(int classes, SourceLocation where = SourceLocation::current());

  /// Throws IndexError, and counts nothing, unless both are in [0, classes).
  void add(std::int64_t truth, std::int64_t predicted, SourceLocation where = SourceLocation::current());
  /// One count per element. Throws ShapeError if the lengths differ; IndexError, and counts nothing, as above.
  void add(const std::vector<std::int64_t>& truth, const std::vector<std::int64_t>& predicted,
           SourceLocation where = SourceLocation::current());

  int classes() const { return classes_; }
  /// How often `truth` was taken for `predicted`. Throws IndexError.
  std::int64_t count(int truth, int predicted, SourceLocation where = SourceLocation::current()) const;
  std::int64_t total() const;
  /// Predictions that were right: the diagonal.
  std::int64_t right() const;

  /// The share of right predictions. This and the two below are NaN where there was nothing to divide by.
  double accuracy() const;
  /// Of what was predicted to be of this class, the share that is. Throws IndexError.
  double precision(int label, SourceLocation where = SourceLocation::current()) const;
  /// Of what is of this class, the share that was predicted to be. Throws IndexError.
  double recall(int label, SourceLocation where = SourceLocation::current()) const;

  /// An aligned table: a row per true class with its recall, a column per predicted class with its precision below, zeros
  /// as dots, and a line with the accuracy. `names`: as many as classes, or none for their numbers; ShapeError otherwise.
  std::string str(const std::vector<std::string>& names = {}, SourceLocation where = SourceLocation::current()) const;

 private:
  void check(std::int64_t label, const char* what, SourceLocation where) const;

  int classes_;
  std::vector<std::int64_t> counts_;  // [classes, classes], true class first
};

}  // namespace reel::nn
