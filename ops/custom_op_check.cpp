// The check of a custom op's first call.

#include <algorithm>
#include <cmath>
#include <sstream>

#include "reel/core/error.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/custom_op_state.h"
#include "reel/ops/views.h"

namespace reel::detail {

namespace {

constexpr std::int64_t kMost = 64;   // elements of each input, where all may be cut alike
constexpr double kTolerance = 1e-9;  // between two devices, relative, in f64

/// The first elements along the leading axes, at most kMost.
Tensor cut(Tensor x) {
  for (int axis = 0; axis < x.rank() && x.size() > kMost; ++axis) {
    const std::int64_t rest = x.size() / x.shape()[axis];
    x = narrow(x, axis, 0, std::clamp<std::int64_t>(kMost / rest, 1, x.shape()[axis]));
  }
  return x;
}

/// `call` on f64 copies of its inputs on the CPU.
CustomCall sample_of(const CustomCall& call) {
  bool alike = true;
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    alike = alike && call.inputs[i].shape() == call.inputs[0].shape() && !call.offsets[i];
  CustomCall sample = call;
  sample.real = f64;
  sample.device = Device::cpu();
  for (Tensor& x : sample.inputs) {
    x = transferred(stop_gradient(alike ? cut(x) : x), Device::cpu());
    x = copied(x, is_floating(x.dtype()) ? f64 : x.dtype());
  }
  return sample;
}

/// Throws Error where the two differ. `what`: the result, the gradient.
void compare(const CustomCall& call, const char* what, const Tensor& cpu, const Tensor& gpu) {
  const std::vector<double> a = cpu.to_vector<double>(), b = gpu.to_vector<double>();
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool both = i < a.size() && i < b.size();
    if (both && (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                 std::abs(a[i] - b[i]) <= kTolerance * std::max(1.0, std::abs(a[i]))))
      continue;
    std::ostringstream text;
    text.precision(12);
    text << call.op->name << ": the kernel must compute what the loop on the CPU does, but " << what << " has ";
    if (both) text << b[i] << ", not " << a[i] << ", at element " << i;
    else text << b.size() << " elements, not " << a.size();
    throw Error(text.str(), call.where);
  }
}

}  // namespace

std::function<Tensor(const Tensors&)> joined_outputs(const std::shared_ptr<CustomOpState>& op, const CustomCall& call,
                                                     Device device) {
  return [op, call, device](const Tensors& xs) {
    CustomCall next = call;
    next.device = device;
    next.real = f64;
    std::size_t taken = 0;
    for (Tensor& x : next.inputs) x = to(is_floating(x.dtype()) ? xs[taken++] : x, device);
    const CustomResults results = run(op, next, {next.inputs[0]}, true);
    Tensors parts;
    for (const Tensor& y : floating_of(results.tensors)) parts.push_back(to(cast(flatten(y), f64), Device::cpu()));
    return parts.size() == 1 ? parts[0] : concatenate(parts);
  };
}

void check_custom(const std::shared_ptr<CustomOpState>& op, const CustomCall& call) {
  const Pause pause;
  const bool has_gradient = op->backward_op || op->backward_function;
  const bool has_twins = op->cpu && op->has_cuda && !call.device.is_cpu();
  if (!has_gradient && !has_twins) return;
  try {
    const CustomCall sample = sample_of(call);
    const Tensors xs = floating_of(sample.inputs);
    const auto here = joined_outputs(op, sample, call.device);
    if (has_twins) {
      const auto on_cpu = joined_outputs(op, sample, Device::cpu());
      const Tensor y = on_cpu(xs);
      compare(call, "its result", y, here(xs));
      if (has_gradient && !xs.empty()) {
        Generator generator(1);
        const Tensor dy = randn(y.shape(), generator, {.dtype = f64});
        const auto gradients = [&](const std::function<Tensor(const Tensors&)>& f) {
          Tape tape;
          for (const Tensor& x : xs) tape.watch(x);
          return tape.gradient(f(xs), dy, xs);
        };
        const Tensors expected = gradients(on_cpu), got = gradients(here);
        for (std::size_t i = 0; i < xs.size(); ++i)
          compare(call, ("the gradient of floating input " + std::to_string(i)).c_str(), expected[i], got[i]);
      }
    }
    if (!has_gradient || xs.empty()) return;
    const GradcheckReport report = gradcheck(here, xs, {.order = 1}, call.where);
    if (report) return;
    std::ostringstream text;
    text << op->name << ": backprop must give the gradient of the forward, but " << report;
    throw Error(text.str(), call.where);
  } catch (Error& error) {
    error.prepend("check of the first call, in f64 (.check(false) leaves it out)");
    throw;
  }
}

}  // namespace reel::detail
