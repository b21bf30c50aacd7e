// The entries behind norms of channels, called as they are: what may be absent, where runs lie, and units that are cut.

#include <limits>

#include "reel/core/ops.h"
#include "reel/ops/logical.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/sizes.h"

namespace reel {
namespace {

using Lengths = std::vector<std::int64_t>;

/// What is given and what is wanted.
struct Use {
  bool scale = true, shift = true, variance = true, dx = true, add = false, dscale = true, dshift = true;
};

/// All that is wanted of both entries.
Tensors results_of(const Tensor& x, const Tensor& dy, std::int64_t groups, const Use& use = {}) {
  const std::int64_t n = x.shape()[0], channels = x.shape()[1];
  const TensorOptions like{.dtype = x.dtype(), .device = x.device()};
  const auto array_of = [](const Tensor& t) { return t.defined() ? &t.array() : nullptr; };
  const auto room = [&](bool wanted, const Shape& shape) { return wanted ? full(shape, 7, like) : Tensor(); };
  const auto numbers = [&](bool given, std::uint64_t seed) {
    return given ? normal({channels}, x.dtype(), x.device(), seed) : Tensor();
  };
  const Shape units{groups == 0 ? channels : n * groups};
  const Tensor scale = numbers(use.scale, 5), shift = numbers(use.shift, 6), y = empty(x.shape(), like);
  const Tensor mean = room(true, units), rstd = room(true, units), variance = room(use.variance, units);
  const Tensor dx = use.dx ? normal(x.shape(), x.dtype(), x.device(), 8) : Tensor();
  const Tensor dscale = room(use.dscale, {channels}), dshift = room(use.dshift, {channels});
  Ops& ops = backend(x.device());
  ops.normalize_channels(x.array(), groups, 1e-5, array_of(scale), array_of(shift), y.array(), mean.array(),
                         rstd.array(), array_of(variance));
  GradientSink sink;
  if (use.dx) sink = {dx.array(), use.add};
  ops.normalize_channels_backward(x.array(), groups, array_of(scale), mean.array(), rstd.array(), dy.array(), sink,
                                  array_of(dscale), array_of(dshift));
  Tensors results;
  for (const Tensor& t : {y, mean, rstd, variance, dx, dscale, dshift})
    if (t.defined()) results.push_back(t);
  return results;
}
Tensors results_of(const Tensor& x, std::int64_t groups, const Use& use = {}) {
  return results_of(x, normal(x.shape(), x.dtype(), x.device(), 4), groups, use);
}

double tolerance_of(DType dtype) { return dtype == f32 ? 2e-5 : 1e-13; }

/// Whole images; some of more of them, of some of their channels; images one element off the boundaries of packs; images that
/// are an odd number of elements apart; and channels that are, which groups do not have.
Tensor view_of(int which, const Shape& shape, DType dtype, Device device) {
  const std::int64_t n = shape[0], channels = shape[1], length = shape[2], image = channels * length;
  const auto apart = [&](std::int64_t images, std::int64_t runs, std::int64_t first) {
    const std::int64_t strides[] = {images, runs, 1};
    return detail::view(normal({n * images + first}, dtype, device), first, shape, strides);
  };
  switch (which) {
    case 0:
      return normal(shape, dtype, device) + 3;
    case 1:
      return narrow(narrow(normal({n + 2, channels + 4, length}, dtype, device), 0, 1, n), 1, 2, channels);
    case 2:
      return apart(image, length, 1);
    case 3:
      return apart(image + 1, length, 0);
    default:
      return apart(channels * (length + 1), length + 1, 0);
  }
}

class CudaNormalizeChannels : public CudaSizes {};

TEST_F(CudaNormalizeChannels, RunsOfAnyLengthWhereverTheyLie) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t length : {8, 9, 64, 1000})
      for (const std::int64_t groups : {0, 1, 2, 6})
        for (int which = 0; which < (groups == 0 ? 5 : 4); ++which) {
          SCOPED_TRACE(std::string(reel::name_of(dtype)) + " length " + std::to_string(length) + " groups " +
                       std::to_string(groups) + " view " + std::to_string(which));
          const Call call = [&](Device device) {
            return results_of(view_of(which, {3, 6, length}, dtype, device), groups);
          };
          expect_equal_devices(call, tolerance_of(dtype), length < 1000);
        }
}

// More channels than threads of a block, more images than a block reduces at a time, one image, one channel, one run.
TEST_F(CudaNormalizeChannels, ManyAndFewImagesAndChannels) {
  for (const auto& [shape, groups] : {std::pair<Shape, Lengths>{{2, 700, 8}, {0, 1, 7, 350, 700}},
                                      {{300, 3, 9}, {0, 1, 3}},
                                      {{1, 6, 33}, {0, 1, 3, 6}},
                                      {{5, 1, 132}, {0, 1}},
                                      {{1, 1, 8}, {0, 1}}})
    for (const std::int64_t g : groups)
      for (const DType dtype : {f32, f64}) {
        SCOPED_TRACE(shape.str() + " groups " + std::to_string(g));
        const Call call = [&, shape = shape](Device device) { return results_of(view_of(1, shape, dtype, device), g); };
        expect_equal_devices(call, 3 * tolerance_of(dtype));
      }
}

