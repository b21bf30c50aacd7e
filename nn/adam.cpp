#include <cmath>
#include <utility>

#include "reel/core/number_text.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"

namespace reel::nn {

namespace detail {

namespace {

const AdamOptions& checked(const char* kind, const AdamOptions& options, SourceLocation where) {
  const auto check = [&](bool good, const char* what, double got) {
    require(good, kind, what, reel::detail::number_text(got), where);
  };
  check(options.beta1 >= 0 && options.beta1 < 1, "beta1 in [0, 1)", options.beta1);
  check(options.beta2 >= 0 && options.beta2 < 1, "beta2 in [0, 1)", options.beta2);
  check(options.eps >= 0, "eps >= 0", options.eps);
  check(options.weight_decay >= 0, "weight_decay >= 0", options.weight_decay);
  return options;
}

void rectify(AdamRange& range, double t) {
  const double power = std::pow(range.beta2, t), rho = 2 / (1 - range.beta2) - 1;
  const double rho_t = rho - 2 * t * power / (1 - power);
  range.rectified = rho_t > 5;
  if (!range.rectified) return;
  range.step_size *= std::sqrt((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t));
  range.epsilon /= range.root_correction2;
}

}  // namespace

AdamBase::AdamBase(const char* kind, const char* call, std::vector<Parameter> parameters, const AdamOptions& options,
                   bool decoupled, bool rectified, SourceLocation where)
    : Optimizer(kind, call, {"m", "v"}, std::move(parameters), checked(kind, options, where).lr, options.weight_decay,
                options.max_norm, where),
      beta1_(options.beta1),
      beta2_(options.beta2),
      epsilon_(options.eps),
      decoupled_(decoupled),
      rectified_(rectified) {}

void AdamBase::update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
                      const WeightAverage* ema) {
  ranges_.clear();
  for (const Piece& piece : pieces) {
    const double t = static_cast<double>(piece.steps + 1);
    AdamRange range{.begin = piece.begin,
                    .end = piece.end,
                    .rate = piece.rate,
                    .step_size = piece.rate / (1 - std::pow(beta1_, t)),
                    .root_correction2 = std::sqrt(1 - std::pow(beta2_, t)),
                    .beta1 = beta1_,
                    .beta2 = beta2_,
                    .epsilon = epsilon_,
                    .decay = piece.decay,
                    .decoupled = decoupled_,
                    .gradient_scale = piece.gradient_scale};
    if (rectified_) rectify(range, t);
    ranges_.push_back(range);
  }
  backend(w.device).adam(ranges_.data(), static_cast<std::int64_t>(ranges_.size()), w, g, part.buffers[0].array(),
                         part.buffers[1].array(), ema);
}

}  // namespace detail

Adam::Adam(std::vector<Parameter> parameters, const AdamOptions& options, SourceLocation where)
    : AdamBase("Adam", "Adam::step", std::move(parameters), options, false, false, where) {}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options, SourceLocation where)
    : AdamBase("AdamW", "AdamW::step", std::move(parameters),
               {.lr = options.lr,
                .beta1 = options.beta1,
                .beta2 = options.beta2,
                .eps = options.eps,
                .weight_decay = options.weight_decay,
                .max_norm = options.max_norm},
               true, false, where) {}

RAdam::RAdam(std::vector<Parameter> parameters, const RAdamOptions& options, SourceLocation where)
    : AdamBase("RAdam", "RAdam::step", std::move(parameters),
               {.lr = options.lr,
                .beta1 = options.beta1,
                .beta2 = options.beta2,
                .eps = options.eps,
                .weight_decay = options.weight_decay,
                .max_norm = options.max_norm},
               options.decoupled, true, where) {}

}  // namespace reel::nn
