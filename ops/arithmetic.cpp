#include "reel/ops/arithmetic.h"

#include <algorithm>
#include <string>

#include "reel/core/fits.h"
#include "reel/core/given_numbers.h"
#include "reel/core/scalar/binary.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/promote.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/unary_op.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::promoted;

// An operand kept for backward.
struct Side {
  Tensor tensor;
  Scalar scalar;

  operator Arg() const {
    if (tensor.defined()) return Arg(tensor, SourceLocation{});
    return scalar.integral ? Arg(scalar.integer, SourceLocation{}) : Arg(scalar.real, SourceLocation{});
  }
};

// One binary op and its gradients, in recorded ops, so that they can be differentiated again. `has_slopes`: one kernel computes
// both too.
struct Add {
  static constexpr BinaryOp op = BinaryOp::add;
  static constexpr const char* name = "add";
  static constexpr bool saves_sides = false, saves_result = false;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Add>;
  static Tensor left(Tensor dy, const Side&, const Side&, const Tensor&) { return dy; }
  static Tensor right(Tensor dy, const Side&, const Side&, const Tensor&) { return dy; }
};
struct Sub {
  static constexpr BinaryOp op = BinaryOp::sub;
  static constexpr const char* name = "sub";
  static constexpr bool saves_sides = false, saves_result = false;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Sub>;
  static Tensor left(Tensor dy, const Side&, const Side&, const Tensor&) { return dy; }
  static Tensor right(const Tensor& dy, const Side&, const Side&, const Tensor&) { return neg(dy); }
};
struct Mul {
  static constexpr BinaryOp op = BinaryOp::mul;
  static constexpr const char* name = "mul";
  static constexpr bool saves_sides = true, saves_result = false;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Mul>;
  static Tensor left(const Tensor& dy, const Side&, const Side& b, const Tensor&) { return dy * Arg(b); }
  static Tensor right(const Tensor& dy, const Side& a, const Side&, const Tensor&) { return dy * Arg(a); }
};
struct Div {
  static constexpr BinaryOp op = BinaryOp::div;
  static constexpr const char* name = "div";
  static constexpr bool saves_sides = true, saves_result = true;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Div>;
  static Tensor left(const Tensor& dy, const Side&, const Side& b, const Tensor&) { return dy / Arg(b); }
  static Tensor right(const Tensor& dy, const Side&, const Side& b, const Tensor& y) { return neg(dy * y / Arg(b)); }
};

// dy times 0 where less < more, so that the side loses, 1/2 where both are equal, else 1: where either is NaN both sides have the
// gradient, so that it shows.
[[gnu::cold, gnu::noinline]] Tensor share(const Tensor& dy, const Side& less, const Side& more) {
  const Tensor loses = Arg(less) < Arg(more), even = Arg(less) == Arg(more);
  return dy * (1 - cast(loses, dy.dtype()) - 0.5 * cast(even, dy.dtype()));
}
struct Maximum {
  static constexpr BinaryOp op = BinaryOp::maximum;
  static constexpr const char* name = "maximum";
  static constexpr bool saves_sides = true, saves_result = false;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Maximum>;
  static Tensor left(const Tensor& dy, const Side& a, const Side& b, const Tensor&) { return share(dy, a, b); }
  static Tensor right(const Tensor& dy, const Side& a, const Side& b, const Tensor&) { return share(dy, b, a); }
};
struct Minimum {
  static constexpr BinaryOp op = BinaryOp::minimum;
  static constexpr const char* name = "minimum";
  static constexpr bool saves_sides = true, saves_result = false;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Minimum>;
  static Tensor left(const Tensor& dy, const Side& a, const Side& b, const Tensor&) { return share(dy, b, a); }
  static Tensor right(const Tensor& dy, const Side& a, const Side& b, const Tensor&) { return share(dy, a, b); }
};

