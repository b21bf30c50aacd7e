#pragma once

// Suites over the op-case table that hold on every device: generic_test.cpp draws from them on the CPU, and
// tests/cuda_on_cpu/table_test.cpp on CUDA. Each is a function of a row's test, which says at what sizes.

#include "reel/core/error.h"
#include "reel/core/pullback.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/logical.h"
#include "reel/ops/reduce.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {

using Sizes = std::vector<Size>;
using DTypes = std::vector<DType>;

/// A number at the end of a dtype's range.
struct Extreme {
  double f32, f64;
  Extreme(double both) : f32(both), f64(both) {}
  Extreme(double few, double many) : f32(few), f64(many) {}
};
using Extremes = std::vector<Extreme>;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                        kNaN = std::numeric_limits<double>::quiet_NaN();
inline const Extreme kDenormal{0x1p-140, 0x1p-1060}, kLargest{0x1.fp127, 0x1.fp1023};

inline Tensors on(Device device, const Tensors& xs) {
  Tensors moved;
  for (const Tensor& x : xs) moved.push_back(to(x, device));
  return moved;
}

/// The first row in the place of all, at one place in memory; indices stay, as one's bounds may be its row's.
inline Tensor first_row_repeated(const Tensor& x) {
  return x.rank() == 0 || x.size() == 0 || !is_floating(x.dtype()) ? x : expand(narrow(x, 0, 0, 1), x.shape());
}

class GenericSuites : public RowTest {
 protected:
  explicit GenericSuites(Device device) : device_(device) {}

  /// The row's inputs on this test's device.
  Tensors inputs_there(DType dtype, Size size) const { return on(device_, inputs(dtype, size)); }
  Tensors differentiable(const Tensors& in) const {
    Tensors wanted;
    for (const int i : row().differentiable) wanted.push_back(in[static_cast<std::size_t>(i)]);
    return wanted;
  }
  /// `in` with xs in the places of the differentiable ones.
  Tensors with(const Tensors& in, const Tensors& xs) const {
    Tensors all = in;
    for (std::size_t i = 0; i < xs.size(); ++i) all[static_cast<std::size_t>(row().differentiable[i])] = xs[i];
    return all;
  }

  /// What gradcheck moves: each element of each input, or each input as a whole in one random direction, which takes a fraction
  /// of the calls.
  enum class Moves { elements, directions };

  /// To the row's order, but to `order` at most.
  void gradients_match_differences(const Sizes& sizes, int order, Moves moves) const {
    if (row().order == 0) return;
    for (const Size size : sizes) {
      if (skips(size)) continue;
      SCOPED_TRACE(name_of(size));
      const Tensors in = inputs_there(f64, size);
      const auto f = [&](const Tensors& xs) {
        // Bent, so that the result's gradient depends on the inputs too: else a linear op's second derivative is 0.
        const Tensor y = row().call(with(in, xs));
        return y + 0.5 * y * y;
      };
      check_gradients(f, differentiable(in), std::min(order, row().order), moves);
    }
  }

  // Any order is promised: the gradient is a function like others, whose second derivative is looked at.
  void has_a_third_derivative_too(Moves moves) const {
    if (row().order < 2 || skips(Size::one)) return;
    const Tensors in = inputs_there(f64, Size::one);
    const auto slope = [&](const Tensors& xs) {
      Tape inner;
      for (const Tensor& x : xs) inner.watch(x);
      const Tensor y = row().call(with(in, xs));
      Tensor energy = sum(y + 0.5 * y * y), total = zeros({}, {.dtype = f64, .device = device_});
      for (const Tensor& x : xs) energy = energy + sum(x * x);  // some results depend on none
      const Tensors dxs = inner.gradient(energy, xs);
      for (const Tensor& dx : dxs) total = total + sum(dx + 0.5 * dx * dx);
      return total;
    };
    check_gradients(slope, differentiable(in), 2, moves);
  }

  // Under an outer tape a callback computes with recorded ops, else with its fused kernel.
  void fused_and_recorded_gradients_agree(const Sizes& sizes) const {
    if (row().order < 2) return;
    for (const Size size : sizes) {
      if (skips(size)) continue;
      SCOPED_TRACE(name_of(size));
      const Tensors in = inputs_there(f64, size);
      const Tensors fused = result_and_gradients(in);
      Tape outer;
      const Tensors recorded = result_and_gradients(in);
      ASSERT_EQ(recorded.size(), fused.size());
      for (std::size_t i = 0; i < fused.size(); ++i) expect_close(recorded[i], ref_of(fused[i]), 1000);
    }
  }

