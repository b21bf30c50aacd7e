// Thomson's problem: where do n electrons on a sphere come to rest? The energy is an op of one's own, with its kernel in a
// file, coulomb.cu, which is compiled when it is first launched. Without a GPU the loop on the CPU runs.

#include <reel/reel.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>

#include "reel/examples/arguments.h"

using namespace reel;

// The energy of each of the charges x [n, 3]: half the sum of 1 / distance to the others; [n].
const auto coulomb_loop = []<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
  const auto x = in.get<T>(0);
  const auto energy = out.get<T>(0);
  const auto n = in.shape(0)[0];
  const auto row = [&](std::int64_t i) {
    T sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      if (j == i) continue;
      const T a = x[3 * i] - x[3 * j], b = x[3 * i + 1] - x[3 * j + 1], c = x[3 * i + 2] - x[3 * j + 2];
      sum += 1 / std::sqrt(a * a + b * b + c * c);
    }
    energy[i] = sum / 2;
  };
  const auto chunk = 16384 / (n + 1) + 1;  // charges for a thread to take at once
  cpu.parallel_for(n, chunk, [&](auto begin, auto end) {
    for (auto i = begin; i < end; ++i) row(i);
  });
};

// dx_i = sum over j of (dy_i + dy_j) / 2 times the gradient of 1 / |x_i - x_j|.
const auto coulomb_backward_loop = []<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
  const auto dy = in.get<T>(0), x = in.get<T>(1);
  const auto dx = out.get<T>(0);
  const auto n = in.shape(1)[0];
  const auto row = [&](std::int64_t i) {
    T sum[3] = {0, 0, 0};
    for (std::int64_t j = 0; j < n; ++j) {
      if (j == i) continue;
      const T d[3] = {x[3 * i] - x[3 * j], x[3 * i + 1] - x[3 * j + 1], x[3 * i + 2] - x[3 * j + 2]};
      const T square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
      const T factor = -(dy[i] + dy[j]) / (2 * square * std::sqrt(square));
      for (int k = 0; k < 3; ++k) sum[k] += factor * d[k];
    }
    for (int k = 0; k < 3; ++k) dx[3 * i + k] = sum[k];
  };
  const auto chunk = 16384 / (n + 1) + 1;
  cpu.parallel_for(n, chunk, [&](auto begin, auto end) {
    for (auto i = begin; i < end; ++i) row(i);
  });
};

// A block for each charge, whose threads meet in shared memory.
constexpr int kThreads = 128;
std::int64_t shared_bytes(const Inputs&, DType real) { return kThreads * static_cast<std::int64_t>(size_of(real)); }

const CustomOp coulomb = CustomOp("coulomb")
                             .output([](const Inputs& in) { return CustomOutput{.shape = {in.shape(0)[0]}}; })
                             .cpu(coulomb_loop)
                             .cuda("coulomb.cu", "coulomb<T>")
                             .by_row(0, kThreads)
                             .shared_bytes(shared_bytes)
                             .backprop(CustomOp("coulomb_backward")
                                           .cpu(coulomb_backward_loop)
                                           .cuda("coulomb.cu", "coulomb_backward<T>")
                                           .by_row(1, kThreads)
                                           .shared_bytes(shared_bytes));

// The lowest energies known (D. J. Wales and S. Ulker, Phys. Rev. B 74, 212101, 2006).
const std::map<std::int64_t, double> kLowest = {
    {2, 0.5},          {3, 1.732050808},   {4, 3.674234614},    {6, 9.985281374},
    {8, 19.675287861}, {12, 49.165253058}, {20, 150.881568334}, {32, 412.261274651}};

double relax(std::int64_t electrons, std::int64_t steps, std::uint64_t seed, Device device) {
  manual_seed(seed);
  const Parameter places(randn({electrons, 3}, {.dtype = f64, .device = device}));
  nn::Adam adam({places}, {.lr = nn::schedule::cosine(0.1, steps)});
  double energy = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    Tape tape;
    const Tensor total = sum(coulomb(places / norm(places, -1, Keep::yes)));
    tape.backward(total);
    adam.step();
    if (step % 200 == 0 || step == steps - 1) {
      energy = total.item();
      std::printf("step %4lld: energy %.9f\n", static_cast<long long>(step), energy);
    }
  }
  return energy;
}

int main(int argc, char** argv) {
  std::int64_t electrons = 32, steps = 1000;
  std::uint64_t seed = 0;
  double excess = 1e9;
  example::Arguments arguments("Electrons on a sphere, with a CUDA kernel of one's own");
  arguments.whole("--electrons", electrons, 2, 100'000, "how many");
  arguments.whole("--steps", steps, 1, 1'000'000'000, "of Adam");
  arguments.seed("--seed", seed, "of the places at the start");
  arguments.positive("--require-excess", excess,
                     "exit with 1 if the energy is above the lowest known by more than this");
  if (const auto status = arguments.parse(argc, argv)) return *status;

  try {
    const Device device = Device::best();
    if (device.is_cpu()) std::printf("no GPU that Reel can use: the loop on the CPU runs\n");
    else std::printf("on %s, with the kernels of coulomb.cu\n", device.name().c_str());

    const double energy = relax(electrons, steps, seed, device);
    const auto known = kLowest.find(electrons);
    if (known == kLowest.end()) return 0;
    std::printf("the lowest energy known is %.9f\n", known->second);
    if (energy - known->second <= excess) return 0;
    std::cerr << "custom_cuda_op: an excess of at most " << excess << " is required, got " << energy - known->second
              << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "custom_cuda_op: " << error.what() << '\n';
    return 2;
  }
}
