#include "reel/nn/batches.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/nn/layer.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/views.h"

namespace reel::nn {

namespace {

constexpr std::int64_t kStateSize = 7;
constexpr std::int64_t kMostEpochs = std::int64_t{1} << 62;  // in a file that lies: more could not be counted on

// What of the order of rows stands in a state.
std::int64_t order_of(const BatchOptions& options) { return (options.drop_last ? 1 : 0) + (options.shuffle ? 2 : 0); }

std::uint64_t drawn_seed() {
  Generator generator(reel::detail::take_random(1, f32));
  return static_cast<std::uint64_t>(generator.below(std::int64_t{1} << 62));
}

void check(const Dataset& dataset, const BatchOptions& options, SourceLocation where) {
  if (!dataset.inputs.defined() || !dataset.targets.defined())
    throw Error("batches: inputs and targets must be defined", where);
  if (dataset.inputs.rank() < 1 || dataset.targets.rank() < 1 ||
      dataset.inputs.shape()[0] != dataset.targets.shape()[0])
    throw ShapeError("batches: inputs and targets must have as many rows, got " + dataset.inputs.shape().str() +
                         " and " + dataset.targets.shape().str(),
                     where);
  detail::require_size("batches", "size", options.size, where);
  detail::require(options.epochs >= 0, "batches", "epochs >= 0", std::to_string(options.epochs), where);
}

}  // namespace

std::int64_t Dataset::size(SourceLocation where) const {
  if (!inputs.defined()) throw Error("Dataset: the inputs are undefined", where);
  if (inputs.rank() < 1) throw ShapeError("Dataset: the inputs must have rows, got shape []", where);
  return inputs.shape()[0];
}

Batches::Batches(Dataset dataset, BatchOptions options, SourceLocation where)
    : dataset_(std::move(dataset)), options_(options), where_(where) {
  check(dataset_, options_, where);
  if (options_.shuffle) seed_ = options_.seed ? *options_.seed : drawn_seed();
}

std::int64_t Batches::batches_per_epoch() const {
  const std::int64_t whole = dataset_.size() / options_.size;
  return options_.drop_last || dataset_.size() % options_.size == 0 ? whole : whole + 1;
}

bool Batches::next(Batch& batch) {
  reel::detail::now_running_somewhere("batches");
  reel::detail::now_running("batches", where_);
  batch = {};
  if (epoch_ - first_ >= options_.epochs || batches_per_epoch() == 0) {
    first_ = epoch_;
    return false;
  }
  const std::int64_t begin = step_ * options_.size;
  const std::int64_t count = std::min(options_.size, dataset_.size() - begin);
  untaped([&] {
    if (options_.shuffle) {
      if (ordered_ != epoch_) {
        Generator generator(seed_, static_cast<std::uint64_t>(epoch_));
        order_ = to(permutation(dataset_.size(), generator), dataset_.inputs.device());
        ordered_ = epoch_;
      }
      const Tensor rows = narrow(order_, 0, begin, count);
      batch = {embedding(dataset_.inputs, rows), embedding(dataset_.targets, to(rows, dataset_.targets.device()))};
    } else {
      batch = {narrow(dataset_.inputs, 0, begin, count), narrow(dataset_.targets, 0, begin, count)};
    }
    batch = {to(batch.inputs, options_.device), to(batch.targets, options_.device)};
  });
  if (++step_ == batches_per_epoch()) {
    ++epoch_;
    step_ = 0;
  }
  return true;
}

Tensor Batches::state() const {
  return from_vector<std::int64_t>(
      {static_cast<std::int64_t>(seed_), epoch_, step_, first_, dataset_.size(), options_.size, order_of(options_)});
}

void Batches::check_state(const Tensor& state, SourceLocation where) const {
  if (!state.defined()) throw Error("Batches: the state is undefined", where);
  if (!(state.shape() == Shape{kStateSize}) || state.dtype() != i64)
    throw Error("Batches: a state of 7 i64 is required, got " + state.shape().str(), where);
  const auto values = state.to_vector<std::int64_t>();
  const auto epoch = values[1], step = values[2], first = values[3], rows = values[4], size = values[5];
  if (rows != dataset_.size() || size != options_.size || values[6] != order_of(options_))
    throw Error("Batches: the state of batches of " + std::to_string(options_.size) + " of " +
                    std::to_string(dataset_.size()) + " rows is required, got one of " + std::to_string(size) + " of " +
                    std::to_string(rows) + ", or shuffle or drop_last differs",
                where);
  if (first < 0 || epoch < first || epoch > kMostEpochs || step < 0 ||
      step >= std::max<std::int64_t>(batches_per_epoch(), 1))
    throw Error("Batches: a position within the data is required, got batch " + std::to_string(step) + " of epoch " +
                    std::to_string(epoch) + " in a loop from epoch " + std::to_string(first) + " on",
                where);
}

void Batches::load_state(const Tensor& state, SourceLocation where) {
  check_state(state, where);
  const auto values = state.to_vector<std::int64_t>();
  seed_ = static_cast<std::uint64_t>(values[0]);
  epoch_ = values[1];
  step_ = values[2];
  first_ = values[3];
  ordered_ = -1;
}

Batches batches(Dataset dataset, BatchOptions options, SourceLocation where) {
  return Batches(std::move(dataset), options, where);
}

}  // namespace reel::nn
