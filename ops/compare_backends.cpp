#include "reel/ops/compare_backends.h"

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

namespace reel {

namespace detail {

namespace {

class Comparison {
 public:
  Comparison(const CompareOptions& options, CompareReport& report) : options_(options), report_(report) {}

  void compare(const std::string& name, const Tensor& on_cpu, const Tensor& other) {
    ++report_.tensors;
    const auto kind = [](const Tensor& x) {
      return x.defined() ? std::string(name_of(x.dtype())) + " " + x.shape().str() : "undefined";
    };
    if (kind(on_cpu) != kind(other))
      return fail(name + ": cpu " + kind(on_cpu) + ", " + where() + kind(other), INFINITY);
    if (!on_cpu.defined()) return;
    if (!(other.device() == options_.device))
      return fail(name + ": it must be on " + options_.device.name() + ", got " + other.device().name(), INFINITY);
    const std::vector<double> a = on_cpu.to_vector<double>(), b = other.to_vector<double>();
    double scale = 1;
    for (const double value : a)
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
    const double tolerance = options_.tolerance > 0         ? options_.tolerance
                             : !is_floating(on_cpu.dtype()) ? 0
                             : on_cpu.dtype() == f32        ? 1e-5
                                                            : 1e-12;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      const double difference = std::abs(a[i] - b[i]) / scale;
      const double error = std::isnan(difference) ? INFINITY : difference;
      std::ostringstream text;
      text.precision(17);
      text << name << " at " << index_text(static_cast<std::int64_t>(i), on_cpu.shape()) << ": cpu " << a[i] << ", "
           << where() << b[i];
      if (error > tolerance) fail(text.str(), error);
      else if (error > report_.worst_error && report_.passed) note(text.str(), error);
    }
  }

 private:
  std::string where() const { return options_.device.name() + " "; }
  void note(const std::string& text, double error) {
    report_.worst = text;
    report_.worst_error = error;
  }
  void fail(const std::string& text, double error) {
    if (report_.passed || error > report_.worst_error) note(text, error);
    report_.passed = false;
  }

  const CompareOptions& options_;
  CompareReport& report_;
};

struct Outcome {
  Tensors results, gradients;  // of the floating inputs
};

// f on a device, from the same random numbers, with gradients from `seeds`, which are drawn if there are none yet.
Outcome run(const TensorsFunction& f, const Tensors& inputs, Device device, const CompareOptions& options,
            const PhiloxState& random) {
  set_random_state(random);
  Outcome outcome;
  Tensors xs, wanted;
  Tape tape;
  for (const Tensor& input : inputs) {
    const Tensor x = untaped([&] { return clone(to(input, device)); });
    xs.push_back(x);
    if (!options.gradients || !is_floating(x.dtype())) continue;
    tape.watch(x);
    wanted.push_back(x);
  }
  outcome.results = f(xs);
  Generator generator(options.seed, 3);
  Tensor total;
  for (const Tensor& y : outcome.results) {
    if (!options.gradients || !y.defined() || !is_tracked(y)) continue;
    const Tensor seed = randn(y.shape(), generator, {.dtype = y.dtype()});  // the same on every device
    const Tensor part = to(sum(y * to(seed, y.device())), device);
    total = total.defined() ? total + part : part;
  }
  if (total.defined()) outcome.gradients = tape.gradient(total, wanted);
  return outcome;
}

}  // namespace

CompareReport compare_backends(const TensorsFunction& f, const Tensors& inputs, const CompareOptions& options,
                               SourceLocation where) {
  for (const Tensor& x : inputs) check::defined("compare_backends", "each input", x, where);
  CompareReport report;
  try {
    backend(options.device);
  } catch (const DeviceError& error) {
    report.ran = false;
    report.worst = error.what();
    return report;
  }
  const PhiloxState before = random_state();
  const Outcome on_cpu = run(f, inputs, Device::cpu(), options, before);
  const Outcome other = run(f, inputs, options.device, options, before);

  Comparison comparison(options, report);
  if (on_cpu.results.size() != other.results.size() || on_cpu.gradients.size() != other.gradients.size())
    throw Error("compare_backends: f must give as many results on each device", where);
  for (std::size_t i = 0; i < on_cpu.results.size(); ++i)
    comparison.compare("result " + std::to_string(i), on_cpu.results[i], other.results[i]);
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size() && next < on_cpu.gradients.size(); ++i) {
    if (!is_floating(inputs[i].dtype())) continue;
    comparison.compare("gradient of input " + std::to_string(i), on_cpu.gradients[next], other.gradients[next]);
    ++next;
  }
  return report;
}

}  // namespace detail

std::ostream& operator<<(std::ostream& out, const CompareReport& report) {
  if (!report.ran) return out << "compare_backends compared nothing: " << report.worst;
  return out << "compare_backends " << (report.passed ? "passed" : "failed") << ": " << report.tensors
             << " tensors, worst difference " << report.worst_error << (report.worst.empty() ? "" : " in ")
             << report.worst;
}

}  // namespace reel
