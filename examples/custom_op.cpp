// An op of one's own, three times: of ops, as a C++ loop, as a CUDA kernel. It is the Ricker wavelet, and a net of wavelets
// learns a chirp, whose frequency rises: something that they describe better than a net of rectifiers does.

#include <reel/reel.h>

#include <cmath>
#include <cstdio>
#include <iostream>

#include "reel/examples/arguments.h"

using namespace reel;

// Of ops: y = (1 - x^2) exp(-x^2 / 2), and what takes a gradient dy back to x. Differentiable as often as one likes.
Tensor ricker_of_ops(const Tensor& x) {
  Tensor y = untaped([&] { return (1 - x * x) * exp(-x * x / 2); });
  return record("ricker", {x}, y, [x](const Tensor& dy) { return dy * x * (x * x - 3) * exp(-x * x / 2); });
}

// As loops: one pass over memory instead of seven, for float and for double.
const auto ricker_loop = []<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
  const auto x = in.get<T>(0);
  const auto y = out.get<T>(0);
  cpu.parallel_for(in.elements(0), [&](auto begin, auto end) {
    for (auto i = begin; i < end; ++i) y[i] = (1 - x[i] * x[i]) * std::exp(-x[i] * x[i] / 2);
  });
};
const auto ricker_backward_loop = []<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
  const auto dy = in.get<T>(0), x = in.get<T>(1);  // in.get<T>(2) would be y
  const auto dx = out.get<T>(0);
  cpu.parallel_for(in.elements(0), [&](auto begin, auto end) {
    for (auto i = begin; i < end; ++i) dx[i] = dy[i] * x[i] * (x[i] * x[i] - 3) * std::exp(-x[i] * x[i] / 2);
  });
};

// And as kernels, in a file of their own.
const CustomOp ricker =
    CustomOp("ricker")
        .cpu(ricker_loop)
        .cuda("ricker.cu", "ricker<T>")
        .backprop(CustomOp("ricker_backward").cpu(ricker_backward_loop).cuda("ricker.cu", "ricker_backward<T>"));

struct Wavelets : nn::Module {
  nn::Linear in{this, "in", {.in = 1, .out = 64}};
  nn::Linear out{this, "out", {.in = 64, .out = 1}};
  Tensor operator()(const Tensor& x) { return out(ricker(in(x))); }
};

// Root mean square error of the net after training.
double train(Device device, std::int64_t steps) {
  manual_seed(1);
  const Tensor x = to(reshape(linspace(-4, 4, 256), {256, 1}), device);
  const Tensor target = sin(x * x);
  Wavelets net;
  net.to(device);
  nn::Adam adam(net.parameters(), {.lr = nn::schedule::cosine(5e-2, steps)});
  double error = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    Tape tape;
    const Tensor loss = mse_loss(net(x), target);
    tape.backward(loss);
    adam.step();
    if (step % 1000 == 0 || step == steps - 1) {
      error = std::sqrt(loss.item());
      std::printf("step %4lld: root mean square error %.4f\n", static_cast<long long>(step), error);
    }
  }
  return error;
}

int main(int argc, char** argv) {
  std::int64_t steps = 4000;
  double most = 1;
  example::Arguments arguments("An op of one's own: of ops, as a loop, as a kernel");
  arguments.whole("--steps", steps, 1, 1'000'000'000, "of training");
  arguments.positive("--require-error", most, "exit with 1 if the net's error is above this");
  if (const auto status = arguments.parse(argc, argv)) return *status;

  try {
    const Tensor x = randn({3, 5}, {.dtype = f64});
    const GradcheckReport of_ops = gradcheck(ricker_of_ops, {x});  // first and second derivatives
    const GradcheckReport with_loops = ricker.gradcheck({x}, {.order = 1});
    std::cout << "of ops:     " << of_ops << "\nwith loops: " << with_loops << '\n';
    if (!of_ops || !with_loops) return 1;

    const double error = train(Device::best(), steps);
    if (error <= most) return 0;
    std::cerr << "custom_op: an error of at most " << most << " is required, got " << error << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "custom_op: " << error.what() << '\n';
    return 2;
  }
}
