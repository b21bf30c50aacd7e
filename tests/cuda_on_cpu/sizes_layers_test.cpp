// Products, recurrent layers and softmax at the sizes where their kernels go other ways.

#include <algorithm>

#include "reel/ops/conv.h"
#include "reel/ops/logical.h"
#include "reel/ops/matmul.h"
#include "reel/ops/recurrent.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/sizes.h"

namespace reel {
namespace {

bool same_numbers(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](double p, double q) { return p == q || (std::isnan(p) && std::isnan(q)); });
}

// x w^T + b and its gradients: each side as it is stored and transposed, with and without packs.
TEST_F(CudaSizes, ProductsOfFewTiles) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const DType dtype : {f32, f64})
    for (const Sizes& size : {Sizes{1, 1, 1},
                              {32, 32, 128},
                              {33, 5, 7},
                              {31, 33, 129},
                              {8, 16, 300},
                              {4, 40, 64},
                              {64, 12, 4},
                              {3, 9, 1025},
                              {70, 70, 20}}) {
      const auto product = [&](Device device) {
        const Tensor x = normal({size.m, size.k}, dtype, device), w = normal({size.n, size.k}, dtype, device, 4);
        const Tensor b = normal({size.n}, dtype, device, 5);
        Tape tape;
        for (const Tensor& input : {x, w, b}) tape.watch(input);
        const Tensor y = linear(x, w, b) + linear(x, w, b, Epilogue::relu);
        const Tensors gradients = tape.gradient(y, normal({size.m, size.n}, dtype, device, 8), {x, w, b});
        return Tensors{y, gradients[0], gradients[1], gradients[2]};
      };
      expect_equal_devices(product, dtype == f32 ? 2e-5 : 1e-13, size.k < 100);
    }
}

TEST_F(CudaSizes, BatchesOfFewTiles) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t batch : {1, 2, 3}) {
      const auto product = [&](Device device) {
        const Tensor a = normal({batch, 5, 30}, dtype, device), b = normal({batch, 30, 7}, dtype, device, 4);
        return Tensors{matmul(a, b), matmul(a, normal({30, 9}, dtype, device, 6))};
      };
      expect_equal_devices(product, dtype == f32 ? 1e-5 : 1e-13);
    }
}

// Layers up to the size of one kernel and beyond; sequences alone in a block, four in it, and fewer.
TEST_F(CudaSizes, RecurrentLayersInOneKernelAndStepByStep) {
  const std::vector<std::int64_t> few = {2, 5, 0, 3}, many = {4, 1, 0, 2, 4, 3, 1, 1, 2};
  const auto run = [&](int cell, DType dtype, std::int64_t hidden, const std::vector<std::int64_t>& lengths) {
    const std::int64_t gates = cell == 0 ? 4 : cell == 1 ? 3 : 1, n = static_cast<std::int64_t>(lengths.size());
    std::int64_t total = 0;
    for (const std::int64_t length : lengths) total += length;
    const auto layer = [&](Device device) {
      Tensors in{normal({total, 3}, dtype, device), normal({2, n, hidden}, dtype, device, 4)};
      std::vector<RecurrentWeights> weights;
      for (std::uint64_t i = 0; i < 2; ++i) {
        const Tensor w = normal({gates * hidden, hidden}, dtype, device, 20 + i) * (0.5 / std::sqrt(double(hidden)));
        const Tensor b = normal({gates * hidden}, dtype, device, 30 + i);
        weights.push_back({normal({gates * hidden, 3}, dtype, device, 10 + i) * 0.5, w, b, b * 0.5});
        in.push_back(w);
        in.push_back(b);
      }
      Tape tape;
      for (const Tensor& input : in) tape.watch(input);
      for (std::size_t i = 0; i < 2; ++i) {
        weights[i].weight_hh = in[2 + 2 * i];
        weights[i].bias_ih = in[3 + 2 * i];
        weights[i].bias_hh = in[3 + 2 * i] * 0.5;
      }
      const Ragged x = Ragged::from_lengths(in[0], lengths);
      const RecurrentOptions options{.bidirectional = true, .h0 = in[1]};
      const RecurrentResult<Ragged> out = cell == 0   ? lstm(x, weights, options)
                                          : cell == 1 ? gru(x, weights, options)
                                                      : rnn(x, weights, Nonlinearity::tanh, options);
      const Tensor y = out.y.values();
      const Tensor loss = sum(y * normal(y.shape(), dtype, device, 8)) + sum(out.h * out.h);
      Tensors results = tape.gradient(loss, in);
      results.push_back(y);
      results.push_back(out.h);
      if (cell == 0) results.push_back(out.c);
      return results;
    };
    expect_equal_devices(layer, dtype == f32 ? 1e-4 : 1e-12, hidden < 64);
  };
  for (int cell = 0; cell < 3; ++cell) {
    for (const std::int64_t hidden : {1, 9, 33, 64, 65}) run(cell, f32, hidden, hidden < 33 ? many : few);
    run(cell, f64, 64, many);
    run(cell, f64, 10, few);
    // No offsets; and steps that hand their states on, to steps of as many rows and of fewer.
    for (const std::int64_t hidden : {16, 70}) run(cell, f32, hidden, {3, 3, 3, 3, 3});
    run(cell, f32, 70, {5, 2, 5, 4, 0, 2});
  }
}