  // With one element of an input at an extreme. Both ways give the same gradients, or throw.
  void fused_and_recorded_gradients_agree_at_extremes(const DTypes& dtypes, const Extremes& extremes) const {
    if (row().order < 2) return;
    const auto gradients = [&](const Tensors& in) {
      try {
        return on(Device::cpu(), result_and_gradients(in));  // which waits for what is thrown later
      } catch (const DeviceError&) {
        throw;
      } catch (const Error&) {
        return Tensors();
      }
    };
    for (const DType dtype : dtypes) {
      for (const int k : row().differentiable)
        for (const Extreme& extreme_of : extremes) {
          const double extreme = dtype == f64 ? extreme_of.f64 : extreme_of.f32;
          Tensors in = inputs_there(dtype, Size::small);
          Tensor& x = in[static_cast<std::size_t>(k)];
          SCOPED_TRACE("element " + std::to_string(x.size() / 3) + " of input " + std::to_string(k) + " is " +
                       std::to_string(extreme) + ", " + reel::name_of(dtype));
          x = clone(x);
          narrow(reshape(x, {x.size()}), 0, x.size() / 3, 1).fill_(extreme);
          const Tensors fused = gradients(in);
          Tape outer;
          const Tensors recorded = gradients(in);
          ASSERT_EQ(recorded.size(), fused.size());
          for (std::size_t i = 0; i < fused.size(); ++i) expect_close(recorded[i], ref_of(fused[i]), 1000);
        }
    }
  }

