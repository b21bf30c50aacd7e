#pragma once

#include <cstdint>

namespace reel {

/// Elementwise functions of one argument. Each has a struct in `reel/core/scalar/unary.h` with its formula and derivative.
/// X(name, Struct)
#define REEL_UNARY_OPS(X) \
  X(neg, Neg)             \
  X(exp, Exp)             \
  X(log, Log)             \
  X(tanh, Tanh)           \
  X(sigmoid, Sigmoid)     \
  X(relu, Relu)           \
  X(sqrt, Sqrt)           \
  X(square, Square)       \
  X(abs, Abs)

/// Elementwise functions of two arguments, in `reel/core/scalar/binary.h`. The comparisons come last and give bool8.
#define REEL_BINARY_OPS(X)   \
  X(add, Add)                \
  X(sub, Sub)                \
  X(mul, Mul)                \
  X(div, Div)                \
  X(maximum, Maximum)        \
  X(minimum, Minimum)        \
  X(relu_mask, ReluMask)     \
  X(equal, Equal)            \
  X(not_equal, NotEqual)     \
  X(less, Less)              \
  X(less_equal, LessEqual)   \
  X(greater, Greater)        \
  X(greater_equal, GreaterEqual)

#define REEL_NAME(name, Struct) name,
enum class UnaryOp : std::uint8_t { REEL_UNARY_OPS(REEL_NAME) };
enum class BinaryOp : std::uint8_t { REEL_BINARY_OPS(REEL_NAME) };
#undef REEL_NAME

}  // namespace reel
