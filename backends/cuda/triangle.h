#pragma once

#include "reel/backends/cuda/kernel.h"

// What the decompositions of batches of row-major matrices share: a matrix is cut into blocks of kBlock rows, with kernels
// inside a block and products between blocks.

namespace reel::cuda {

inline constexpr int kBlock = 32;  // lanes of a warp, and what a thread keeps in registers

/// A part of each matrix of a batch: where it begins in the first, elements from row to row and from matrix to matrix.
template <class T>
struct Batch {
  T* data;
  int64_t row, matrix;

  Batch at(int64_t i, int64_t j) const { return {data + i * row + j, row, matrix}; }
};

/// Triangular matrices and the form in which they are used.
template <class T>
struct Triangle {
  Batch<const T> a;
  bool upper, transposed, unit;

  __host__ __device__ bool forward() const { return upper == transposed; }  // solved from the first row on
};

/// c -= op(a) op(b) for each matrix of a batch; c [m, n], k >= 1.
struct BatchProduct {
  int64_t m, n, k, batch;
  bool trans_a = false, trans_b = false;
};
template <class T>
void subtract_product(CudaOps& ops, const BatchProduct& product, Batch<const T> a, Batch<const T> b, Batch<T> c);

/// Solves op(a) x = x for the first `rows` <= kBlock rows of a; element (r, j) of x lies at x.data + r x.row + j column.
template <class T>
void solve_block(const Context& context, const Triangle<T>& a, int64_t rows, Batch<T> x, int64_t column, int64_t k,
                 int64_t batch);

}  // namespace reel::cuda
