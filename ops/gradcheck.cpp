#include "reel/ops/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>
#include <vector>

#include "reel/core/index_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

constexpr std::int64_t kFullJacobian = 64;  // up to here every input element is moved by itself

using detail::index_text;
using detail::random_like;
using detail::TensorsFunction;
using Number = std::function<double(const Tensors&)>;

// Copies of the inputs, that nobody else writes or watches.
Tensors fresh(const Tensors& inputs) {
  Tensors copies;
  for (const Tensor& x : inputs) copies.push_back(untaped([&] { return clone(stop_gradient(x)); }));
  return copies;
}

// The sum of f(inputs) times the seeds, of which there are as many as f has results with gradients.
Tensor contracted(const TensorsFunction& f, const Tensors& inputs, const Tensors& seeds) {
  Tensor total;
  std::size_t next = 0;
  for (const Tensor& y : f(inputs)) {
    if (!is_floating(y.dtype())) continue;
    const Tensor part = sum(y * seeds[next++]);
    total = total.defined() ? total + part : part;
  }
  return total;
}

// The gradient of contracted(), recorded while an outer tape is alive.
Tensors gradient_of(const TensorsFunction& f, const Tensors& inputs, const Tensors& seeds) {
  Tape tape;
  for (const Tensor& x : inputs) tape.watch(x);
  const Tensor y = contracted(f, inputs, seeds);
  if (!is_tracked(y)) {  // a constant function
    Tensors zeros;
    for (const Tensor& x : inputs) zeros.push_back(zeros_like(x));
    return zeros;
  }
  return tape.gradient(y, inputs);
}

class Checker {
 public:
  Checker(const GradcheckOptions& options, int order, GradcheckReport& report)
      : options_(options),
        of_gradient_(order == 2),
        tolerance_(options.tolerance * (of_gradient_ ? 100 : 1)),
        what_(of_gradient_ ? "second derivative" : "first derivative"),
        report_(report),
        generator_(options.seed, 1) {}

  // Compares analytic . direction with the slope of g in that direction.
  void run(const Number& g, const Tensors& inputs, const Tensors& analytic) {
    std::int64_t elements = 0;
    for (const Tensor& x : inputs) elements += x.size();
    if (elements > kFullJacobian) {
      for (int d = 0; d < options_.directions; ++d)
        compare(g, inputs, analytic, random_like(inputs, generator_), "random direction " + std::to_string(d));
      return;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::int64_t e = 0; e < inputs[i].size(); ++e) {
        Tensors direction;
        for (const Tensor& x : inputs) direction.push_back(zeros_like(x));
        const Tensor places = arange(inputs[i].size(), {.dtype = i64, .device = inputs[i].device()});
        direction[i] = reshape(cast(places == e, f64), inputs[i].shape());
        compare(g, inputs, analytic, direction,
                "input " + std::to_string(i) + " at " + index_text(e, inputs[i].shape()));
      }
  }

 private:
  // The slopes of g to both sides, from differences of a step.
  struct Slopes {
    double before, behind;
    double central() const { return (before + behind) / 2; }
    double gap() const { return std::abs(behind - before); }
    double steepest() const { return std::max(std::abs(before), std::abs(behind)); }
    double size() const { return std::max(1.0, steepest()); }
  };
  static double at(const Number& g, const Tensors& inputs, const Tensors& direction, double step) {
    Tensors moved;
    for (std::size_t i = 0; i < inputs.size(); ++i) moved.push_back(stop_gradient(inputs[i]) + direction[i] * step);
    return g(moved);
  }
  static Slopes slopes(const Number& g, const Tensors& inputs, const Tensors& direction, double step) {
    const double here = at(g, inputs, direction, 0);
    return {(here - at(g, inputs, direction, -step)) / step, (at(g, inputs, direction, step) - here) / step};
  }

