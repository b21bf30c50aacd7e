#include <utility>

#include "reel/core/number_text.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"

namespace reel::nn {

namespace {

std::vector<const char*> buffers_of(const RMSpropOptions& options) {
  std::vector<const char*> names{"v"};
  if (options.centered) names.push_back("average");
  if (options.momentum != 0) names.push_back("momentum");
  return names;
}

const RMSpropOptions& checked(const RMSpropOptions& options, SourceLocation where) {
  const auto check = [&](bool good, const char* what, double got) {
    detail::require(good, "RMSprop", what, reel::detail::number_text(got), where);
  };
  check(options.alpha >= 0 && options.alpha < 1, "alpha in [0, 1)", options.alpha);
  check(options.eps >= 0, "eps >= 0", options.eps);
  check(options.momentum >= 0, "momentum >= 0", options.momentum);
  check(options.weight_decay >= 0, "weight_decay >= 0", options.weight_decay);
  return options;
}

}  // namespace

RMSprop::RMSprop(std::vector<Parameter> parameters, const RMSpropOptions& options, SourceLocation where)
    : Optimizer("RMSprop", "RMSprop::step", buffers_of(checked(options, where)), std::move(parameters), options.lr,
                options.weight_decay, options.max_norm, where),
      alpha_(options.alpha),
      epsilon_(options.eps),
      momentum_(options.momentum),
      centered_(options.centered) {}

void RMSprop::update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
                     const WeightAverage* ema) {
  ranges_.clear();
  for (const Piece& piece : pieces)
    ranges_.push_back({.begin = piece.begin,
                       .end = piece.end,
                       .rate = piece.rate,
                       .alpha = alpha_,
                       .epsilon = epsilon_,
                       .decay = piece.decay,
                       .momentum = momentum_,
                       .centered = centered_,
                       .gradient_scale = piece.gradient_scale});
  const auto buffer = [&](std::size_t i) { return &part.buffers[i].array(); };
  backend(w.device).rmsprop(ranges_.data(), static_cast<std::int64_t>(ranges_.size()), w, g, *buffer(0),
                            centered_ ? buffer(1) : nullptr, momentum_ != 0 ? buffer(centered_ ? 2 : 1) : nullptr, ema);
}

}  // namespace reel::nn
