#pragma once

// The sizes of what is measured, for Reel's program and its peers' alike.

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "runner.h"

namespace bench {

using Int = std::int64_t;

struct Mlp {
  const char* name;
  std::vector<Int> widths;
  Int batch;
  bool adam;
};
inline const std::vector<Mlp> kMlps = {
    {"mlp_16_32_2_sgd", {16, 32, 2}, 8, false},
    {"mlp_64_64_10_sgd", {64, 64, 10}, 32, false},
    {"mlp_64_64_10_adam", {64, 64, 10}, 32, true},
    {"mlp_784_128_10_sgd", {784, 128, 10}, 64, false},
    {"mlp_784_512_512_10_sgd", {784, 512, 512, 10}, 128, false},
};
constexpr double kRate = 0.01;  // of every training step

/// A step of Adam on [kAdamSize, kAdamSize] parameters w whose loss is the sum of w times something: what an optimiser costs where
/// there is little else; or gradients are clipped to kMaxNorm before, and an average of w is kept behind.
constexpr Int kAdamSize = 1000;
constexpr double kMaxNorm = 100, kAverageDecay = 0.999;

/// a [m, k] times b [k, n], `batch` of them one after the other in memory; "T": stored transposed.
struct Product {
  std::string name;
  Int m, n, k;
  bool trans_a, trans_b;
  int threads;
  Int batch = 1;
  bool f64 = false;
  bool bias_relu = false;  // plus bias [n], negative values 0
};
inline std::vector<Product> products() {
  std::vector<Product> rows;
  for (const Int n : {8, 16, 32, 64}) rows.push_back({"gemm_" + std::to_string(n), n, n, n, false, false, 1});
  for (const Int n : {128, 512, 1000, 1024, 1056})
    rows.push_back({"gemm_" + std::to_string(n), n, n, n, false, false, 0});
  // A layer's forward pass, the gradient of its input and that of its weight.
  rows.push_back({"gemm_32x784x512_nt", 32, 512, 784, false, true, 0});
  rows.push_back({"gemm_32x784x512_nn", 32, 784, 512, false, false, 0});
  rows.push_back({"gemm_32x784x512_tn", 512, 784, 32, true, false, 0});

  rows.push_back({"gemm_32x784x512_tt", 512, 784, 32, true, true, 0});
  rows.push_back({"gemm_32x784x512_bias_relu", 32, 512, 784, false, true, 0, 1, false, true});
  rows.push_back({"gemm_64_batch_64", 64, 64, 64, false, false, 0, 64});
  for (const Int n : {64, 512}) rows.push_back({"gemm_f64_" + std::to_string(n), n, n, n, false, false, 0, 1, true});
  return rows;
}

/// Memory that begins with a cache line, as that of tensors does.
template <class T>
struct FromLine {
  using value_type = T;
  FromLine() = default;
  template <class U>
  FromLine(const FromLine<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
  bool operator==(const FromLine&) const { return true; }
};

/// A product's operands, one matrix after the other, and the result.
template <class T>
struct Operands {
  using Numbers = std::vector<T, FromLine<T>>;
  Numbers a, b, c, bias;

  explicit Operands(const Product& p)
      : a(stream(1, p.batch * p.m * p.k)),
        b(stream(2, p.batch * p.k * p.n)),
        c(static_cast<std::size_t>(p.batch * p.m * p.n)),
        bias(stream(3, p.n)) {}