  void compare(const Number& g, const Tensors& inputs, const Tensors& analytic, const Tensors& direction,
               const std::string& name) {
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
    const detail::Pause pause;
    const auto difference = [&](double h) {
      return (at(g, inputs, direction, h) - at(g, inputs, direction, -h)) / (2 * h);
    };
    const auto error_of = [&](double numeric) {
      return std::abs(expected - numeric) / std::max({1.0, std::abs(expected), std::abs(numeric)});
    };
    double numeric = difference(step), error = error_of(numeric);
    ++report_.checks;
    if (error > tolerance_) {  // where the second derivative jumps, the difference is off by the step
      const double nearer = difference(step / 64);
      if (error_of(nearer) < error) error = error_of(numeric = nearer);
    }
    const bool good = error <= tolerance_;  // false for NaN
    const bool finite = good || std::isfinite(at(g, inputs, direction, 0));
    bool hole = !finite || (!good && !std::isfinite(numeric));
    if (!good && explained_by_kink(g, inputs, direction, step, expected, name, hole)) return;
    if (!good) ++report_.failures;
    if (hole) ++report_.holes;
    const bool first_failure = !good && report_.passed;
    report_.passed = report_.passed && good;
    if (good && (!report_.passed || error <= report_.worst_error)) return;
    if (!first_failure && (std::isnan(report_.worst_error) || error <= report_.worst_error)) return;
    std::ostringstream text;
    text.precision(12);
    text << what_ << ", " << name << ": analytic " << expected << ", numeric " << numeric << kink_note_;
    if (!finite) text << ", for " << (of_gradient_ ? "the gradient" : "f") << " itself is not finite at these inputs";
    if (!good && kink_note_.empty() && std::isfinite(expected) && std::abs(numeric) > 1e-3) {
      text.precision(4);
      text << ", " << expected / numeric + 0.0 << " times as much";  // 0 without its sign
    }
    report_.worst = text.str();
    report_.worst_error = error;
    kink_note_.clear();
  }

  // A kink's two slopes stay apart however small the step is; those of a smooth function approach each other. `hole` is set
  // where g jumps, unless it is a gradient: that jumps where its function, whose first derivative was right, has a kink.
  bool explained_by_kink(const Number& g, const Tensors& inputs, const Tensors& direction, double step, double expected,
                         const std::string& name, bool& hole) {
    kink_note_.clear();
    const Slopes far = slopes(g, inputs, direction, step);
    Slopes near = slopes(g, inputs, direction, step / 8);
    const bool jump = far.steepest() > 1 && near.steepest() > 4 * far.steepest();
    if (!jump && !(far.gap() > 100 * tolerance_ * near.size())) return false;
    double slack = 10 * tolerance_ * near.size();
    const bool nearby = near.gap() < far.gap() / 16 && std::abs(expected - near.central()) <= slack;
    if (!jump && !nearby && near.gap() < far.gap() / 2) return false;
    if (jump && of_gradient_) {  // the slopes to both sides of the jump
      const auto there = [&](int steps) { return at(g, inputs, direction, steps * step); };
      near = {(there(-1) - there(-2)) / step, (there(2) - there(1)) / step};
      slack = 10 * tolerance_ * near.size();
    }
    kink_note_ = jump ? of_gradient_ ? ", a kink: the gradient jumps, with slopes " : ", the function jumps there"
                      : ", a kink with slopes ";
    if (!jump || of_gradient_) kink_note_ += number(near.before) + " and " + number(near.behind);
    hole = hole || (jump && !of_gradient_);
    const auto [low, high] = std::minmax(near.before, near.behind);
    if (hole || !(nearby || (low - slack <= expected && expected <= high + slack))) return false;
    if (report_.kinks++ == 0)
      report_.kink = std::string(what_) + ", " + name + ": analytic " + number(expected) + kink_note_;
    kink_note_.clear();
    return true;
  }

  static std::string number(double value) {
    std::ostringstream text;
    text.precision(12);
    text << value;
    return text.str();
  }

  const GradcheckOptions& options_;
  bool of_gradient_;  // g is a contracted gradient, its slopes are second derivatives
  double tolerance_;
  const char* what_;
  GradcheckReport& report_;
  Generator generator_;
  std::string kink_note_;
};

bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].shape() == b[i].shape()) || a[i].dtype() != b[i].dtype()) return false;
    const std::vector<double> x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
    for (std::size_t e = 0; e < x.size(); ++e)
      if (!(x[e] == y[e] || (std::isnan(x[e]) && std::isnan(y[e])))) return false;
  }
  return true;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  out << "gradcheck " << (report.passed ? "passed" : "failed") << ": ";
  if (report.checks == 0 && !report.passed) return out << report.worst;
  if (report.failures > 0) out << report.failures << " of ";
  out << report.checks << " derivatives" << (report.failures > 0 ? " are wrong" : "") << ", worst relative error "
      << report.worst_error << (report.worst.empty() ? "" : " in ") << report.worst;
  if (report.kinks > 0)
    out << "; " << report.kinks << (report.kinks == 1 ? " has" : " have") << " no derivative: " << report.kink;
  return out;
}

namespace detail {

void refuse_count(CheckCall call, std::size_t inputs) {
  throw Error(std::string(call.name) + ": f must take as many tensors as there are inputs, or Tensors, got " +
                  std::to_string(inputs) + " inputs for a function of another number",
              call.where);
}

Tensors random_like(const Tensors& xs, Generator& generator) {
  Tensors result;
  for (const Tensor& x : xs)
    if (is_floating(x.dtype())) result.push_back(randn(x.shape(), generator, x.options()));
  return result;
}

namespace {

// What would check nothing must not pass.
void check_options(const GradcheckOptions& options, std::size_t inputs, SourceLocation where) {
  const auto require = [&](bool good, const char* what, double got) {
    if (good) return;
    std::ostringstream text;
    text << "gradcheck: " << what << " is required, got " << got;
    throw Error(text.str(), where);
  };
  require(options.order == 1 || options.order == 2, "an order of 1 or 2", options.order);
  require(options.step > 0 && std::isfinite(options.step), "a step above 0", options.step);
  require(options.tolerance > 0 && std::isfinite(options.tolerance), "a tolerance above 0", options.tolerance);
  require(options.directions > 0, "at least one direction", options.directions);
  require(inputs > 0, "at least one input", 0);
}

}  // namespace

GradcheckReport gradcheck(const TensorsFunction& f, const Tensors& inputs, const GradcheckOptions& options,
                          SourceLocation where) {
  now_running("gradcheck", where);
  check_options(options, inputs.size(), where);
  for (const Tensor& x : inputs) {
    check::defined("gradcheck", "each input", x, where);
    if (x.dtype() != f64)
      throw DTypeError(
          std::string("gradcheck: inputs must be f64, for differences are taken, got ") + name_of(x.dtype()), where);
  }
  const Tensors xs = fresh(inputs);
  Generator generator(options.seed, 0);
  const Tensors ys = untaped([&] { return f(xs); });
  const Tensors seeds = random_like(ys, generator);

  GradcheckReport report;
  if (!same_bits(ys, untaped([&] { return f(xs); }))) {
    report.passed = false;
    report.failures = 1;
    report.worst = "f gives other results when it is called again with the same inputs, and has no derivative";
    return report;
  }
  if (seeds.empty()) throw Error("gradcheck: f must have a result that is f32 or f64, got none", where);
  Checker first(options, 1, report);
  first.run([&](const Tensors& at) { return contracted(f, at, seeds).item(); }, xs, gradient_of(f, xs, seeds));
  if (options.order < 2 || !report.passed) return report;

  // The second: the gradient contracted with random numbers is a function like any other.
  const Tensors weights = random_like(xs, generator);
  const TensorsFunction gradient = [&](const Tensors& at) { return gradient_of(f, at, seeds); };
  Checker second(options, 2, report);
  second.run([&](const Tensors& at) { return contracted(gradient, fresh(at), weights).item(); }, fresh(xs),
             gradient_of(gradient, fresh(xs), weights));
  return report;
}

}  // namespace detail

}  // namespace reel
