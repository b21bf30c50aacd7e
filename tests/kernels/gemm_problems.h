#pragma once

// For tests of products: problems, and what the contract says of them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "reel/backends/cpu/cpu.h"
#include "reel/core/ops.h"

namespace reel::gemm_testing {

/// Sizes, layouts and options of one call; `pad_*` makes rows longer than they need to be.
struct Case {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  bool trans_a = false, trans_b = false;
  std::int64_t pad_a = 0, pad_b = 0, pad_c = 0;
  bool share_a = false, share_b = false;  // one matrix for the whole batch
  bool bias = false, relu = false, accumulate = false;

  std::string str() const {
    return "m " + std::to_string(m) + " n " + std::to_string(n) + " k " + std::to_string(k) + " batch " +
           std::to_string(batch) + (trans_a ? " trans_a" : "") + (trans_b ? " trans_b" : "") + " pads " +
           std::to_string(pad_a) + " " + std::to_string(pad_b) + " " + std::to_string(pad_c) +
           (share_a ? " share_a" : "") + (share_b ? " share_b" : "") + (bias ? " bias" : "") + (relu ? " relu" : "") +
           (accumulate ? " accumulate" : "");
  }
};

/// What a sentinel holds: a value that no product gives.
template <class T>
constexpr T kSentinel = static_cast<T>(-12345.5);

/// sums[j] += a[k] b[k, j] for all j, k by k: the contract, where the instruction set has fma ...
template <class T>
__attribute__((target("fma"))) void add_fused(std::int64_t k, const T* a, const T* b, std::vector<T>& sums) {
  const auto n = static_cast<std::int64_t>(sums.size());
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t j = 0; j < n; ++j) sums[j] = std::fma(a[p], b[p * n + j], sums[j]);
}
/// ... and where it has none.
template <class T>
void add_rounded_products(std::int64_t k, const T* a, const T* b, std::vector<T>& sums) {
  const auto n = static_cast<std::int64_t>(sums.size());
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t j = 0; j < n; ++j) sums[j] += a[p] * b[p * n + j];
}

/// Operands and result of a Case. c has sentinels in the pads of its rows, between matrices, and before and after all.
template <class T>
struct Problem {
  Case shape;
  std::vector<T> a, b, c, bias;
  Gemm gemm;

  static constexpr std::int64_t kGuard = 64;  // elements before and after c
  std::int64_t gap() const { return shape.batch > 1 ? 5 : 0; }

  template <class Random>
  Problem(const Case& shape, Random&& random) : shape(shape) {
    const Case& s = shape;
    Gemm& g = gemm;
    g.m = s.m, g.n = s.n, g.k = s.k, g.batch = s.batch;
    g.dtype = dtype_of<T>;
    g.trans_a = s.trans_a, g.trans_b = s.trans_b;
    g.lda = (s.trans_a ? s.m : s.k) + s.pad_a;
    g.ldb = (s.trans_b ? s.k : s.n) + s.pad_b;
    g.ldc = s.n + s.pad_c;
    const std::int64_t a_size = (s.trans_a ? s.k : s.m) * g.lda, b_size = (s.trans_b ? s.n : s.k) * g.ldb;
    g.stride_a = s.share_a ? 0 : a_size;
    g.stride_b = s.share_b ? 0 : b_size;
    g.stride_c = s.m * g.ldc + gap();
    a.resize(s.share_a ? a_size : a_size * s.batch);
    b.resize(s.share_b ? b_size : b_size * s.batch);
    for (T& x : a) x = random();
    for (T& x : b) x = random();
    c.assign(2 * kGuard + g.stride_c * s.batch, kSentinel<T>);
    if (s.accumulate)
      each_element([&](std::int64_t i, std::int64_t r, std::int64_t j) { c[index(i, r, j)] = random(); });
    if (s.bias)
      for (std::int64_t j = 0; j < s.n; ++j) bias.push_back(random());
    g.accumulate = s.accumulate;
    g.epilogue = s.relu ? Epilogue::relu : Epilogue::none;
  }

  std::int64_t index(std::int64_t i, std::int64_t row, std::int64_t column) const {
    return kGuard + i * gemm.stride_c + row * gemm.ldc + column;
  }
  T at_a(std::int64_t i, std::int64_t row, std::int64_t k) const {
    return a[i * gemm.stride_a + (shape.trans_a ? k * gemm.lda + row : row * gemm.lda + k)];
  }
  T at_b(std::int64_t i, std::int64_t k, std::int64_t column) const {
    return b[i * gemm.stride_b + (shape.trans_b ? column * gemm.ldb + k : k * gemm.ldb + column)];
  }
  template <class F>
  void each_element(F&& f) const {
    for (std::int64_t i = 0; i < shape.batch; ++i)
      for (std::int64_t r = 0; r < shape.m; ++r)
        for (std::int64_t j = 0; j < shape.n; ++j) f(i, r, j);
  }

  /// c as the CPU computes it.
  std::vector<T> compute() const {
    std::vector<T> result = c;
    Gemm g = gemm;
    g.a = a.data();
    g.b = b.data();
    g.c = result.data() + kGuard;
    g.bias = bias.empty() ? nullptr : bias.data();
    backend(Device::cpu()).gemm(g);
    return result;
  }

  /// c by the contract, one chain per element.
  std::vector<T> expected() const {
    const auto add = std::strcmp(cpu::isa_name(), "v2") != 0 ? add_fused<T> : add_rounded_products<T>;
    const auto [m, n, k] = std::tuple(shape.m, shape.n, shape.k);
    std::vector<T> result = c, row(k), matrix(k * n), sums(n);
    for (std::int64_t i = 0; i < shape.batch; ++i) {
      for (std::int64_t p = 0; p < k; ++p)
        for (std::int64_t j = 0; j < n; ++j) matrix[p * n + j] = at_b(i, p, j);
      for (std::int64_t r = 0; r < m; ++r) {
        for (std::int64_t p = 0; p < k; ++p) row[p] = at_a(i, r, p);
        T* y = result.data() + index(i, r, 0);
        for (std::int64_t j = 0; j < n; ++j) sums[j] = shape.accumulate ? y[j] : T(0);
        add(k, row.data(), matrix.data(), sums);
        for (std::int64_t j = 0; j < n; ++j) {
          if (shape.bias) sums[j] += bias[j];
          y[j] = shape.relu && sums[j] < 0 ? T(0) : sums[j];
        }
      }
    }
    return result;
  }
};

/// Equal bits, but for the sign and payload of NaN.
template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : std::memcmp(&got[i], &want[i], sizeof(T)) == 0;
    ASSERT_TRUE(same) << what << ": element " << i << " of the buffer is " << got[i] << ", not " << want[i];
  }
}

}  // namespace reel::gemm_testing
