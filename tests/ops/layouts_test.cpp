// Kernels choose their loops by how memory lies: random views of random shapes give what a copy of them in order gives, to the bit,
// gradients from gradients of any layout too. Larger than the op-case table's, so that tiles, strips and lines end where they like.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "reel/reel.h"

namespace reel::test {
namespace {

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  bool one_of(std::int64_t n) { return below(n) == 0; }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

Shape random_shape(Random& random) {
  constexpr std::array<std::int64_t, 24> sizes{1,  2,  3,  4,  5,   7,   8,   9,   15,  16,  17,  31,
                                               32, 33, 64, 65, 100, 127, 128, 129, 255, 256, 513, 1000};
  Shape shape;
  for (std::int64_t axes = 1 + random.below(4); axes > 0; --axes) {
    std::int64_t size = sizes[static_cast<std::size_t>(random.below(sizes.size()))];
    while (shape.size() * size > 60000) size = 1 + size / 3;
    shape.push_back(size);
  }
  return shape;
}

// Every few axes: in another order, each second or third element, a part of more, of 2^k perhaps, one element repeated.
Tensor random_view(Random& random, const Shape& shape, DType dtype) {
  const int rank = shape.rank();
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (!random.one_of(4)) std::shuffle(order.begin(), order.end(), random.engine());
  enum Kind { whole, steps, part, repeated, kinds };
  Shape base, back = shape;
  std::vector<Kind> chosen;
  for (int i = 0; i < rank; ++i) {
    const std::int64_t size = shape[order[static_cast<std::size_t>(i)]];
    const Kind kind = random.one_of(2) ? whole : static_cast<Kind>(random.below(kinds));
    chosen.push_back(kind);
    base.push_back(kind == steps      ? 3 * size
                   : kind == part     ? size + 1 + random.below(2 * size)
                   : kind == repeated ? 1
                                      : size);
    if (kind == part && random.one_of(2))
      base[i] = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
    back[order[static_cast<std::size_t>(i)]] = i;
  }
  Tensor x = randn(base);
  if (!is_floating(dtype)) x = 50 * x;
  x = cast(x, dtype);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t size = shape[order[static_cast<std::size_t>(i)]], more = x.size(i) - size;
    const Kind kind = chosen[static_cast<std::size_t>(i)];
    Shape wide = x.shape();
    wide[i] = size;
    if (kind == steps) x = random.one_of(2) ? slice(x, i, 1, 3 * size, 3) : slice(x, i, 0, 2 * size, 2);
    else if (kind == part) x = narrow(x, i, random.below(more + 1), size);
    else if (kind == repeated) x = expand(x, wide);
  }
  return permute(x, back);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = contiguous(a), y = contiguous(b);
  return std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

struct Op {
  const char* name;
  std::function<Tensor(const Tensor& x, int axis)> f;
  bool of_integers = false, recorded = true;
};

const std::vector<Op>& ops() {
  static const std::vector<Op> all = {
      {"sum", [](const Tensor& x, int axis) { return sum(x, axis); }, true},
      {"mean", [](const Tensor& x, int axis) { return mean(x, axis); }},
      {"prod", [](const Tensor& x, int axis) { return prod(x, axis); }},
      {"amax", [](const Tensor& x, int axis) { return amax(x, axis); }, true},
      {"amin", [](const Tensor& x, int axis) { return amin(x, axis); }, true},
      {"argmax", [](const Tensor& x, int axis) { return argmax(x, axis); }, true, false},
      {"norm", [](const Tensor& x, int axis) { return norm(x, axis); }},
      {"var", [](const Tensor& x, int axis) { return var(x, axis); }},
      {"any", [](const Tensor& x, int axis) { return any(x, axis); }, true, false},
      {"logsumexp", [](const Tensor& x, int axis) { return logsumexp(x, axis); }},
      {"softmax", [](const Tensor& x, int axis) { return softmax(x, axis); }},
      {"cumsum", [](const Tensor& x, int axis) { return cumsum(x, axis); }},
      {"sort", [](const Tensor& x, int axis) { return sort(x, axis).values; }, true},
      {"exp", [](const Tensor& x, int) { return exp(x); }},
      {"gelu", [](const Tensor& x, int) { return gelu(x); }},
      {"neg", [](const Tensor& x, int) { return neg(x); }, true},
      {"clamp", [](const Tensor& x, int) { return clamp(x, -1, 1); }},
      {"x + 1", [](const Tensor& x, int) { return x + 1; }, true},
      {"2 - x", [](const Tensor& x, int) { return 2 - x; }, true},
      {"x * x", [](const Tensor& x, int) { return x * x; }, true},
      {"x > 0", [](const Tensor& x, int) { return x > 0; }, true, false},
      {"x - first", [](const Tensor& x, int axis) { return x - narrow(x, axis, 0, 1); }},
      {"where", [](const Tensor& x, int) { return where(x > 0, x, 2 * x); }, true},
      {"f64", [](const Tensor& x, int) { return cast(x, f64); }, true},
      {"i64", [](const Tensor& x, int) { return cast(x, i64); }, true, false},
      {"bf16", [](const Tensor& x, int) { return cast(x, bf16); }, true, false},
      {"clone", [](const Tensor& x, int) { return clone(x); }, true},
      {"flip", [](const Tensor& x, int axis) { return flip(x, axis); }, true},
      {"concatenate",
       [](const Tensor& x, int axis) {
         return concatenate({x, x}, axis);
       },
       true},
      {"pad",
       [](const Tensor& x, int axis) {
         return pad(x, {{axis, 1, 2}});
       },
       true},
      {"repeat", [](const Tensor& x, int axis) { return repeat_interleave(x, 3, axis); }, true},
      {"layer_norm", [](const Tensor& x, int) { return layer_norm(x, {x.size(-1)}); }},
  };
  return all;
}

TEST(Layouts, AnyViewGivesWhatItsCopyInOrderGives) {
  manual_seed(7);
  Random random(7);
  constexpr DType dtypes[] = {f32, f32, f64, i64, i32, u8};
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(random);
    const DType dtype = dtypes[random.below(std::size(dtypes))];
    const Tensor x = random_view(random, shape, dtype), in_order = contiguous(x);
    for (int some = 0; some < 6; ++some) {
      const Op& op = ops()[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(ops().size())))];
      const int axis = static_cast<int>(random.below(shape.rank()));
      if (!is_floating(dtype) && !op.of_integers) continue;
      std::string strides;
      for (int i = 0; i < shape.rank(); ++i) strides += ' ' + std::to_string(x.stride(i));
      SCOPED_TRACE(std::string(op.name) + " along axis " + std::to_string(axis) + " of " + name_of(dtype) + ' ' +
                   shape.str() + ", strides" + strides);
      EXPECT_TRUE(same_bits(op.f(x, axis), op.f(in_order, axis)));
      if (!is_floating(dtype) || !op.recorded) continue;
      const auto f = [&](const Tensor& some_x) { return op.f(some_x, axis); };
      const auto [y, pull] = pullback(f, x);
      const auto [y_in_order, pull_in_order] = pullback(f, in_order);
      const Tensor dy = random_view(random, y.shape(), y.dtype());
      EXPECT_TRUE(same_bits(pull(dy), pull_in_order(contiguous(dy))));
    }
  }
}

}  // namespace
}  // namespace reel::test