  // A tape with check_finite looks at all that is recorded of an op: its result, its gradients and what they are made of.
  void what_is_finite_is_not_told_to_be_otherwise(const Sizes& sizes, const DTypes& dtypes) const {
    if (row().order < 2) return;
    for (const Size size : sizes)
      for (const DType dtype : dtypes) {
        if (skips(size)) continue;
        SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
        const Tensors in = inputs_there(dtype, size);
        if (!second_order_is_finite(in, false)) continue;
        try {
          second_order_is_finite(in, true);
        } catch (const DeviceError&) {
          throw;
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      }
  }

  void a_pullback_gives_what_a_tape_gives() const {
    if (row().order == 0 || skips(Size::small)) return;
    const Tensors in = inputs_there(f64, Size::small);
    const Tensors expected = result_and_gradients(in);
    for (std::size_t i = 1; i < expected.size(); ++i) {
      const auto moved = static_cast<std::size_t>(row().differentiable[i - 1]);
      auto [y, backprop] = pullback(
          [&](const Tensor& x) {
            Tensors all = in;
            all[moved] = x;
            return row().call(all);
          },
          in[moved]);
      Generator generator(5);
      const Tensor dy = randn(y.shape(), generator, {.dtype = f64, .device = device_});
      expect_close(backprop(dy), ref_of(expected[i]), 100);
    }
  }

  // Each input in turn a constant, written between forward and backward, or between the gradient and its own: what needs it says
  // so, what does not gives the gradients of before.
  void a_write_before_the_sweep_is_noticed(const Sizes& sizes) const {
    for (const Size size : sizes)
      for (int order = 1; order <= row().order; ++order) {
        if (skips(size)) continue;
        const std::size_t count = inputs_there(f64, size).size();
        for (std::size_t written = 0; written < count; ++written) {
          SCOPED_TRACE(std::string(name_of(size)) + ", order " + std::to_string(order) + ", input " +
                       std::to_string(written));
          write_before_the_sweep(inputs_there(f64, size), order, written);
        }
      }
  }

  void empty_inputs_have_empty_gradients() const {
    if (row().order == 0 || skips(Size::empty)) return;
    const Tensors in = inputs_there(f64, Size::empty);
    const Tensors results = result_and_gradients(in);
    for (std::size_t i = 1; i < results.size(); ++i)
      EXPECT_EQ(results[i].shape(), in[static_cast<std::size_t>(row().differentiable[i - 1])].shape());
  }

  void strided_inputs_give_the_same_result(const Sizes& sizes, double tolerance) const {
    for (const Size size : sizes) {
      if (skips(size)) continue;
      SCOPED_TRACE(name_of(size));
      const Tensors in = inputs_there(f64, size);
      for (const auto strided : {with_gaps, column_major, first_row_repeated}) {
        Tensors views, copies;
        for (const Tensor& x : in) {
          const Tensor view = strided(x);
          views.push_back(view);
          copies.push_back(contiguous(view));
        }
        const Tensors expected = result_and_gradients(copies), results = result_and_gradients(views);
        ASSERT_EQ(results.size(), expected.size());
        for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], ref_of(expected[i]), tolerance);
      }
    }
  }

  void indices_of_32_bits_give_the_same() const {
    const std::string op = row().name.substr(0, row().name.find('/'));
    if (op == "murmur3" || op == "ngrams" || op == "hash_embed" || op == "sum") return;  // ids and counts of 64 bits
    const Tensors wide = inputs_there(f64, Size::odd);
    Tensors narrow = wide;
    bool differs = false;
    for (Tensor& x : narrow) {
      if (x.dtype() != i64) continue;
      const Tensor few_bits = cast(x, i32);
      if (all(cast(few_bits, i64) == x).item() == 0) return;  // numbers, no indices
      x = few_bits;
      differs = true;
    }
    if (!differs) return;
    const Tensors expected = result_and_gradients(wide), results = result_and_gradients(narrow);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], ref_of(expected[i]), 0);
  }

  /// `same(a, b)`: whether a row's result alone is its result in the batch. Of a row of the table that mixes rows: whether any
  /// is not, which fails nothing.
  template <class Same>
  bool a_row_alone_differs_from_a_batch(const Sizes& sizes, Same same) const {
    bool differs = false;
    for (const Size size : sizes) {
      if (skips(size)) continue;
      const Tensors in = inputs_there(f32, size);
      const Tensor batch = row().call(in);
      const std::int64_t n = batch.rank() > 0 ? batch.shape()[0] : 0;
      if (n < 2) continue;
      for (const std::int64_t r : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
        const Tensors alone = row_alone(in, batch, r);
        if (alone.empty()) continue;
        if (row().mixes_rows.empty()) {
          EXPECT_TRUE(same(row().call(alone), narrow(batch, 0, r, 1))) << name_of(size) << ", row " << r;
          continue;
        }
        try {
          differs = differs || !same(row().call(alone), narrow(batch, 0, r, 1));
        } catch (const DeviceError&) {
          throw;
        } catch (const Error&) {
          differs = true;
        }
      }
    }
    return differs;
  }

 private:
  void write_before_the_sweep(Tensors in, int order, std::size_t written) const {
    Tensor constant = in[written] = clone(in[written]);
    Tape outer;
    Tensors wanted;
    for (const int i : row().differentiable) {
      if (static_cast<std::size_t>(i) == written) continue;
      outer.watch(in[static_cast<std::size_t>(i)]);
      wanted.push_back(in[static_cast<std::size_t>(i)]);
    }
    Tensor y = row().call(in);
    if (!is_tracked(y)) return;
    Generator generator(5);
    const auto random = [&](const Tensor& like) { return randn(like.shape(), generator, like.options()); };
    if (order == 2) {
      Tape inner;
      for (const Tensor& x : wanted) inner.watch(x);
      const Tensor again = row().call(in);
      Tensor slope = zeros({}, y.options());
      for (const Tensor& dx : inner.gradient(again, random(y), wanted)) slope = slope + sum(dx * random(dx));
      y = slope;
    }
    if (!is_tracked(y)) return;
    const Tensor dy = random(y);
    const Tensors expected = outer.gradient(y, dy, wanted, {.keep = true});
    constant.fill_(0);  // a place of every table
    try {
      const Tensors results = outer.gradient(y, dy, wanted);
      for (std::size_t i = 0; i < results.size(); ++i)
        EXPECT_TRUE(same_bits(results[i], expected[i])) << "gradient " << i;
    } catch (const VersionError&) {
    }
  }

  template <class F>
  void check_gradients(const F& f, const Tensors& xs, int order, Moves moves) const {
    if (moves == Moves::elements) {
      const GradcheckReport report = gradcheck(f, xs, {.order = order});
      EXPECT_TRUE(report) << report;
      return;
    }
    Generator generator(7);
    Tensors directions, steps;
    for (const Tensor& x : xs) {
      const Tensor direction = randn(x.shape(), generator, {.dtype = f64, .device = device_});
      directions.push_back(direction / sqrt(sum(direction * direction)));
      steps.push_back(zeros({}, {.dtype = f64, .device = device_}));
    }
    const auto along = [&](const Tensors& ts) {
      Tensors moved;
      for (std::size_t i = 0; i < ts.size(); ++i) moved.push_back(xs[i] + ts[i] * directions[i]);
      return f(moved);
    };
    // Of length 1, an element's part of which is a fraction: longer, so that a sum over many results loses less to rounding.
    const GradcheckReport report = gradcheck(along, steps, {.order = order, .step = 1e-4});
    EXPECT_TRUE(report) << report;
  }

  // Whether the result, its gradients and theirs are finite; throws if the outer tape, strict, finds that they are not.
  bool second_order_is_finite(const Tensors& in, bool strictly) const {
    Tape outer({.check_finite = strictly});
    const Tensors wanted = differentiable(in);
    for (const Tensor& x : wanted) outer.watch(x);
    Tape inner;
    for (const Tensor& x : wanted) inner.watch(x);
    const Tensor y = clone(row().call(in));  // some give x itself
    if (!is_tracked(y)) return false;
    Tensors results{y};
    for (const Tensor& dx : inner.gradient(y, ones_like(y), wanted)) results.push_back(dx);
    Tensor total = zeros({}, {.dtype = y.dtype(), .device = device_});
    for (const Tensor& result : results) total = total + sum(result);
    if (all(isfinite(total)).item() == 0) return false;
    bool finite = true;
    for (const Tensor& dx : outer.gradient(total, wanted)) finite = finite && all(isfinite(dx)).item() != 0;
    return finite;
  }

  // Row r of the inputs that have as many as the result; empty if none has.
  Tensors row_alone(const Tensors& in, const Tensor& batch, std::int64_t r) const {
    Tensors alone = in;
    bool cut = false;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].rank() == 0 || in[i].shape()[0] != batch.shape()[0]) continue;
      if (std::find(row().whole.begin(), row().whole.end(), static_cast<int>(i)) != row().whole.end()) continue;
      alone[i] = narrow(in[i], 0, r, 1);
      cut = true;
    }
    return cut ? alone : Tensors();
  }

  const Device device_;
};

}  // namespace reel::test