// All -infinity; one NaN; both infinities; one finite element; logits of 1e4.
TEST_F(CudaSizes, SoftmaxOfRowsWithExtremes) {
  for (const std::int64_t n : {3, 10, 32, 200, 1024, 3000, 20001}) {
    SCOPED_TRACE(n);
    const Call call = [&](Device device) {
      const Tensor row = unsqueeze(arange(6, {.device = device}), 1), column = arange(n, {.device = device});
      const Tensor last = column == static_cast<double>(n - 1);
      Tensor x = normal({6, n}, f32, device);
      x = where(row == 0, -INFINITY, x);
      x = where(logical_and(row == 1, last), NAN, x);
      x = where(logical_and(row == 2, column == 0), -INFINITY, where(logical_and(row == 2, last), INFINITY, x));
      x = where(logical_and(row == 3, logical_not(last)), -INFINITY, x);
      x = where(row == 4, x * 1e4, x);
      const Tensor target = full({6}, n - 1, {.dtype = i64, .device = device});
      Tensors results;
      for (const auto& f : std::vector<std::function<Tensor()>>{
               [&] { return softmax(x); }, [&] { return log_softmax(x); },
               [&] { return cross_entropy(x, target, {.reduction = Reduction::none}); }}) {
        Tape tape;
        tape.watch(x);
        const Tensor y = f();
        results.push_back(y);
        EXPECT_TRUE(same_numbers(untaped(f), y));
        results.push_back(tape.gradient(y, normal(y.shape(), f32, device, 8), {x})[0]);
      }
      return results;
    };
    expect_equal_devices(call, 2e-5, n < 1000);
  }
}

// Segments that a thread holds whole, in one part and just more, and longer ones; columns in packs and not. A column is -inf.
TEST_F(CudaSizes, SoftmaxDownSegmentsOfAnyLength) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t width : {1, 3, 4, 33, 64, 132}) {
      SCOPED_TRACE(std::string(reel::name_of(dtype)) + " " + std::to_string(width));
      const auto results = [&](const Tensor& x, const std::vector<std::int64_t>& lengths) {
        const Tensor first = unsqueeze(arange(width, {.device = x.device()}) == 0, 0);
        Tensors all;
        for (const bool log : {false, true}) {
          Tape tape;
          tape.watch(x);
          const Ragged r = Ragged::from_lengths(where(first, -INFINITY, x), lengths);
          const Tensor y = (log ? log_softmax(r) : softmax(r)).values();
          all.push_back(y);
          all.push_back(tape.gradient(sum(where(first, 0, y * stop_gradient(x))), {x})[0]);
        }
        return all;
      };
      const std::vector<std::int64_t> lengths = {1, 0, 63, 8, 9, 64, 65, 255, 2, 256, 257, 700, 128, 17};
      expect_equal_devices(
          [&](Device device) {
            return results(normal({1825, width}, dtype, device), lengths);
          },
          dtype == f32 ? 2e-5 : 1e-13, width == 33);
      const Tensor x = normal({1825, width}, dtype, Device::cuda());
      const Tensors together = results(x, lengths), alone = results(slice(x, 0, 1, 64), {63});
      for (std::size_t k = 0; k < alone.size(); ++k)
        EXPECT_EQ(alone[k].to_vector<double>(), slice(together[k], 0, 1, 64).to_vector<double>()) << k;
    }
}

