#pragma once

#include <cstdint>

#include "reel/backends/cuda/context.h"

namespace reel::cuda {

/// c = op(a) op(b) (+ bias down each column) (+ c if `accumulate`), in column-major terms, for each of `batch`
/// matrices: c [m, n], op(a) [m, k], op(b) [k, n]; an element (i, j) of x lies at x[i + j ldx]. bias [m] or null. bf16 and f16
/// are added up in f32, bias and c included, and rounded once.
struct Product {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType dtype = DType::f32;
  bool trans_a = false, trans_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements between the matrices of a batch
  const void* bias = nullptr;
  bool accumulate = false;
  bool tf32 = false;  // f32 operands may be rounded to TF32
};

/// Whether `multiply` takes a bias.
bool fuses_bias(DType dtype);

/// All sizes are at least 1. On a GPU by cuBLASLt (cublas.cpp); in tests without one, by Eigen (tests/cuda_on_cpu).
void multiply(const Context& context, const Product& product);

}  // namespace reel::cuda
