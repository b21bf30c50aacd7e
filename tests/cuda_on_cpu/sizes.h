#pragma once

// The same call on Device::cuda() and on the CPU, under every schedule.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/tests/cuda_on_cpu/schedule.h"

namespace reel {

using cuda_on_cpu::Schedule;
using Call = std::function<Tensors(Device)>;

class CudaSizes : public testing::Test {
 protected:
  void SetUp() override { cuda_on_cpu::set_guard(false); }
  void TearDown() override {
    cuda_on_cpu::set_schedule(Schedule::in_order);
    cuda_on_cpu::set_guard(true);
  }

  // Tolerance 0: the same numbers.
  static void expect_equal_devices(const Call& call, double tolerance, bool all_schedules = true) {
    const Tensors expected = call(Device::cpu());
    std::vector<std::vector<double>> first;
    for (const Schedule schedule : {Schedule::random, Schedule::in_order, Schedule::reversed}) {
      cuda_on_cpu::set_schedule(schedule);
      const Tensors got = call(Device::cuda());
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        ASSERT_EQ(got[k].shape(), expected[k].shape());
        ASSERT_EQ(got[k].device(), Device::cuda());
        const std::vector<double> y = got[k].to_vector<double>(), want = expected[k].to_vector<double>();
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (y[i] == want[i] || (std::isnan(y[i]) && std::isnan(want[i]))) continue;
          ASSERT_LE(std::abs(y[i] - want[i]), tolerance * (1 + std::abs(want[i]))) << "result " << k << "[" << i << "]";
        }
        if (first.size() <= k) {
          first.push_back(y);
          continue;
        }
        for (std::size_t i = 0; i < y.size(); ++i)
          ASSERT_TRUE(y[i] == first[k][i] || std::isnan(y[i])) << "another schedule, result " << k << "[" << i << "]";
      }
      if (!all_schedules) break;
    }
  }
};

inline Tensor normal(const Shape& shape, DType dtype, Device device, std::uint64_t seed = 3) {
  Generator generator(seed);
  return to(cast(randn(shape, generator, {.dtype = f64}), dtype), device);
}

// Indices below `limit`, of which low ones are frequent.
inline Tensor indices(const Tensor& numbers, std::int64_t limit) {
  const auto most = static_cast<double>(limit - 1);
  return cast(clamp(numbers * numbers * (0.3 * most), 0, most), i64);
}

}  // namespace reel
