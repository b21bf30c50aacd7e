#pragma once

#include "reel/backends/cpu/gelu.h"
#include "reel/backends/cpu/piecewise_tables.h"

/// Activation functions of f32 whose loops are not those of their formula in core/scalar.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(REEL_SIMD_AVX512)
/// An op's polynomials: y = x P(x), or a bound of x and P(x), and dx = dy P(x).
template <class Op>
inline constexpr std::nullptr_t kValue = nullptr;
template <class Op>
inline constexpr std::nullptr_t kSlope = nullptr;

#define REEL_POLYNOMIALS(constant, Struct, table) \
  template <>                                     \
  inline constexpr const auto& constant<scalar::Struct> = table
REEL_POLYNOMIALS(kValue, Gelu, kGelu);
REEL_POLYNOMIALS(kSlope, Gelu, kGeluSlope);
REEL_POLYNOMIALS(kValue, GeluTanh, kGeluTanh);
REEL_POLYNOMIALS(kSlope, GeluTanh, kGeluTanhSlope);
REEL_POLYNOMIALS(kValue, Silu, kSigmoid);
REEL_POLYNOMIALS(kSlope, Silu, kSiluSlope);
REEL_POLYNOMIALS(kValue, Mish, kMish);
REEL_POLYNOMIALS(kSlope, Mish, kMishSlope);
REEL_POLYNOMIALS(kValue, Dish, kDish);
REEL_POLYNOMIALS(kSlope, Dish, kDishSlope);
REEL_POLYNOMIALS(kValue, Softplus, kSoftplus);
REEL_POLYNOMIALS(kSlope, Softplus, kSigmoid);
REEL_POLYNOMIALS(kValue, Logsigmoid, kLogsigmoid);
REEL_POLYNOMIALS(kSlope, Logsigmoid, kFallingSigmoid);
#undef REEL_POLYNOMIALS

template <class Op>
inline constexpr bool kIsActivation = !std::is_null_pointer_v<std::remove_cvref_t<decltype(kValue<Op>)>>;
template <class Op>
inline constexpr bool kIsActivationSlope = !std::is_null_pointer_v<std::remove_cvref_t<decltype(kSlope<Op>)>>;
#elif defined(__AVX2__)
template <class Op>
inline constexpr bool kIsActivation = std::is_same_v<Op, scalar::Gelu>;
template <class Op>
inline constexpr bool kIsActivationSlope = kIsActivation<Op>;
#else
template <class Op>
inline constexpr bool kIsActivation = false;
template <class Op>
inline constexpr bool kIsActivationSlope = false;
#endif

/// Whether the loop of the formula is needed, for all elements or for some.
#if defined(REEL_SIMD_AVX512)
inline constexpr bool kFormulaIsBeyond = true;
#else
inline constexpr bool kFormulaIsBeyond = false;
#endif
template <class Op>
inline constexpr bool kHasFormula = kFormulaIsBeyond || !kIsActivation<Op>;
template <class Op>
inline constexpr bool kHasSlopeFormula = kFormulaIsBeyond || !kIsActivationSlope<Op>;

/// y[i] = f(x[i]), and dx[i] = dy[i] f'(x[i]), for ops that are one. y may be x, dx may be x or dy. `formula` is the loop for what
/// no table has, with AVX-512, and for everything without AVX2.
template <class Op>
REEL_INLINE void run_activation(int64_t count, const float* x, float* y, [[maybe_unused]] bool past_caches,
                                [[maybe_unused]] Run formula) {
#if defined(REEL_SIMD_AVX512)
  run_piecewise(kValue<Op>, x, x, y, count, past_caches, formula);
#elif defined(__AVX2__)
  using Pair = Vec<float>[2];
  long_formula_of_vectors<2>(count, x, x, y, past_caches, [](const Pair& x_i, const Pair&, Pair& y_i, const float*) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) y_i[v] = Gelu::value(x_i[v]);
  });
#else
  formula(x, x, y, count);
#endif
}
template <class Op>
REEL_INLINE void run_activation_backward(int64_t count, const float* x, const float* dy, float* dx,
                                         [[maybe_unused]] bool past_caches, [[maybe_unused]] Run formula) {
#if defined(REEL_SIMD_AVX512)
  run_piecewise(kSlope<Op>, x, dy, dx, count, past_caches, formula);
#elif defined(__AVX2__)
  using Pair = Vec<float>[2];
  const auto gradients = [](const Pair& x_i, const Pair& dy_i, Pair& dx_i, const float*) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) dx_i[v] = dy_i[v] * Gelu::derivative(x_i[v]);
  };
  long_formula_of_vectors<2>(count, x, dy, dx, past_caches, gradients);
#else
  formula(x, dy, dx, count);
#endif
}

}  // namespace reel::cpu::REEL_CPU_ISA