// Where the formula has no finite value although the gradient is 0, it is taken of a = 1.
struct Pow {
  static constexpr BinaryOp op = BinaryOp::pow;
  static constexpr const char* name = "pow";
  static constexpr bool saves_sides = true, saves_result = true;
  static constexpr bool has_slopes = scalar::HasSlopes<scalar::Pow>;
  static Tensor left(const Tensor& dy, const Side& a, const Side& b, const Tensor&) {
    if (!b.tensor.defined()) {
      const double exponent = b.scalar.real;
      return exponent == 0 ? 0 * dy : exponent * dy * pow(Arg(a), exponent - 1);
    }
    const Tensor some = untaped([&] { return logical_or(b.tensor != 0, isfinite(1 / a.tensor)); });
    return dy * b.tensor * pow(reel::where(some, a.tensor, 1), b.tensor - 1);
  }
  static Tensor right(const Tensor& dy, const Side& a, const Side& b, const Tensor& y) {
    const Tensor base = a.tensor.defined() ? a.tensor : full({}, a.scalar, dy.options());
    const Tensor flat = untaped([&] { return logical_and(base == 0, b.tensor >= 0); });
    return dy * y * log(reel::where(flat, 1, base));
  }
};

// --- computing --------------------------------------------------------------------------------------------------------

Operand operand(const Arg& x) {
  return x.is_tensor() ? Operand{.array = &x.tensor().array()} : Operand{.scalar = x.scalar()};
}

void add_summed(Gradients& g, int input, Tensor dx) {
  g.add(input, g.has_shape(input, dx.shape()) ? std::move(dx) : detail::sum_to(dx, g.shape(input)));
}

// Where both sides lie as dy does, or one is a number: one pass.
template <class Rule>
bool add_by_slopes(Gradients& g, const Side& a, const Side& b) {
  const Tensor& dy = g.dy();
  const auto fits = [&](const Side& side) {
    return !side.tensor.defined() || (side.tensor.array().contiguous && side.tensor.shape() == dy.shape());
  };
  if (g.recording() || !dy.array().contiguous || !fits(a) || !fits(b)) return false;
  if (dy.dtype() != f32 && dy.dtype() != f64) return false;
  Tensor da, db;
  if (g.needs(0)) da = empty_like(dy);
  if (g.needs(1)) db = empty_like(dy);
  const auto operand_of = [](const Side& side) {
    return side.tensor.defined() ? Operand{.array = &side.tensor.array()} : Operand{.scalar = side.scalar};
  };
  backend(dy.device())
      .binary_backward(Rule::op, operand_of(a), operand_of(b), dy.array(), da.defined() ? &da.array() : nullptr,
                       db.defined() ? &db.array() : nullptr);
  if (da.defined()) g.add(0, std::move(da));
  if (db.defined()) g.add(1, std::move(db));
  return true;
}

template <class Rule>
void add_sides(Gradients& g, const Side& a, const Side& b, const Tensor& y) {
  const bool left = g.needs(0), right = g.needs(1);
  if constexpr (Rule::has_slopes) {
    // A product with one gradient is one pass as it is.
    if ((Rule::op != BinaryOp::mul || (left && right)) && add_by_slopes<Rule>(g, a, b)) return;
  }
  if (left && right) add_summed(g, 0, Rule::left(g.dy(), a, b, y));
  else if (left) add_summed(g, 0, Rule::left(g.take_dy(), a, b, y));
  if (right) add_summed(g, 1, Rule::right(g.take_dy(), a, b, y));
}

template <class Rule>
void record_binary(const Arg& a, const Arg& b, const Tensor& y, SourceLocation where) {
  const Tensor& none = detail::undefined_tensor;
  const Tensor& left = a.is_tensor() ? a.tensor() : none;
  const Tensor& right = b.is_tensor() ? b.tensor() : none;
  const Scalar number = (a.is_tensor() ? b : a).scalar();
  const detail::GivenNumbers given(&number, a.is_tensor() != b.is_tensor());
  if constexpr (Rule::op == BinaryOp::mul) {
    if (left.state() == right.state() && (y.dtype() == f32 || y.dtype() == f64))  // one pass
      return detail::record_op(Rule::name, where, {&left}, y, {&left}, [left](Gradients& g) {
        g.add(0, detail::unary_gradient(detail::kSquare, g.dy(), left));
      });
  }
  if constexpr (!Rule::saves_sides && !Rule::saves_result) {
    detail::record_op(Rule::name, where, {&left, &right}, y, {},
                      [](Gradients& g) { add_sides<Rule>(g, {}, {}, detail::undefined_tensor); });
  } else {
    const Tensor& result = Rule::saves_result ? y : none;
    detail::record_op(Rule::name, where, {&left, &right}, y, {&left, &right, &result},
                      [x = Side{left, a.scalar()}, z = Side{right, b.scalar()}, result](Gradients& g) {
                        add_sides<Rule>(g, x, z, result);
                      });
  }
}

