#pragma once

#include "reel/core/scalar/philox.h"

/// Random numbers that are drawn until one is accepted, each from blocks of its own. f64.
namespace reel::scalar {

/// The blocks of one element. The last one is accepted whatever it is; the chance of getting there is below 1e-30.
struct RejectionBlocks {
  static constexpr int kCount = 64;
  std::uint64_t seed, stream, counter;

  REEL_SCALAR PhiloxBlock at(int i) const { return philox(seed, stream, counter + static_cast<std::uint64_t>(i)); }
};

/// (0, 1], the middles of 2^53 intervals.
REEL_SCALAR double open_uniform(std::uint32_t high, std::uint32_t low) { return uniform_double(high, low) + 0x1p-54; }

/// From the standard gamma distribution of shape alpha: Marsaglia and Tsang, "A simple method for generating gamma
/// variables" (2000); below 1 a number of shape alpha + 1 times u^(1 / alpha). An attempt takes two blocks: one for a
/// normal number, one for two uniform ones. Shapes 0 and infinity give themselves, below 0 and NaN NaN.
REEL_SCALAR double random_gamma(double alpha, RejectionBlocks blocks) {
  if (!(alpha > 0.0 && alpha < infinity<double>())) return alpha >= 0.0 ? alpha : quiet_nan<double>();
  const bool small = alpha < 1.0;
  const double d = (small ? alpha + 1.0 : alpha) - 1.0 / 3.0;
  const double c = 1.0 / sqrt(9.0 * d);
  for (int i = 0;; i += 2) {
    const double x = normal_pair(blocks.at(i)).first;
    const PhiloxBlock block = blocks.at(i + 1);
    const double root = 1.0 + c * x;
    const double v = root * (root * root);
    const bool accepted = root > 0.0 && log<NoFma>(open_uniform(block.lane[0], block.lane[1])) <
                                            0.5 * x * x + (d - d * v + d * log<NoFma>(v));
    if (!accepted && i + 2 < RejectionBlocks::kCount) continue;
    if (!small) return d * v;
    return d * v * exp(log<NoFma>(open_uniform(block.lane[2], block.lane[3])) / alpha);
  }
}

/// log of the probability of k = 0, 1, ... under Poisson's distribution of this rate; the terms that cancel are taken
/// together, so that it is as good for large rates.
REEL_SCALAR double log_poisson(double k, double rate) {
  if (k < 16.0) {
    double factorial = 1.0;
    for (double j = 2.0; j <= k; j += 1.0) factorial *= j;
    return k * log<NoFma>(rate) - rate - log<NoFma>(factorial);
  }
  const double inverse = 1.0 / k, y = inverse * inverse;
  // Stirling's series for log(k!), from k log(k) - k + log(2 pi k) / 2 on.
  const double tail = inverse * (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0))));
  const double distance = (rate - k) * inverse;
  return k * (log1p(distance) - distance) - 0.5 * log<NoFma>(6.2831853071795865 * k) - tail;
}

/// From Poisson's distribution. Below rate 10 by inversion of one uniform number; else by transformed rejection, PTRS of
/// Hoermann, "The transformed rejection method for generating Poisson random variables" (1993), a block per attempt.
/// Rate infinity gives infinity, below 0 and NaN NaN.
REEL_SCALAR double random_poisson(double rate, RejectionBlocks blocks) {
  if (!(rate >= 0.0 && rate < infinity<double>())) return rate > 0.0 ? rate : quiet_nan<double>();
  PhiloxBlock block = blocks.at(0);
  if (rate < 10.0) {
    const double u = open_uniform(block.lane[0], block.lane[1]);
    double k = 0.0, probability = exp(-rate), sum = probability;
    while (u > sum && probability > 1e-18) {
      k += 1.0;
      probability *= rate / k;
      sum += probability;
    }
    return k;
  }
  const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), at_once = 0.9277 - 3.6224 / (b - 2.0);
  for (int i = 0;;) {
    const double u = open_uniform(block.lane[0], block.lane[1]) - 0.5, v = open_uniform(block.lane[2], block.lane[3]);
    const double edge = 0.5 - abs(u);
    const double k = __builtin_floor((2.0 * a / edge + b) * u + rate + 0.43);
    const bool inside = edge >= 0.07 && v <= at_once;
    const bool outside = k < 0.0 || (edge < 0.013 && v > edge);
    if (inside || (!outside && log<NoFma>(v * inverse_alpha / (a / (edge * edge) + b)) <= log_poisson(k, rate)) ||
        ++i == RejectionBlocks::kCount)
      return k < 0.0 ? 0.0 : k;
    block = blocks.at(i);
  }
}

}  // namespace reel::scalar
