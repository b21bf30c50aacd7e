#include <cmath>
#include <limits>

#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

OpCase unary(const std::string& name, std::function<Tensor(const Tensor&)> op, double (*f)(double)) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [f](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (double& v : y.v) v = f(v);
                return y;
              }};
}

// The Ragged form, over all rows as one sequence.
Ragged one_sequence(const Tensor& x) { return Ragged::from_lengths(x, {x.shape()[0]}); }

using Shapes = std::vector<Shape> (*)(Extent);

// where() of a random condition; the input that decides is a tensor of indices 0 and 1.
OpCase choice(const std::string& variant, Shapes shapes) {
  return {.name = "where" + variant,
          .inputs =
              [shapes](Maker& make, Size size) {
                const auto s = shapes(extent_of(size));
                const Tensor a = make.uniform(s[0]), b = make.uniform(s[1]);
                return Tensors{a, b, make.index(s[2], 2)};
              },
          .call = [](const Tensors& in) { return where(in[2] == 1, in[0], in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                const Shape shape = broadcast_shape(in[2].shape, broadcast_shape(in[0].shape, in[1].shape));
                return filled(shape,
                              [&](const auto& i) { return broadcast_at(in[broadcast_at(in[2], i) == 1 ? 0 : 1], i); });
              },
          .differentiable = {0, 1},
          .tolerance = 0};
}

OpCase log_sums(const std::string& variant, Shapes shapes) {
  return {.name = "logaddexp" + variant,
          .inputs =
              [shapes](Maker& make, Size size) {
                const auto s = shapes(extent_of(size));
                const Tensor a = make.uniform(s[0], -6, 6);
                return Tensors{a, make.uniform(s[1], -6, 6)};
              },
          .call = [](const Tensors& in) { return logaddexp(in[0], in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled(broadcast_shape(in[0].shape, in[1].shape), [&](const auto& i) {
                  return std::log(std::exp(broadcast_at(in[0], i)) + std::exp(broadcast_at(in[1], i)));
                });
              },
          .differentiable = {0, 1}};
}

std::vector<BadCall> not_floating(const std::string& name, std::function<void(const Tensor&)> op) {
  return {{[op] { op(arange(3)); }, {name, "x must be f32 or f64, got i64", "cases.cpp"}}};
}

std::vector<Shape> equal_shapes(Extent n) { return {{n.rows, n.cols}, {n.rows, n.cols}, {n.rows, n.cols}}; }
std::vector<Shape> broadcast_shapes(Extent n) { return {{n.rows, 1}, {n.cols}, {2, 1, n.cols}}; }

}  // namespace

std::vector<OpCase> choice_cases() {
  std::vector<OpCase> rows;
  const auto clamped = [](const Tensor& x) { return clamp(x, -0.5, 1.25); };
  rows.push_back(unary("clamp", clamped, [](double x) { return std::min(std::max(x, -0.5), 1.25); }));
  rows.back().tolerance = 0;
  rows.back().bad = {{[] { clamp(ones({2}), 1, 0); }, {"clamp", "low must not be above high", "cases.cpp"}},
                     {[] { clamp(ones({2}) > 0, 0, 1); }, {"clamp", "x must be numbers, got bool8", "cases.cpp"}}};
  rows.push_back(unary(
      "clamp/below", [](const Tensor& x) { return clamp(x, -1, INFINITY); },
      [](double x) { return std::max(x, -1.0); }));
  rows.push_back(unary(
      "clamp/ragged", [](const Tensor& x) { return clamp(one_sequence(x), 0, 1).values(); },
      [](double x) { return std::min(std::max(x, 0.0), 1.0); }));
  const auto leaky = [](const Tensor& x) { return leaky_relu(x); };
  rows.push_back(unary("leaky_relu", leaky, [](double x) { return x > 0 ? x : 0.01 * x; }));
  rows.back().bad = not_floating("leaky_relu", leaky);
  rows.push_back(unary(
      "leaky_relu/ragged", [](const Tensor& x) { return leaky_relu(one_sequence(x), 0.25).values(); },
      [](double x) { return x > 0 ? x : 0.25 * x; }));
  const auto elus = [](const Tensor& x) { return elu(x); };
  rows.push_back(unary("elu", elus, [](double x) { return x > 0 ? x : std::expm1(x); }));
  rows.back().bad = not_floating("elu", elus);
  rows.push_back(unary(
      "elu/ragged", [](const Tensor& x) { return elu(one_sequence(x), 1.5).values(); },
      [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }));

  const auto clipped = [](const Tensor& x) { return clipped_linear(x, 0.75, 0.25, -0.5, 1); };
  rows.push_back(
      unary("clipped_linear", clipped, [](double x) { return std::min(std::max(0.75 * x + 0.25, -0.5), 1.0); }));
  rows.back().bad = not_floating("clipped_linear", clipped);
  rows.back().bad.push_back({[] { clipped_linear(ones({2}), 1, 0, 1, 0); },
                             {"clipped_linear", "lower bound must not be above the upper one", "cases.cpp"}});
  rows.push_back(unary(
      "clipped_linear/ragged", [](const Tensor& x) { return clipped_linear(one_sequence(x)).values(); },
      [](double x) { return std::min(std::max(x, 0.0), 1.0); }));
  const auto relu_one = [](const Tensor& x) { return relu_k(x, 1.25); };
  rows.push_back(unary("relu_k", relu_one, [](double x) { return std::min(std::max(x, 0.0), 1.25); }));
  rows.back().bad = not_floating("relu_k", relu_one);
  rows.push_back(unary(
      "relu_k/ragged", [](const Tensor& x) { return relu_k(one_sequence(4 * x)).values(); },
      [](double x) { return std::min(std::max(4 * x, 0.0), 6.0); }));

  rows.push_back(choice("", equal_shapes));
  rows.back().bad = {
      {[] { where(ones({2}), ones({2}), 0); }, {"where", "condition must be bool8, got f32", "cases.cpp"}},
      {[] { where(ones({2}) > 0, 1, 0); }, {"where", "a or b must be a tensor", "cases.cpp"}},
      {[] { where(ones({2}) > 0, ones({3}), 0); }, {"where", "[2]", "[3]"}},
      {[] { where(ones({2}) > 0, Tensor(), 0); }, {"where", "a must be defined"}},
      {[] { where(ones({2}) > 0, ones({2}, {.dtype = u8}), 300); },
       {"where: the number must fit u8, got 300", "cases.cpp"}}};
  rows.push_back(choice("/broadcast", broadcast_shapes));
  // Without the first row, after which memory is not aligned.
  rows.push_back(choice("/parts", [](Extent n) {
    const Shape shape{n.rows + 1, n.cols};
    return std::vector<Shape>{shape, shape, shape};
  }));
  rows.back().call = [](const Tensors& in) {
    const auto part = [](const Tensor& x) { return slice(x, 0, 1, x.shape()[0]); };
    return where(part(in[2] == 1), part(in[0]), part(in[1]));
  };
  rows.back().reference = [](const std::vector<Ref>& in) {
    return filled({in[0].shape[0] - 1, in[0].shape[1]}, [&](const auto& i) {
      const auto at = static_cast<std::size_t>((i[0] + 1) * in[0].shape[1] + i[1]);
      return in[in[2].v[at] == 1 ? 0 : 1].v[at];
    });
  };
  rows.push_back(choice("/ragged", equal_shapes));
  rows.back().call = [](const Tensors& in) {
    return where(one_sequence(in[2] == 1), one_sequence(in[0]), one_sequence(in[1])).values();
  };
  rows.back().bad = {{[] {
                        const Tensor x = ones({3, 1});
                        where(Ragged::from_lengths(x > 0, {1, 2}), Ragged::from_lengths(x, {2, 1}), one_sequence(x));
                      },
                      {"where", "the same lengths", "cases.cpp"}}};
  rows.push_back(unary(
      "where/number", [](const Tensor& x) { return where(x > 0, x, -3); }, [](double x) { return x > 0 ? x : -3; }));
  rows.push_back(unary(
      "where/ragged_number",
      [](const Tensor& x) {
        const Ragged r = one_sequence(x);
        return where(r > 1, 7, where(r > 0, r, -3)).values();
      },
      [](double x) { return x > 1   ? 7
                            : x > 0 ? x
                                    : -3; }));
  rows.push_back(unary(
      "where/integers", [](const Tensor& x) { return where(x > 0, arange(x.size(-1), {.device = x.device()}), -3); },
      nullptr));
  rows.back().order = 0;
  rows.back().differentiable = {};
  rows.back().reference = [](const std::vector<Ref>& in) {
    return filled(in[0].shape, [&](const auto& i) { return at(in[0], i) > 0 ? static_cast<double>(i[1]) : -3; });
  };

  rows.push_back(log_sums("", equal_shapes));
  rows.back().bad = {{[] { logaddexp(ones({2}), ones({3})); }, {"logaddexp", "[2]", "[3]", "cases.cpp"}},
                     {[] { logaddexp(ones({2}), arange(2)); }, {"logaddexp", "b must be f32 like a, got i64"}},
                     {[] { logaddexp(arange(2), arange(2)); }, {"logaddexp", "a must be f32 or f64, got i64"}}};
  rows.push_back(log_sums("/broadcast", broadcast_shapes));
  rows.push_back(log_sums("/ragged", equal_shapes));
  rows.back().call = [](const Tensors& in) { return logaddexp(one_sequence(in[0]), one_sequence(in[1])).values(); };
  return rows;
}

}  // namespace reel::test
