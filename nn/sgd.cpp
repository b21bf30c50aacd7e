#include <cmath>
#include <utility>

#include "reel/core/number_text.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"

namespace reel::nn {

namespace {

// Without momentum there is nothing to remember.
std::vector<const char*> buffers_of(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum"};
}

const SgdOptions& checked(const SgdOptions& options, SourceLocation where) {
  const auto number = [](double x) { return reel::detail::number_text(x); };
  detail::require(options.momentum >= 0, "SGD", "momentum >= 0", number(options.momentum), where);
  detail::require(std::isfinite(options.dampening), "SGD", "a finite dampening", number(options.dampening), where);
  detail::require(options.weight_decay >= 0, "SGD", "weight_decay >= 0", number(options.weight_decay), where);
  detail::require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "SGD",
                  "momentum > 0 and dampening 0 for nesterov",
                  number(options.momentum) + " and " + number(options.dampening), where);
  return options;
}

}  // namespace

SGD::SGD(std::vector<Parameter> parameters, SgdOptions options, SourceLocation where)
    : Optimizer("SGD", "SGD::step", buffers_of(checked(options, where)), std::move(parameters), options.lr,
                options.weight_decay, options.max_norm, where),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {}

void SGD::update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
                 const WeightAverage* ema) {
  ranges_.clear();
  for (const Piece& piece : pieces)
    ranges_.push_back({.begin = piece.begin,
                       .end = piece.end,
                       .rate = piece.rate,
                       .decay = piece.decay,
                       .momentum = momentum_,
                       .dampening = dampening_,
                       .nesterov = nesterov_,
                       .first = piece.steps == 0,
                       .gradient_scale = piece.gradient_scale});
  backend(w.device).sgd(ranges_.data(), static_cast<std::int64_t>(ranges_.size()), w, g,
                        part.buffers.empty() ? nullptr : &part.buffers[0].array(), ema);
}

}  // namespace reel::nn