// More channels, and more elements of a kernel, than go through shared memory at once; one channel of the result and several.
TEST_F(CudaSizes, DirectConvolutionsInSeveralRounds) {
  struct Sizes {
    DType dtype;
    Shape x, weight;
    PaddingMode mode;
  };
  for (const Sizes& size : {Sizes{f64, {1, 130, 4, 5}, {2, 130, 3, 3}, PaddingMode::zero},
                            {f64, {1, 460, 4, 5}, {1, 460, 3, 3}, PaddingMode::zero},
                            {f64, {1, 45, 3, 4}, {45, 45, 5, 5}, PaddingMode::reflect},
                            {f64, {1, 3, 1, 1600}, {2, 3, 1, 1501}, PaddingMode::zero},
                            {f64, {1, 2, 1, 1600}, {1, 2, 1, 1501}, PaddingMode::replicate},
                            {f32, {1, 2, 1, 1800}, {1, 2, 1, 1701}, PaddingMode::zero},
                            {f32, {2, 1, 1, 30}, {1, 1, 1, 5}, PaddingMode::replicate}}) {
    SCOPED_TRACE(size.weight.str());
    const Call call = [&](Device device) {
      const Tensor x = normal(size.x, size.dtype, device), weight = normal(size.weight, size.dtype, device, 4);
      Tape tape;
      tape.watch(x);
      tape.watch(weight);
      const std::int64_t down = size.weight[2] / 2, across = size.weight[3] > 9 ? 0 : size.weight[3] / 2;
      const Tensor y = conv2d(x, weight, {}, {.padding = {down, across}, .mode = size.mode});
      const Tensors gradients = tape.gradient(y, normal(y.shape(), size.dtype, device, 8), {x, weight});
      return Tensors{y, gradients[0], gradients[1]};
    };
    expect_equal_devices(call, size.dtype == f32 ? 1e-4 : 1e-12);
  }
}

TEST_F(CudaSizes, MeanCrossEntropyOfAnyNumberOfRows) {
  for (const DType dtype : {f32, f64})
    for (const auto& [rows, classes] : {std::pair<std::int64_t, std::int64_t>{0, 3},
                                        {1, 1},
                                        {64, 10},
                                        {3001, 10},
                                        {300, 65},
                                        {2100, 300},
                                        {40, 1028},
                                        {20, 20001}}) {
      SCOPED_TRACE(std::string(reel::name_of(dtype)) + " " + std::to_string(rows) + " " + std::to_string(classes));
      for (const std::int64_t ignore : {-100, 0}) {
        const Call call = [&, rows = rows, classes = classes](Device device) {
          const Tensor x = normal({rows, classes}, dtype, device) * 3;
          const Tensor target = to(indices(normal({rows}, f64, Device::cpu(), 4), classes), device);
          Tape tape;
          tape.watch(x);
          const Tensor loss = cross_entropy(x, target, {.ignore = ignore});
          const Tensor alone = untaped([&] { return cross_entropy(x, target, {.ignore = ignore}); });
          EXPECT_TRUE(same_numbers(alone, loss));  // by a kernel that makes no gradient
          const Tensor once = tape.gradient(loss, {x}, {.keep = true})[0];
          return Tensors{loss, once, tape.gradient(3 * loss, {x})[0]};
        };
        expect_equal_devices(call, dtype == f32 ? 2e-5 : 1e-13, rows * classes < 40000);
      }
    }
}

}  // namespace
}  // namespace reel