void check_operands(const char* op, const Arg& a, const Arg& b, SourceLocation where) {
  if (!a.is_tensor() && !b.is_tensor()) throw Error(std::string(op) + ": one operand must be a tensor", where);
  detail::now_running(op, where);
  for (const Arg* operand : {&a, &b})
    if (operand->is_tensor() && !operand->tensor().defined())
      check::defined(op, operand == &a ? "the left operand" : "the right operand", operand->tensor(), where);
  if (a.is_tensor() && b.is_tensor() && !(a.tensor().device() == b.tensor().device()))
    throw DeviceError(std::string(op) + ": both operands must be on one device, got " + a.tensor().device().name() +
                          " and " + b.tensor().device().name(),
                      where);
}

// A number in a tensor without axes on the CPU, beside a tensor elsewhere: it goes there.
bool travels(const Arg& number, const Arg& other) {
  return number.is_tensor() && other.is_tensor() && number.tensor().defined() && other.tensor().defined() &&
         number.tensor().rank() == 0 && number.tensor().device().is_cpu() && !other.tensor().device().is_cpu();
}

// Calls f with both operands on one device, if one of them travels.
template <class F>
Tensor on_one_device(const Arg& a, const Arg& b, F&& f) {
  if (travels(a, b)) {
    const Tensor x = to(a.tensor(), b.tensor().device(), a.where());
    return f(Arg(x, a.where()), b);
  }
  const Tensor y = to(b.tensor(), a.tensor().device(), b.where());
  return f(a, Arg(y, b.where()));
}

// Both of one dtype by now.
Tensor computed(BinaryOp op, const char* name, const Arg& a, const Arg& b, bool compares, SourceLocation where) {
  const Tensor& some = a.is_tensor() ? a.tensor() : b.tensor();
  const TensorOptions options{.dtype = compares ? bool8 : some.dtype(), .device = some.device()};
  Ops& ops = backend(some.device());
  if (!a.is_tensor() || !b.is_tensor() || a.tensor().shape() == b.tensor().shape()) {
    Tensor y = empty(some.shape(), options);
    ops.binary(op, operand(a), operand(b), y.array());
    return y;
  }
  Tensor y = empty(check::broadcast(name, a.tensor().shape(), b.tensor().shape(), where), options);
  const Tensor left = detail::broadcast_view(a.tensor(), y.shape()),
               right = detail::broadcast_view(b.tensor(), y.shape());
  ops.binary(op, {.array = &left.array()}, {.array = &right.array()}, y.array());
  return y;
}

// Calls f with both operands in `dtype`.
template <class F>
Tensor with_common(const Arg& a, const Arg& b, DType dtype, F&& f) {
  const Tensor left = a.is_tensor() ? cast(a.tensor(), dtype, a.where()) : Tensor();
  const Tensor right = b.is_tensor() ? cast(b.tensor(), dtype, b.where()) : Tensor();
  return f(a.is_tensor() ? Arg(left, a.where()) : a, b.is_tensor() ? Arg(right, b.where()) : b);
}

// A number beyond an integer's type would become another one in silence. Beside u8 negative ones wrap around as its sums do,
// but where it counts which is larger.
void check_number(BinaryOp op, const char* name, const Arg& x, DType dtype, SourceLocation where) {
  if (x.is_tensor()) return;
  const double number = x.scalar().real;
  const bool wraps = dtype == u8 && op != BinaryOp::maximum && op != BinaryOp::minimum && number < 0 && number >= -255;
  if (!wraps) detail::check_fits(name, x.scalar(), dtype, where);
}

