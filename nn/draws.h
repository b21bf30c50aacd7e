#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace reel::nn {

/// Draws of several Markov chains of one length, and what they say: Gelman et al., "Bayesian Data Analysis", 3rd edition,
/// sections 11.4 and 11.5; chains are split in halves, so that a drift within one shows.
class Draws {
 public:
  Draws(int chains, int count, std::size_t size)
      : chains_(chains),
        count_(count),
        size_(size),
        values_(static_cast<std::size_t>(chains) * static_cast<std::size_t>(count) * size) {}

  int chains() const { return chains_; }
  /// Draws per chain.
  int count() const { return count_; }
  /// Numbers per draw.
  std::size_t size() const { return size_; }
  double& at(int chain, int draw, std::size_t i) { return values_[index(chain, draw, i)]; }
  double at(int chain, int draw, std::size_t i) const { return values_[index(chain, draw, i)]; }

  /// Number i of each draw of a chain.
  std::vector<double> chain(int chain, std::size_t i) const {
    std::vector<double> result;
    for (int draw = 0; draw < count_; ++draw) result.push_back(at(chain, draw, i));
    return result;
  }
  /// The same draws seen through a function of them: f(draw, result) fills `size` numbers from a draw's.
  template <class F>
  Draws transformed(std::size_t size, F&& f) const {
    Draws result(chains_, count_, size);
    for (int i = 0; i < chains_ * count_; ++i) f(&values_[i * size_], &result.values_[i * size]);
    result.divergences = divergences;
    result.leapfrog_steps = leapfrog_steps;
    result.step_sizes = step_sizes;
    return result;
  }

  double mean(std::size_t i) const {
    double sum = 0;
    for (int chain = 0; chain < chains_; ++chain)
      for (int draw = 0; draw < count_; ++draw) sum += at(chain, draw, i);
    return sum / (double(chains_) * count_);
  }
  /// The standard deviation of the draws; NaN for one alone.
  double deviation(std::size_t i) const {
    const double middle = mean(i);
    double squares = 0;
    for (int chain = 0; chain < chains_; ++chain)
      for (int draw = 0; draw < count_; ++draw)
        squares += (at(chain, draw, i) - middle) * (at(chain, draw, i) - middle);
    return std::sqrt(squares / (double(chains_) * count_ - 1));
  }
  /// Near 1 if the chains agree; above 1.01 they have not run long enough.
  double r_hat(std::size_t i) const { return std::sqrt(moments(i).total / moments(i).within); }
  /// So many independent draws would give the mean as exactly. Autocorrelations are summed by pairs as far as these are
  /// positive, made monotone: Geyer, "Practical Markov Chain Monte Carlo", 1992. NaN of draws that are all
  /// equal, and of fewer than four of a chain.
  double effective_size(std::size_t i) const {
    const Moments m = moments(i);
    const int half = count_ / 2;
    const auto correlation = [&](int lag) {
      double sum = 0;
      for (int h = 0; h < 2 * chains_; ++h)
        for (int t = lag; t < half; ++t) {
          const double a = half_at(h, t, i), b = half_at(h, t - lag, i),
                       mean = m.half_means[static_cast<std::size_t>(h)];
          sum += (a - mean) * (b - mean);
        }
      return 1 - (m.within - sum / (2.0 * chains_ * (half - 1))) / m.total;
    };
    double sum = 0, least = 2;
    for (int lag = 0; lag + 1 < half; lag += 2) {
      const double pair = lag == 0 ? 1 + correlation(1) : correlation(lag) + correlation(lag + 1);
      if (!(pair > 0)) break;
      least = std::min(least, pair);
      sum += least;
    }
    if (!(m.total > 1e-24 * m.mean * m.mean)) return std::nan("");  // less is rounding
    const double all = 2.0 * chains_ * half;
    return all / std::max(2 * sum - 1, 1 / std::log10(all));
  }
  /// Of mean(i).
  double standard_error(std::size_t i) const { return deviation(i) / std::sqrt(effective_size(i)); }

  std::int64_t divergences = 0;  // draws whose path left the level of its energy: the density is too steep somewhere
  std::int64_t leapfrog_steps = 0;
  std::vector<double> step_sizes;  // of each chain

 private:
  struct Moments {
    double mean = 0, within = 0, total = 0;  // variances
    std::vector<double> half_means;
  };
  std::size_t index(int chain, int draw, std::size_t i) const {
    return static_cast<std::size_t>(std::int64_t{chain} * count_ + draw) * size_ + i;
  }
  // Draw t of half chain h.
  double half_at(int h, int t, std::size_t i) const { return at(h / 2, t + (h % 2) * (count_ - count_ / 2), i); }

  Moments moments(std::size_t i) const {
    const int half = count_ / 2, halves = 2 * chains_;
    Moments m;
    for (int h = 0; h < halves; ++h) {
      double sum = 0, squares = 0;
      for (int t = 0; t < half; ++t) sum += half_at(h, t, i);
      const double mean = sum / half;
      for (int t = 0; t < half; ++t) squares += (half_at(h, t, i) - mean) * (half_at(h, t, i) - mean);
      m.half_means.push_back(mean);
      m.mean += mean / halves;
      m.within += squares / (half - 1) / halves;
    }
    double between = 0;  // variance of the halves' means
    for (const double mean : m.half_means) between += (mean - m.mean) * (mean - m.mean) / (halves - 1);
    m.total = m.within * (half - 1) / half + between;
    return m;
  }

  int chains_, count_;
  std::size_t size_;
  std::vector<double> values_;
};

}  // namespace reel::nn