// Units in pieces that end within runs, and runs in pieces.
TEST_F(CudaNormalizeChannels, FewLargeUnitsAreCut) {
  for (const auto& [shape, groups] : {std::pair<Shape, Lengths>{{40, 2, 1000}, {0}},
                                      {{1, 2, 20000}, {0, 1, 2}},
                                      {{1, 2, 20003}, {0, 1, 2}},
                                      {{2, 3, 8200}, {0, 1}},
                                      {{1, 300, 100}, {1, 2}}})
    for (const std::int64_t g : groups)
      for (const bool dx : {true, false}) {
        SCOPED_TRACE(shape.str() + " groups " + std::to_string(g) + (dx ? "" : " without dx"));
        const Call call = [&, shape = shape](Device device) {
          return results_of(view_of(1, shape, f32, device), g, {.dx = dx, .add = true});
        };
        expect_equal_devices(call, 2e-4, dx);
      }
  const Call call = [](Device device) { return results_of(view_of(4, {3, 2, 17000}, f64, device), 0); };
  expect_equal_devices(call, 1e-12, false);
}

TEST_F(CudaNormalizeChannels, WhatIsAbsentOrAddedTo) {
  for (const Use& use :
       {Use{.scale = false}, Use{.shift = false}, Use{.scale = false, .shift = false}, Use{.variance = false},
        Use{.dx = false}, Use{.add = true}, Use{.dscale = false}, Use{.dshift = false},
        Use{.scale = false, .dscale = false, .dshift = false}, Use{.dx = false, .dscale = false}})
    for (const std::int64_t groups : {0, 1, 2, 4})
      for (const std::int64_t length : {12, 15}) {
        SCOPED_TRACE(groups);
        const Call call = [&](Device device) {
          return results_of(view_of(0, {3, 4, length}, f64, device), groups, use);
        };
        expect_equal_devices(call, 1e-13);
      }
}

TEST_F(CudaNormalizeChannels, NoImagesGiveNoGradient) {
  for (const std::int64_t groups : {0, 2}) {
    const Tensors results = results_of(zeros({0, 4, 9}, {.dtype = f32, .device = Device::cuda()}), groups);
    ASSERT_EQ(results.size(), 7u);
    for (std::size_t k = 5; k < 7; ++k) EXPECT_EQ(results[k].to_vector<double>(), std::vector<double>(4, 0.0));
  }
}

// So far from 0 that the mean is rounded by a part of the deviation, which the sums of dy count too.
TEST_F(CudaNormalizeChannels, MeansThatAreLarge) {
  for (const Shape& shape : {Shape{3, 6, 40}, Shape{1, 2, 20001}})
    for (const std::int64_t groups : {0, 1, 2}) {
      SCOPED_TRACE(shape.str() + " groups " + std::to_string(groups));
      const Call call = [&](Device device) {
        const Tensor x = 1000 + 1e-3 * normal(shape, f32, device);
        return results_of(x, 1 + normal(shape, f32, device, 4), groups);
      };
      expect_equal_devices(call, 1e-3);
    }
}

// A NaN, an infinity, squares that overflow, and a constant channel, of one image each. They stay where their unit is.
TEST_F(CudaNormalizeChannels, ExtremesStayInTheirUnit) {
  for (const std::int64_t groups : {0, 1, 2, 4})
    for (const std::int64_t length : {8, 700}) {
      SCOPED_TRACE(std::to_string(groups) + " " + std::to_string(length));
      const Call call = [&](Device device) {
        const auto axis = [&](std::int64_t size, int before) {
          Shape shape{1, 1, 1};
          shape[before] = size;
          return reshape(arange(size, {.device = device}), shape);
        };
        const Tensor image = axis(5, 0), channel = axis(4, 1), column = axis(length, 2);
        const Tensor last = column == static_cast<double>(length - 1);
        const auto at = [&](double i, double c) { return logical_and(image == i, channel == c); };
        Tensor x = normal({5, 4, length}, f32, device);
        x = where(logical_and(at(0, 1), last), NAN, x);
        x = where(logical_and(at(1, 2), last), INFINITY, x);
        x = where(at(2, 3), x * 1e25, x);
        x = where(image == 3, 1e4, x);
        return results_of(x, groups);
      };
      expect_equal_devices(call, 1e-4);
      const Tensors got = call(Device::cuda());
      const std::vector<double> y = got[0].to_vector<double>();
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t c = 0; c < 4; ++c) {
          const std::int64_t g = groups == 0 ? 4 : groups, of = c * g / 4;
          const bool over_images = groups == 0, nan = (over_images || i == 0) && of == g / 4,
                     infinite = (over_images || i == 1) && of == 2 * g / 4;
          const double first = y[static_cast<std::size_t>((i * 4 + c) * length)];
          EXPECT_EQ(std::isnan(first), nan || infinite) << "image " << i << " channel " << c;
        }
    }
}

}  // namespace
}  // namespace reel
