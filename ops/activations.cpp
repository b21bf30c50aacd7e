#include "reel/ops/activations.h"

#include <cmath>
#include <numbers>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/parametric_op.h"
#include "reel/ops/unary.h"
#include "reel/ops/unary_op.h"

namespace reel {

namespace {

// 1 where low < x < high, 0 elsewhere.
Tensor between(const Tensor& x, double low, double high) {
  return cast(x > low, x.dtype()) * cast(x < high, x.dtype());
}

Tensor clipped(const char* op, const Tensor& x, const detail::Parameters& p, SourceLocation where) {
  if (!(p[2] <= p[3]))
    throw Error(std::string(op) + ": the lower bound must not be above the upper one, got " + std::to_string(p[2]) +
                    " and " + std::to_string(p[3]),
                where);
  return detail::parametric(ParametricOp::clipped_linear, op, x, p, where,
                            [](const Tensor& dy, const Tensor& x, const detail::Parameters& p) {
                              return detail::relu_mask(p[0] * dy,
                                                       untaped([&] { return between(p[0] * x + p[1], p[2], p[3]); }));
                            });
}

}  // namespace

Tensor gelu(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Gelu>(UnaryOp::gelu, "gelu", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor phi = exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return dy * (0.5 * erfc(x * -std::numbers::sqrt2 / 2) + x * phi);
  });
}

Tensor gelu_tanh(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::GeluTanh>(
      UnaryOp::gelu_tanh, "gelu_tanh", x, where, [](const Tensor& dy, const Tensor& x) {
        const double c = std::sqrt(2 / std::numbers::pi);
        const Tensor t = tanh(c * (x + 0.044715 * x * x * x));
        return dy * (0.5 * (1 + t) + 0.5 * c * x * (1 - t * t) * (1 + 3 * 0.044715 * x * x));
      });
}

Tensor silu(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Silu>(UnaryOp::silu, "silu", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor s = sigmoid(x);
    return dy * s * (1 + x * (1 - s));
  });
}

Tensor mish(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Mish>(UnaryOp::mish, "mish", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor t = tanh(softplus(x));
    return dy * (t + x * sigmoid(x) * (1 - t * t));
  });
}

Tensor softplus(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Softplus>(UnaryOp::softplus, "softplus", x, where,
                                         [](const Tensor& dy, const Tensor& x) { return dy * sigmoid(x); });
}

Tensor logsigmoid(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Logsigmoid>(UnaryOp::logsigmoid, "logsigmoid", x, where,
                                           [](const Tensor& dy, const Tensor& x) { return dy * sigmoid(neg(x)); });
}

Tensor hard_sigmoid(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::HardSigmoid>(
      UnaryOp::hard_sigmoid, "hard_sigmoid", x, where,
      [](const Tensor& dy, const Tensor& x) { return dy * (between(x, -3, 3) / 6); });
}

Tensor hard_tanh(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::HardTanh>(UnaryOp::hard_tanh, "hard_tanh", x, where,
                                         [](const Tensor& dy, const Tensor& x) { return dy * between(x, -1, 1); });
}

Tensor hard_swish(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::HardSwish>(UnaryOp::hard_swish, "hard_swish", x, where,
                                          [](const Tensor& dy, const Tensor& x) {
                                            return dy * (between(x, -3, 3) * (2 * x + 3) / 6 + cast(x >= 3, x.dtype()));
                                          });
}

Tensor dish(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Dish>(UnaryOp::dish, "dish", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor r = rsqrt(1 + x * x);
    return dy * 0.5 * (1 + x * r + x * r * r * r);
  });
}

Tensor clipped_linear(const Tensor& x, double slope, double offset, double low, double high, SourceLocation where) {
  return clipped("clipped_linear", x, {slope, offset, low, high}, where);
}

Tensor relu_k(const Tensor& x, double k, SourceLocation where) { return clipped("relu_k", x, {1, 0, 0, k}, where); }

Ragged gelu(const Ragged& x, SourceLocation where) { return x.with(gelu(x.values(), where)); }
Ragged gelu_tanh(const Ragged& x, SourceLocation where) { return x.with(gelu_tanh(x.values(), where)); }
Ragged silu(const Ragged& x, SourceLocation where) { return x.with(silu(x.values(), where)); }
Ragged mish(const Ragged& x, SourceLocation where) { return x.with(mish(x.values(), where)); }
Ragged softplus(const Ragged& x, SourceLocation where) { return x.with(softplus(x.values(), where)); }
Ragged logsigmoid(const Ragged& x, SourceLocation where) { return x.with(logsigmoid(x.values(), where)); }
Ragged hard_sigmoid(const Ragged& x, SourceLocation where) { return x.with(hard_sigmoid(x.values(), where)); }
Ragged hard_tanh(const Ragged& x, SourceLocation where) { return x.with(hard_tanh(x.values(), where)); }
Ragged hard_swish(const Ragged& x, SourceLocation where) { return x.with(hard_swish(x.values(), where)); }
Ragged dish(const Ragged& x, SourceLocation where) { return x.with(dish(x.values(), where)); }

Ragged clipped_linear(const Ragged& x, double slope, double offset, double low, double high, SourceLocation where) {
  return x.with(clipped_linear(x.values(), slope, offset, low, high, where));
}
Ragged relu_k(const Ragged& x, double k, SourceLocation where) { return x.with(relu_k(x.values(), k, where)); }

}  // namespace reel
