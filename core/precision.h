#pragma once

#include <cstdint>

#include "reel/core/source_location.h"

namespace reel {

/// How exactly GPUs compute products of f32 matrices (matmul, linear, recurrent layers). The CPU, and f64, are always exact, as
/// are the products that solvers and factors of matrices are made of (cholesky, solve, inverse ...).
enum class MatmulPrecision : std::uint8_t {
  highest,  ///< in f32
  high,  ///< in TF32: what is multiplied is rounded to 10 bits of mantissa first (relative error about 1e-3), sums stay
         ///< f32; several times as fast for large matrices on GPUs from Ampere on, as `highest` on older ones
};

/// `highest` at first. For all threads, from the next product on.
REEL_API MatmulPrecision matmul_precision();
REEL_API void set_matmul_precision(MatmulPrecision precision);

namespace detail {
/// While one lives, matmul_precision() is `highest` in this thread.
class REEL_API ExactProducts {
 public:
  ExactProducts();
  ~ExactProducts();
  ExactProducts(const ExactProducts&) = delete;
  ExactProducts& operator=(const ExactProducts&) = delete;

 private:
  bool before_;
};
}  // namespace detail

}  // namespace reel
