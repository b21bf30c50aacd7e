#include <utility>

#include "reel/core/number_text.h"
#include "reel/nn/flat.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"

namespace reel::nn {

namespace {

const AdagradOptions& checked(const AdagradOptions& options, SourceLocation where) {
  const auto check = [&](const char* what, double got) {
    detail::require(got >= 0, "Adagrad", std::string(what) + " >= 0", reel::detail::number_text(got), where);
  };
  check("lr_decay", options.lr_decay);
  check("eps", options.eps);
  check("weight_decay", options.weight_decay);
  check("initial", options.initial);
  return options;
}

}  // namespace

Adagrad::Adagrad(std::vector<Parameter> parameters, const AdagradOptions& options, SourceLocation where)
    : Optimizer("Adagrad", "Adagrad::step", {"sum"}, std::move(parameters), checked(options, where).lr,
                options.weight_decay, options.max_norm, where),
      rate_decay_(options.lr_decay),
      epsilon_(options.eps),
      initial_(options.initial) {}

void Adagrad::update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
                     const WeightAverage* ema) {
  Ops& ops = backend(w.device);
  ranges_.clear();
  for (const Piece& piece : pieces) {
    if (piece.steps == 0 && initial_ != 0) ops.fill(detail::stretch(part.buffers[0], piece.begin, piece.end), initial_);
    ranges_.push_back({.begin = piece.begin,
                       .end = piece.end,
                       .rate = piece.rate / (1 + static_cast<double>(piece.steps) * rate_decay_),
                       .epsilon = epsilon_,
                       .decay = piece.decay,
                       .gradient_scale = piece.gradient_scale});
  }
  ops.adagrad(ranges_.data(), static_cast<std::int64_t>(ranges_.size()), w, g, part.buffers[0].array(), ema);
}

}  // namespace reel::nn
