// Entries that no row of the op-case table reaches, against plain loops.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reel/core/ops.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"

namespace reel {
namespace {

constexpr std::int64_t kSize = 1025;
const Device kCuda = Device::cuda();

struct Buffer {
  std::vector<double> host;
  Tensor device;

  Buffer(std::uint64_t seed, bool positive) {
    Generator generator(seed);
    const Tensor x = randn({kSize}, generator, {.dtype = f64});
    host = x.to_vector<double>();
    if (positive)
      for (double& value : host) value = 0.5 + value * value;
    device = to(from_vector(host, {kSize}), kCuda);
  }
  void expect_equal(const char* name) const {
    const std::vector<double> got = device.to_vector<double>();
    for (std::size_t i = 0; i < host.size(); ++i)
      ASSERT_NEAR(got[i], host[i], 1e-13 * (1 + std::abs(host[i]))) << name << "[" << i << "]";
  }
};

// Two ranges with a hole between, in which nothing may change.
constexpr std::int64_t kBegin[] = {0, 640}, kEnd[] = {600, kSize};

TEST(CudaKernels, RmspropEqualsPlainLoops) {
  Buffer w(1, false), g(2, false), v(3, true), a(4, false), m(5, false);
  const RmspropRange ranges[] = {{kBegin[0], kEnd[0], 0.1, 0.9, 1e-3, 0.2, 0.5, false},
                                 {kBegin[1], kEnd[1], 0.2, 0.8, 1e-2, 0.0, 0.0, true}};
  backend(kCuda).rmsprop(ranges, 2, w.device.array(), g.device.array(), v.device.array(), &a.device.array(),
                         &m.device.array());
  for (const RmspropRange& r : ranges)
    for (auto i = static_cast<std::size_t>(r.begin); i < static_cast<std::size_t>(r.end); ++i) {
      const double grad = g.host[i] + r.decay * w.host[i];
      v.host[i] = r.alpha * v.host[i] + (1 - r.alpha) * grad * grad;
      double variance = v.host[i];
      if (r.centered) {
        a.host[i] = r.alpha * a.host[i] + (1 - r.alpha) * grad;
        variance = std::max(0.0, variance - a.host[i] * a.host[i]);
      }
      double step = grad / (std::sqrt(variance) + r.epsilon);
      if (r.momentum != 0) m.host[i] = step = r.momentum * m.host[i] + step;
      w.host[i] -= r.rate * step;
    }
  w.expect_equal("w");
  v.expect_equal("v");
  a.expect_equal("a");
  m.expect_equal("m");
}

TEST(CudaKernels, AdagradEqualsPlainLoops) {
  Buffer w(1, false), g(2, false), sum(3, true);
  const AdagradRange ranges[] = {{kBegin[0], kEnd[0], 0.1, 1e-3, 0.2}, {kBegin[1], kEnd[1], 0.3, 1e-2, 0.0}};
  backend(kCuda).adagrad(ranges, 2, w.device.array(), g.device.array(), sum.device.array());
  for (const AdagradRange& r : ranges)
    for (auto i = static_cast<std::size_t>(r.begin); i < static_cast<std::size_t>(r.end); ++i) {
      const double grad = g.host[i] + r.decay * w.host[i];
      sum.host[i] += grad * grad;
      w.host[i] -= r.rate * grad / (std::sqrt(sum.host[i]) + r.epsilon);
    }
  w.expect_equal("w");
  sum.expect_equal("sum");
}

TEST(CudaKernels, EmaEqualsPlainLoops) {
  Buffer w(1, false), average(2, false);
  backend(kCuda).ema(w.device.array(), 0.75, average.device.array());
  for (std::size_t i = 0; i < w.host.size(); ++i) average.host[i] = 0.75 * average.host[i] + 0.25 * w.host[i];
  average.expect_equal("average");
}

// Of what a range changes alone, and of the weights after their step.
TEST(CudaKernels, AStepTakesAnAverageAlong) {
  Buffer w(1, false), g(2, false), average(3, false);
  const SgdRange ranges[] = {{.begin = kBegin[0], .end = kEnd[0], .rate = 0.1},
                             {.begin = kBegin[1], .end = kEnd[1], .rate = 0.3}};
  const WeightAverage ema{average.device.array(), 0.75};
  backend(kCuda).sgd(ranges, 2, w.device.array(), g.device.array(), nullptr, &ema);
  for (const SgdRange& r : ranges)
    for (auto i = static_cast<std::size_t>(r.begin); i < static_cast<std::size_t>(r.end); ++i) {
      w.host[i] -= r.rate * g.host[i];
      average.host[i] = 0.75 * average.host[i] + 0.25 * w.host[i];
    }
  w.expect_equal("w");
  average.expect_equal("average");
}

TEST(CudaKernels, DropoutKeepsWhereTheUniformNumberIsLargeEnough) {
  const double p = 0.3;
  for (const DType dtype : {f32, f64}) {
    const PhiloxState state{7, 3, 11};
    const Tensor x = to(cast(arange(kSize, {.dtype = f64}), dtype), kCuda);
    const Tensor y = empty_like(x), uniform = empty({kSize}, {.dtype = dtype});
    backend(kCuda).dropout(x.array(), p, state, y.array());
    backend(Device::cpu()).random(RandomOp::uniform, uniform.array(), state);
    const auto got = y.to_vector<double>(), numbers = uniform.to_vector<double>();
    std::int64_t kept = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double expected = numbers[i] >= p ? static_cast<double>(i) / (1 - p) : 0;
      ASSERT_NEAR(got[i], expected, 1e-6 * (1 + expected)) << i;
      kept += got[i] != 0;
    }
    EXPECT_NEAR(static_cast<double>(kept) / kSize, 1 - p, 0.06);
  }
}

}  // namespace
}  // namespace reel
