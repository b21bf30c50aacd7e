#pragma once

#include <cstdint>

namespace reel {

/// Elementwise functions of one argument. Each has a struct in `reel/core/scalar/unary.h` with its formula and
/// derivative. X(name, Struct)
#define REEL_UNARY_OPS(X)      \
  X(neg, Neg)                  \
  X(exp, Exp)                  \
  X(log, Log)                  \
  X(tanh, Tanh)                \
  X(sigmoid, Sigmoid)          \
  X(relu, Relu)                \
  X(sqrt, Sqrt)                \
  X(square, Square)            \
  X(cube, Cube)                \
  X(abs, Abs)                  \
  X(expm1, Expm1)              \
  X(log1p, Log1p)              \
  X(rsqrt, Rsqrt)              \
  X(sin, Sin)                  \
  X(cos, Cos)                  \
  X(erf, Erf)                  \
  X(erfc, Erfc)                \
  X(lgamma, Lgamma)            \
  X(digamma, Digamma)          \
  X(sign, Sign)                \
  X(gelu, Gelu)                \
  X(gelu_tanh, GeluTanh)       \
  X(silu, Silu)                \
  X(mish, Mish)                \
  X(softplus, Softplus)        \
  X(logsigmoid, Logsigmoid)    \
  X(hard_sigmoid, HardSigmoid) \
  X(hard_tanh, HardTanh)       \
  X(hard_swish, HardSwish)     \
  X(dish, Dish)                \
  X(log1mexp, Log1mexp)        \
  X(logit, Logit)              \
  X(log_ndtr, LogNdtr)

/// Elementwise functions of two arguments, in `reel/core/scalar/binary.h`; those from logaddexp to bce_slope are of fractions
/// alone. The comparisons come last and give bool8.
#define REEL_BINARY_OPS(X)           \
  X(add, Add)                        \
  X(sub, Sub)                        \
  X(mul, Mul)                        \
  X(div, Div)                        \
  X(maximum, Maximum)                \
  X(minimum, Minimum)                \
  X(pow, Pow)                        \
  X(relu_mask, ReluMask)             \
  X(logaddexp, Logaddexp)            \
  X(logaddexp_slope, LogaddexpSlope) \
  X(bce, Bce)                        \
  X(bce_slope, BceSlope)             \
  X(equal, Equal)                    \
  X(not_equal, NotEqual)             \
  X(less, Less)                      \
  X(less_equal, LessEqual)           \
  X(greater, Greater)                \
  X(greater_equal, GreaterEqual)

/// Elementwise functions of one argument with parameters, in `reel/core/scalar/parametric.h`. X(name, Struct)
#define REEL_PARAMETRIC_OPS(X)     \
  X(clipped_linear, ClippedLinear) \
  X(leaky_relu, LeakyRelu)         \
  X(elu, Elu)                      \
  X(clamp, Clamp)                  \
  X(huber, Huber)

#define REEL_NAME(name, Struct) name,
enum class UnaryOp : std::uint8_t { REEL_UNARY_OPS(REEL_NAME) };
enum class BinaryOp : std::uint8_t { REEL_BINARY_OPS(REEL_NAME) };
enum class ParametricOp : std::uint8_t { REEL_PARAMETRIC_OPS(REEL_NAME) };
#undef REEL_NAME

#define REEL_ONE(name, Struct) +1
inline constexpr int kUnaryOps = 0 REEL_UNARY_OPS(REEL_ONE);
inline constexpr int kBinaryOps = 0 REEL_BINARY_OPS(REEL_ONE);
inline constexpr int kParametricOps = 0 REEL_PARAMETRIC_OPS(REEL_ONE);
#undef REEL_ONE

}  // namespace reel
