#pragma once

#include <cstdint>
#include <iterator>
#include <optional>

#include "reel/core/tensor.h"

namespace reel::nn {

/// Examples and what is to be learnt of them: row i of one belongs to row i of the other.
struct Dataset {
  Tensor inputs;   // [n, ...]
  Tensor targets;  // [n, ...]

  /// n. Throws Error unless the inputs are defined and have rows.
  REEL_API std::int64_t size(SourceLocation where = SourceLocation::current()) const;
};

/// Some rows of a Dataset: auto [images, labels] = batch.
struct Batch {
  Tensor inputs;
  Tensor targets;
};

struct BatchOptions {
  std::int64_t size = 32;  // rows of a batch, at least 1
  bool shuffle = false;    // in a new order in each epoch
  Device device = {};      // where batches are wanted
  bool drop_last = false;  // leave out what does not fill a batch
  std::int64_t epochs = 1;
  std::optional<std::uint64_t> seed = {};  // of the shuffling; not given: drawn from the process's generator
};

/// A data set cut into batches, as a range:
///
///   for (auto [images, labels] : nn::batches(nn::digits::train(), {.size = 64, .shuffle = true})) ...
///
/// Owns its data. A loop goes over `epochs` epochs; one that was left early is continued by the next, also by one in its body,
/// and after its end the next goes over the following epochs, shuffled anew. The order depends on seed and epoch alone, so that a
/// position is enough to go on exactly as if there had been no interruption. For one thread.
class REEL_API Batches {
 public:
  using Options = BatchOptions;

  Batches(Dataset dataset, BatchOptions options, SourceLocation where = SourceLocation::current());

  struct End {};
  class Iterator {
   public:
    explicit Iterator(Batches& batches) : batches_(&batches), first_(batches.first_) { ++*this; }
    const Batch& operator*() const { return batch_; }
    Iterator& operator++() {
      more_ = batches_->first_ == first_ && batches_->next(batch_);  // a loop inside this one may have ended it
      return *this;
    }
    bool operator!=(End) const { return more_; }

   private:
    Batches* batches_;
    std::int64_t first_;
    Batch batch_;
    bool more_ = false;
  };
  Iterator begin() { return Iterator(*this); }
  End end() const { return {}; }

  /// Puts the next batch into `batch`; false at the end of the loop's epochs.
  bool next(Batch& batch);

  const Dataset& dataset() const { return dataset_; }
  /// Batches of one epoch.
  std::int64_t batches_per_epoch() const;
  /// Epochs whose batches have all been given.
  std::int64_t epoch() const { return epoch_; }
  /// Batches given of the epoch after those; 0 in the loop's body says that this batch ended an epoch.
  std::int64_t step() const { return step_; }

  /// The position, with what it depends on; i64. For checkpoints.
  Tensor state() const;
  /// Continues where `state` was taken. Throws Error, and changes nothing, unless data set and options are of the same size
  /// and the position is within.
  void load_state(const Tensor& state, SourceLocation where = SourceLocation::current());
  /// The same checks alone.
  void check_state(const Tensor& state, SourceLocation where = SourceLocation::current()) const;

 private:
  Dataset dataset_;
  BatchOptions options_;
  SourceLocation where_;  // that made it: a loop over it has no line of its own
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = 0, step_ = 0;
  std::int64_t first_ = 0;     // epoch with which the loop began
  Tensor order_;               // i64 [n], beside the inputs; undefined if not shuffled
  std::int64_t ordered_ = -1;  // epoch whose order that is
};

/// Throws ShapeError unless inputs and targets have the same number of rows, Error for options out of range.
REEL_API Batches batches(Dataset dataset, BatchOptions options = {}, SourceLocation where = SourceLocation::current());

}  // namespace reel::nn