 private:
  static Numbers stream(std::uint32_t number, Int count) {
    const std::vector<T> values = inputs<T>(number, count);
    return Numbers(values.begin(), values.end());
  }
};

constexpr Int kSums[] = {100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000};
struct Matrix {
  const char* name;
  Int rows, cols;
};
constexpr Matrix kSummed[] = {
    {"1e3x1e3", 1'000, 1'000}, {"1e4x1e4", 10'000, 10'000}, {"1e5x100", 100'000, 100}, {"100x1e5", 100, 100'000}};
constexpr Matrix kGelu[] = {
    {"1e3", 1, 1'000}, {"1e4", 1, 10'000}, {"1e5", 1, 100'000}, {"1e6", 1, 1'000'000}, {"1e7", 1, 10'000'000}};
constexpr Matrix kSoftmax[] = {{"64x10", 64, 10}, {"1024x1024", 1024, 1024}, {"32x50257", 32, 50257}};
constexpr Matrix kCrossEntropy[] = {{"64x10", 64, 10}, {"1024x1024", 1024, 1024}, {"32x50257", 32, 50257}};

/// Operands of what layers and losses are made of: [rows, columns], [images, channels, height, width], [batch, heads, places, width].
constexpr Int kTable[] = {1024, 512}, kImages[] = {32, 32, 32, 64}, kAttention[] = {8, 8, 256, 64};
constexpr Int kGroups = 4;  // of channels

/// 3x3 convolution, bias and ReLU of one image, size x size, same size out.
struct Conv {
  std::string name;
  Int in, out, size, dilation;
  bool backward;  // the gradients of image, weight and bias too
};
inline std::vector<Conv> convs() {
  std::vector<Conv> rows;
  const auto add = [&rows](const std::string& name, Int in, Int out, Int size, Int dilation) {
    for (const bool backward : {false, true})
      rows.push_back({"conv_" + name + (backward ? "_backward" : ""), in, out, size, dilation, backward});
  };
  for (const Int channels : {1, 2, 4, 8, 16, 32, 64})
    for (const Int size : {8, 16, 32, 64, 128, 256, 512})
      add(std::to_string(channels) + "_" + std::to_string(size), channels, channels, size, 1);
  for (Int dilation = 2; dilation <= 10; ++dilation)
    add("1_512_dilation" + std::to_string(dilation), 1, 1, 512, dilation);
  for (const Int in : {4, 9, 16, 25, 36, 49, 64}) add(std::to_string(in) + "to1_256", in, 1, 256, 1);
  return rows;
}
constexpr int kConvWarmCalls = 1;  // some take a large part of a second
/// Images, weights and, kConvBias added, biases, in multiples of 1/128: sums of their products are then exact in f32, and never
/// 0. Else one side would round to zero what is positive on the other, and ReLU's gradients would differ by more than rounding.
constexpr double kConvBias = 0x1p-15;
inline std::vector<float> conv_inputs(std::uint32_t stream, Int count, double scale = 1) {
  std::vector<float> values = inputs(stream, count, scale);
  for (float& value : values) value = std::nearbyint(value * 128) / 128;
  return values;
}

/// 1,000 sequences of 1 to 100 rows of width 64.
constexpr Int kSequences = 1000, kWidth = 64;
inline std::vector<Int> sequence_lengths() {
  std::vector<Int> lengths;
  for (Int i = 0; i < kSequences; ++i)
    lengths.push_back(1 + static_cast<Int>((input(7, static_cast<std::uint64_t>(i)) + 1) * 50));
  return lengths;
}

// Of the models: CNN on 1x28x28, LSTM over 32 steps, transformer with two layers of 4 heads over 64 places.
constexpr Int kCnnBatch = 32, kLstmWidth = 64, kLstmSteps = 32, kLstmBatch = 16;
constexpr Int kModelWidth = 64, kHeads = 4, kHidden = 256, kLayers = 2, kPlaces = 64, kModelBatch = 8;

/// GPUs: elements of what is large, made by repeating the first kRepeated of a stream; of a result with so many, the first and
/// last kShown are compared.
constexpr Int kLarge = Int{1} << 26, kRepeated = Int{1} << 20, kManyElements = Int{1} << 25, kShown = Int{1} << 15;
constexpr Int kManyConvImages = 32;
/// Heads of what attends within sequences, each of width kWidth / kSequenceHeads.
constexpr Int kSequenceHeads = 4, kEqualLength = 50;

/// Class of row i.
inline Int label(Int i, Int classes) {
  return static_cast<Int>((input(5, static_cast<std::uint64_t>(i)) + 1) * 0.5 * static_cast<double>(classes));
}

/// Where parameter i of a model with this shape starts: inputs of stream 1000 + i times this.
inline double start_scale(const std::vector<Int>& shape) {
  if (shape.size() < 2) return 0.1;
  Int fan_in = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= shape[i];
  return 1 / std::sqrt(static_cast<double>(fan_in));
}

}  // namespace bench
