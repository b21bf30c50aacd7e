#include "reel/ops/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"

namespace reel {

namespace {

constexpr std::int64_t kFullJacobian = 64;  // up to here every input element is moved by itself

using Function = std::function<Tensor(const Tensors&)>;

// Copies of the inputs, that nobody else writes or watches.
Tensors fresh(const Tensors& inputs) {
  Tensors copies;
  for (const Tensor& x : inputs) copies.push_back(untaped([&] { return clone(stop_gradient(x)); }));
  return copies;
}

// f(inputs) . seed as a number, and as a function on a tape.
Tensor contracted(const Function& f, const Tensors& inputs, const Tensor& seed) {
  const Tensor y = f(inputs);
  return sum(seed.defined() ? y * seed : y);
}

// The gradient of contracted(), recorded while an outer tape is alive.
Tensors gradient_of(const Function& f, const Tensors& inputs, const Tensor& seed) {
  Tape tape;
  for (const Tensor& x : inputs) tape.watch(x);
  const Tensor y = contracted(f, inputs, seed);
  if (!is_tracked(y)) {  // a constant function
    Tensors zeros;
    for (const Tensor& x : inputs) zeros.push_back(zeros_like(x));
    return zeros;
  }
  return tape.gradient(y, inputs);
}

class Checker {
 public:
  Checker(const GradcheckOptions& options, double tolerance, const char* what, GradcheckReport& report)
      : options_(options), tolerance_(tolerance), what_(what), report_(report), generator_(options.seed, 1) {}

  // Compares analytic . direction with the slope of g in that direction.
  void run(const std::function<double(const Tensors&)>& g, const Tensors& inputs, const Tensors& analytic) {
    std::int64_t elements = 0;
    for (const Tensor& x : inputs) elements += x.size();
    if (elements <= kFullJacobian) {
      for (std::size_t i = 0; i < inputs.size(); ++i)
        for (std::int64_t e = 0; e < inputs[i].size(); ++e) {
          Tensors direction;
          for (const Tensor& x : inputs) direction.push_back(zeros_like(x));
          direction[i].mutable_data<double>()[static_cast<std::size_t>(e)] = 1;
          compare(g, inputs, analytic, direction, "input " + std::to_string(i) + ", element " + std::to_string(e));
        }
      return;
    }
    for (int d = 0; d < options_.directions; ++d) {
      Tensors direction;
      for (const Tensor& x : inputs) direction.push_back(randn(x.shape(), generator_, {.dtype = f64}));
      compare(g, inputs, analytic, direction, "random direction " + std::to_string(d));
    }
  }

 private:
  static Tensors moved(const Tensors& inputs, const Tensors& direction, double step) {
    Tensors result;
    for (std::size_t i = 0; i < inputs.size(); ++i) result.push_back(stop_gradient(inputs[i]) + direction[i] * step);
    return result;
  }

  void compare(const std::function<double(const Tensors&)>& g, const Tensors& inputs, const Tensors& analytic,
               const Tensors& direction, const std::string& name) {
    double scale = 1, length = 0, expected = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].size() == 0) continue;
      const std::vector<double> x = inputs[i].to_vector<double>(), d = direction[i].to_vector<double>(),
                                a = analytic[i].to_vector<double>();
      for (std::size_t e = 0; e < x.size(); ++e) {
        if (d[e] != 0) scale = std::max(scale, std::abs(x[e]));
        length += d[e] * d[e];
        expected += a[e] * d[e];
      }
    }
    const double step = options_.step * scale / std::max(1.0, std::sqrt(length));
    const double numeric =
        untaped([&] { return (g(moved(inputs, direction, step)) - g(moved(inputs, direction, -step))) / (2 * step); });
    ++report_.checks;
    const double size = std::max({1.0, std::abs(expected), std::abs(numeric)});
    const double error = std::abs(expected - numeric) / size;
    const bool good = error <= tolerance_;  // false for NaN
    if (good && error <= report_.worst_error) return;
    if (!report_.passed && good) return;
    if (good || report_.passed || !(error <= report_.worst_error)) {
      std::ostringstream text;
      text.precision(12);
      text << what_ << ", " << name << ": analytic " << expected << ", numeric " << numeric;
      report_.worst = text.str();
      report_.worst_error = error;
    }
    report_.passed = report_.passed && good;
  }

  const GradcheckOptions& options_;
  double tolerance_;
  const char* what_;
  GradcheckReport& report_;
  Generator generator_;
};

Tensors random_like(const Tensors& xs, Generator& generator) {
  Tensors result;
  for (const Tensor& x : xs) result.push_back(randn(x.shape(), generator, {.dtype = f64}));
  return result;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  return out << "gradcheck " << (report.passed ? "passed" : "failed") << ": " << report.checks
             << " derivatives, worst relative error " << report.worst_error << (report.worst.empty() ? "" : " in ")
             << report.worst;
}

GradcheckReport gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                          const GradcheckOptions& options, SourceLocation where) {
  for (const Tensor& x : inputs) {
    check::defined("gradcheck", "each input", x, where);
    if (x.dtype() != f64)
      throw DTypeError(
          std::string("gradcheck: inputs must be f64, for differences are taken, got ") + name_of(x.dtype()), where);
  }
  const Tensors xs = fresh(inputs);
  Generator generator(options.seed, 0);
  const Tensor y = untaped([&] { return f(xs); });
  const Tensor seed = randn(y.shape(), generator, {.dtype = f64});

  GradcheckReport report;
  Checker first(options, options.tolerance, "first derivative", report);
  first.run([&](const Tensors& at) { return contracted(f, at, seed).item(); }, xs, gradient_of(f, xs, seed));
  if (options.order < 2 || !report.passed) return report;

  // The second: the gradient contracted with random numbers is a function like any other.
  const Tensors weights = random_like(xs, generator);
  const Function contraction = [&](const Tensors& at) {
    const Tensors gradients = gradient_of(f, at, seed);
    Tensor total;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Tensor part = sum(gradients[i] * weights[i]);
      total = total.defined() ? total + part : part;
    }
    return total;
  };
  Checker second(options, 100 * options.tolerance, "second derivative", report);
  second.run([&](const Tensors& at) { return contraction(fresh(at)).item(); }, fresh(xs),
             gradient_of(contraction, fresh(xs), {}));
  return report;
}

}  // namespace reel
