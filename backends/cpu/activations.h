#pragma once

#include "reel/backends/cpu/gelu.h"
#include "reel/backends/cpu/piecewise_tables.h"

/// Activation functions of f32, and erf and erfc, whose loops are not those of their formula in core/scalar.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(REEL_SIMD_AVX512)
/// An op's polynomials and what is made of them: y, and dx.
template <class Op>
struct ValueOf;
template <class Op>
struct SlopeOf;

#define REEL_POLYNOMIALS(Of, Struct, table, what)     \
  template <>                                         \
  struct Of<scalar::Struct> {                         \
    static constexpr const auto& polynomials = table; \
    static constexpr Makes makes = Makes::what;       \
  }
REEL_POLYNOMIALS(ValueOf, Gelu, kGelu, product);
REEL_POLYNOMIALS(SlopeOf, Gelu, kGeluSlope, product);
REEL_POLYNOMIALS(ValueOf, GeluTanh, kGeluTanh, product);
REEL_POLYNOMIALS(SlopeOf, GeluTanh, kGeluTanhSlope, product);
REEL_POLYNOMIALS(ValueOf, Silu, kSigmoid, product);
REEL_POLYNOMIALS(SlopeOf, Silu, kSiluSlope, product);
REEL_POLYNOMIALS(ValueOf, Mish, kMish, product);
REEL_POLYNOMIALS(SlopeOf, Mish, kMishSlope, product);
REEL_POLYNOMIALS(ValueOf, Dish, kDish, product);
REEL_POLYNOMIALS(SlopeOf, Dish, kDishSlope, product);
REEL_POLYNOMIALS(ValueOf, Softplus, kSoftplus, larger);
REEL_POLYNOMIALS(SlopeOf, Softplus, kSigmoid, product);
REEL_POLYNOMIALS(ValueOf, Logsigmoid, kLogsigmoid, smaller);
REEL_POLYNOMIALS(SlopeOf, Logsigmoid, kFallingSigmoid, product);
REEL_POLYNOMIALS(ValueOf, Sigmoid, kSigmoid, value);
REEL_POLYNOMIALS(ValueOf, Tanh, kTanh, odd);
REEL_POLYNOMIALS(ValueOf, Erf, kErf, odd);
REEL_POLYNOMIALS(ValueOf, Erfc, kErfc, value);
#undef REEL_POLYNOMIALS

template <class Op>
inline constexpr bool kIsActivation = requires {
  ValueOf<Op>::polynomials;
};
template <class Op>
inline constexpr bool kIsActivationSlope = requires {
  SlopeOf<Op>::polynomials;
};
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
  using Of = ValueOf<Op>;
  run_piecewise(Of::makes, Of::polynomials.function, Of::polynomials.powers, x, x, y, count, past_caches, formula);
#elif defined(__AVX2__)
  using V = Vec<float>;
  long_formula_of_vectors<2>(count, x, x, y, past_caches, [](const float* x_i, const float*, V(&y_i)[2]) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) y_i[v] = Gelu::value(V::load(x_i + v * V::width));
  });
#else
  formula(x, x, y, count);
#endif
}
template <class Op>
REEL_INLINE void run_activation_backward(int64_t count, const float* x, const float* dy, float* dx,
                                         [[maybe_unused]] bool past_caches, [[maybe_unused]] Run formula) {
#if defined(REEL_SIMD_AVX512)
  using Of = SlopeOf<Op>;
  run_piecewise(Of::makes, Of::polynomials.function, Of::polynomials.powers, x, dy, dx, count, past_caches, formula);
#elif defined(__AVX2__)
  using V = Vec<float>;
  long_formula_of_vectors<2>(count, x, dy, dx, past_caches, [](const float* x_i, const float* dy_i, V(&dx_i)[2]) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) dx_i[v] = V::load(dy_i + v * V::width) * Gelu::derivative(V::load(x_i + v * V::width));
  });
#else
  formula(x, dy, dx, count);
#endif
}

}  // namespace reel::cpu::REEL_CPU_ISA