template <class Rule>
Tensor apply(const Arg& a, const Arg& b);

template <class Rule>
__attribute__((noinline)) Tensor apply_unlike(const Arg& a, const Arg& b) {
  const SourceLocation where = a.is_tensor() ? a.where() : b.where();
  if (travels(a, b) || travels(b, a)) [[unlikely]]
    return on_one_device(a, b, [](const Arg& x, const Arg& y) { return apply<Rule>(x, y); });
  check_operands(Rule::name, a, b, where);
  DType dtype = promoted(a, b);
  if (Rule::op == BinaryOp::div && !is_floating(dtype)) dtype = f32;
  const bool same = (!a.is_tensor() || a.tensor().dtype() == dtype) && (!b.is_tensor() || b.tensor().dtype() == dtype);
  if (!same) return with_common(a, b, dtype, [](const Arg& x, const Arg& y) { return apply<Rule>(x, y); });
  if (dtype == bool8 && (Rule::op == BinaryOp::sub || Rule::op == BinaryOp::pow))
    throw DTypeError(std::string(Rule::name) + ": operands must be numbers, got two bool8", where);
  if (!is_floating(dtype))
    for (const Arg* x : {&a, &b}) check_number(Rule::op, Rule::name, *x, dtype, where);
  Tensor y = computed(Rule::op, Rule::name, a, b, false, where);
  if (detail::taping()) record_binary<Rule>(a, b, y, where);
  return y;
}

// What most operands are: two tensors of numbers that need no promotion and no broadcasting.
bool alike(const Arg& a, const Arg& b) {
  if (!a.is_tensor() || !b.is_tensor() || !a.tensor().defined() || !b.tensor().defined()) return false;
  const Array &x = a.tensor().array(), &y = b.tensor().array();
  return x.dtype == y.dtype && x.dtype != bool8 && x.device == y.device && x.shape == y.shape;
}

template <class Rule>
Tensor apply(const Arg& a, const Arg& b) {
  if (!alike(a, b) || (Rule::op == BinaryOp::div && !is_floating(a.tensor().dtype()))) return apply_unlike<Rule>(a, b);
  const Array &x = a.tensor().array(), &z = b.tensor().array();
  detail::now_running(Rule::name, a.where());
  Tensor y = empty_like(a.tensor(), SourceLocation{});
  backend(x.device).binary(Rule::op, {.array = &x}, {.array = &z}, y.array());
  if (detail::taping()) record_binary<Rule>(a, b, y, a.where());
  return y;
}

// Numbers beyond an integer's type are compared as what they are, not as what is left of them in it.
DType compared(const Arg& a, const Arg& b) {
  const DType dtype = promoted(a, b);
  if (a.is_tensor() && b.is_tensor()) return dtype;
  const Scalar number = (a.is_tensor() ? b : a).scalar();
  const bool fits = dtype == u8 ? number.integer >= 0 && number.integer <= 255
                                : static_cast<std::int32_t>(number.integer) == number.integer;
  return !fits && (dtype == u8 || dtype == i32) ? i64 : dtype;
}

Tensor compare(BinaryOp op, const char* name, const Arg& a, const Arg& b) {
  const SourceLocation where = a.is_tensor() ? a.where() : b.where();
  if (travels(a, b) || travels(b, a)) [[unlikely]]
    return on_one_device(a, b, [&](const Arg& x, const Arg& y) { return compare(op, name, x, y); });
  check_operands(name, a, b, where);
  const Tensor y = with_common(a, b, compared(a, b), [&](const Arg& x, const Arg& y) {
    detail::now_running(name, where);  // no longer a cast
    return computed(op, name, x, y, true, where);
  });
  detail::ran(name, where, {&(a.is_tensor() ? a : b).tensor()}, y);
  return y;
}

}  // namespace

