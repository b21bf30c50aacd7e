// Eight schools (Rubin, 1981; Gelman et al., "Bayesian Data Analysis", section 5.5): what coaching did in eight schools, when
// each was measured with a known error, and the schools are alike as far as the data say. The posterior is drawn from with
// the No-U-Turn sampler, whose gradients come from the tape, and compared with what quadrature gives.

#include <reel/reel.h>

#include <cstdio>
#include <iostream>

#include "reel/examples/arguments.h"

using namespace reel;

namespace {

constexpr int kSchools = 8;
constexpr const char* kNames[] = {"mu",       "tau",      "log tau",  "theta[1]", "theta[2]", "theta[3]",
                                  "theta[4]", "theta[5]", "theta[6]", "theta[7]", "theta[8]"};
constexpr int kQuantities = static_cast<int>(std::size(kNames));
constexpr int kTau = 1, kLogTau = 2;
// Posterior means by quadrature over tau: given tau everything is normal.
constexpr double kExpected[kQuantities] = {4.39682, 3.59771, 0.80214, 6.2119, 4.9402, 3.9270,
                                           4.7571,  3.6155,  4.0426,  6.2967, 4.8543};

// mu ~ N(0, 5), tau ~ half-Cauchy(0, 5), theta = mu + tau z with z ~ N(0, 1), y ~ N(theta, sigma); q = [mu, log tau, z].
// In z instead of theta (not centred) the density has no narrow neck where tau is small.
struct Model {
  Tensor y = tensor({28, 8, -3, 7, -1, 1, 18, 12}, {.dtype = f64});
  Tensor sigma = tensor({15, 10, 16, 11, 9, 11, 10, 18}, {.dtype = f64});
  transforms::Exp positive;
  distributions::Normal mu_prior{0.0, 5.0}, standard{0.0, 1.0};
  distributions::HalfCauchy tau_prior{5.0};

  Tensor operator()(const Tensor& q) const {
    const Tensor mu = q[0], log_tau = q[1], z = narrow(q, 0, 2, kSchools);
    const Tensor tau = positive.forward(log_tau);
    const Tensor prior = mu_prior.log_prob(mu) + tau_prior.log_prob(tau) + positive.log_abs_det_jacobian(log_tau) +
                         sum(standard.log_prob(z));
    return prior + sum(distributions::Normal(mu + tau * z, sigma).log_prob(y));
  }
};

void quantities(const double* q, double* result) {
  result[0] = q[0];
  result[kTau] = std::exp(q[1]);
  result[kLogTau] = q[1];
  for (int school = 0; school < kSchools; ++school) result[3 + school] = q[0] + result[kTau] * q[2 + school];
}

// Prints the table; the number of means that are further than four standard errors from their values.
int compare(const nn::Draws& draws) {
  int wrong = 0;
  std::printf("%-9s %9s %9s %9s %9s %7s %7s %9s\n", "", "mean", "expected", "error", "deviation", "R-hat", "ESS", "");
  for (int i = 0; i < kQuantities; ++i) {
    const double error = draws.standard_error(i), off = (draws.mean(i) - kExpected[i]) / error;
    std::printf("%-9s %9.4f %9.4f %9.4f %9.4f %7.4f %7.0f %+5.1f s.e.\n", kNames[i], draws.mean(i), kExpected[i], error,
                draws.deviation(i), draws.r_hat(i), draws.effective_size(i), off);
    if (!(std::abs(off) <= 4 && draws.r_hat(i) < 1.01)) ++wrong;
  }
  return wrong;
}

void draw_traces(const nn::Draws& draws, const std::string& path) {
  std::vector<nn::PlotSeries> chains;
  for (int c = 0; c < draws.chains(); ++c) {
    nn::PlotSeries series{.name = "chain " + std::to_string(c + 1), .x = {}, .y = draws.chain(c, kLogTau)};
    for (int i = 0; i < draws.count(); ++i) series.x.push_back(i + 1);
    chains.push_back(std::move(series));
  }
  nn::save_plot(path, chains, {.title = "Eight schools: log tau", .x_label = "draw"});
}

// The outlines of histograms: densities over [-20, 30).
void draw_histogram(const nn::Draws& draws, const std::string& path) {
  constexpr double kBegin = -20, kWidth = 0.5;
  constexpr int kBins = 100;
  std::vector<nn::PlotSeries> outlines;
  for (const int i : {0, 3, 5}) {
    std::vector<double> density(kBins);
    for (int c = 0; c < draws.chains(); ++c)
      for (const double value : draws.chain(c, i)) {
        const double bin = std::floor((value - kBegin) / kWidth);
        if (bin >= 0 && bin < kBins)
          density[static_cast<std::size_t>(bin)] += 1 / (kWidth * draws.chains() * draws.count());
      }
    nn::PlotSeries series{.name = kNames[i], .x = {}, .y = {}};
    for (int bin = 0; bin < kBins; ++bin)
      for (const int side : {0, 1}) {
        series.x.push_back(kBegin + (bin + side) * kWidth);
        series.y.push_back(density[static_cast<std::size_t>(bin)]);
      }
    outlines.push_back(std::move(series));
  }
  nn::save_plot(path, outlines, {.title = "Eight schools: posterior", .x_label = "points", .y_label = "density"});
}

}  // namespace

int main(int argc, char** argv) {
  nn::NutsOptions options{.target_accept = 0.95, .seed = 1};
  std::string output = ".";
  example::Arguments arguments("Draws from the posterior of the eight schools.");
  arguments.whole("--chains", options.chains, 1, 1000, "chains");
  arguments.whole("--warmup", options.warmup, 0, 1'000'000, "iterations of each chain that adapt the sampler");
  arguments.whole("--draws", options.draws, 4, 1'000'000, "draws of each chain");
  arguments.seed("--seed", options.seed, "of the random numbers");
  arguments.text("--output", output, "folder for the pictures");
  if (const auto status = arguments.parse(argc, argv)) return *status;
  try {
    example::make_folder(output);
    const nn::Draws raw = nn::nuts(Model(), 2 + kSchools, options);
    const nn::Draws draws = raw.transformed(kQuantities, quantities);
    const int wrong = compare(draws);
    std::printf("\n%d chains x %d draws, %lld divergences, %lld leapfrog steps; step sizes", draws.chains(),
                draws.count(), static_cast<long long>(draws.divergences), static_cast<long long>(draws.leapfrog_steps));
    for (const double step : draws.step_sizes) std::printf(" %.3f", step);
    std::printf("\n");
    draw_traces(draws, output + "/eight_schools_trace.svg");
    draw_histogram(draws, output + "/eight_schools_histogram.svg");
    std::cout << "wrote " << output << "/eight_schools_trace.svg and eight_schools_histogram.svg\n";
    if (wrong == 0) return 0;
    std::cerr << "eight_schools: " << wrong << " means are not what they should be\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "eight_schools: " << error.what() << "\n";
    return 2;
  }
}