Tensor add(const Arg& a, const Arg& b) { return apply<Add>(a, b); }
Tensor sub(const Arg& a, const Arg& b) { return apply<Sub>(a, b); }
Tensor mul(const Arg& a, const Arg& b) { return apply<Mul>(a, b); }
Tensor div(const Arg& a, const Arg& b) { return apply<Div>(a, b); }
Tensor maximum(const Arg& a, const Arg& b) { return apply<Maximum>(a, b); }
Tensor minimum(const Arg& a, const Arg& b) { return apply<Minimum>(a, b); }

namespace {

constexpr detail::Unary kCube =
    detail::unary_function<scalar::Cube>(UnaryOp::cube, "pow", [](const Tensor& x) { return 6 * x; });

}  // namespace

Tensor pow(const Arg& a, const Arg& b) {
  const SourceLocation where = a.is_tensor() ? a.where() : b.where();
  check_operands("pow", a, b, where);
  if (b.is_tensor()) return apply<Pow>(a, b);
  const DType dtype = promoted(a, b);
  const double exponent = b.scalar().real;
  if (!is_floating(dtype)) {
    if (exponent < 0)
      throw Error("pow: integers need an exponent of at least 0, got " + std::to_string(b.scalar().integer), where);
    return apply<Pow>(a, b);
  }
  const Tensor x = cast(a.tensor(), dtype);
  check::floating("pow", "a", x, where);
  if (exponent == 2) return square(x);
  if (exponent == 3) return detail::unary(kCube, x, where);
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -0.5) return rsqrt(x);
  if (exponent == 1) return clone(x);
  if (exponent == -1) return div(1, x);
  return apply<Pow>(Arg(x, where), b);
}

Tensor equal(const Arg& a, const Arg& b) { return compare(BinaryOp::equal, "equal", a, b); }
Tensor not_equal(const Arg& a, const Arg& b) { return compare(BinaryOp::not_equal, "not_equal", a, b); }
Tensor less(const Arg& a, const Arg& b) { return compare(BinaryOp::less, "less", a, b); }
Tensor less_equal(const Arg& a, const Arg& b) { return compare(BinaryOp::less_equal, "less_equal", a, b); }
Tensor greater(const Arg& a, const Arg& b) { return compare(BinaryOp::greater, "greater", a, b); }
Tensor greater_equal(const Arg& a, const Arg& b) { return compare(BinaryOp::greater_equal, "greater_equal", a, b); }

namespace detail {

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const Shape shape =
      a.shape() == b.shape() ? a.shape() : check::broadcast("binary", a.shape(), b.shape(), SourceLocation{});
  Tensor y = empty(shape, a.options());
  const Tensor left = broadcast_view(a, shape), right = broadcast_view(b, shape);
  backend(a.device()).binary(op, {.array = &left.array()}, {.array = &right.array()}, y.array());
  return y;
}

Tensor relu_mask(const Tensor& dy, const Tensor& y) {
  if (is_half(y.dtype())) return cast(relu_mask(cast(dy, f32), cast(y, f32)), y.dtype());
  Tensor dx = empty_like(y);
  const Tensor spread = dy.shape() == y.shape() ? dy : broadcast_view(dy, y.shape());
  backend(y.device()).binary(BinaryOp::relu_mask, {.array = &spread.array()}, {.array = &y.array()}, dx.array());
  if (taping())
    record_op("relu_mask", SourceLocation{}, {&dy}, dx, {&y}, [y](Gradients& g) {
      Tensor ddy = relu_mask(g.dy(), y);
      g.add(0, ddy.shape() == g.shape(0) ? ddy : sum_to(ddy, g.shape(0)));
    });
  return dx;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const int lead = x.rank() - shape.rank();
  std::uint32_t axes = 0;
  for (int i = 0; i < x.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1)) axes |= 1u << i;
  const bool wide = is_half(x.dtype()) && axes != 0;  // summed in f32
  Tensor y = wide ? cast(sum_over(cast(x, f32), axes), x.dtype()) : sum_over(x, axes);
  return y.shape() == shape ? y : reshape(y, shape);
}

}  // namespace detail

}  // namespace reel
