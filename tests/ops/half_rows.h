#pragma once

// A row of the op-case table with inputs of bf16 or f16, on any device.

#include <optional>

#include "reel/core/error.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {

/// The small inputs of a row, their fractions rounded to `dtype`.
inline Tensors half_inputs(const OpCase& row, DType dtype, Device device) {
  Maker make(f32, 11);
  const bool small = std::find(row.skip.begin(), row.skip.end(), Size::small) == row.skip.end();
  Tensors in;
  for (const Tensor& x : row.inputs(make, small ? Size::small : Size::odd))
    in.push_back(to(is_floating(x.dtype()) ? cast(x, dtype) : x, device));
  return in;
}

/// The same numbers in f32.
inline Tensors widened(const Tensors& xs) {
  Tensors wide;
  for (const Tensor& x : xs) wide.push_back(is_half(x.dtype()) ? cast(x, f32) : x);
  return wide;
}

/// The row's result and its gradients for an output gradient that is the same for all dtypes.
inline Tensors results_of(const OpCase& row, const Tensors& in, DType rounded_to) {
  Tape tape;
  Tensors wanted;
  for (const int i : row.differentiable) {
    tape.watch(in[static_cast<std::size_t>(i)]);
    wanted.push_back(in[static_cast<std::size_t>(i)]);
  }
  const Tensor y = row.call(in);
  Tensors results{y};
  if (wanted.empty() || !is_tracked(y)) return results;
  Generator generator(5);
  const Tensor dy = to(cast(cast(randn(y.shape(), generator), rounded_to), y.dtype()), y.device());
  for (const Tensor& dx : tape.gradient(y, dy, wanted)) results.push_back(dx);
  return results;
}

/// The same, or nothing where the row refuses `dtype` and says so.
inline std::optional<Tensors> half_results(const OpCase& row, const Tensors& in, DType dtype) {
  try {
    return results_of(row, in, dtype);
  } catch (const DTypeError& error) {
    EXPECT_NE(std::string(error.what()).find(reel::name_of(dtype)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("f32"), std::string::npos) << error.what();
    return std::nullopt;
  }
}

/// Either the row gives what it gives in f32, to the rounding of its dtype, and so do its gradients; or a DTypeError
/// says why it does not. True for the former.
inline bool check_half_row(const OpCase& row, DType dtype, Device device) {
  SCOPED_TRACE(row.name + " of " + reel::name_of(dtype));
  const Tensors in = half_inputs(row, dtype, device);
  bool any = false;
  for (const Tensor& x : in) any = any || is_half(x.dtype());
  if (!any) return false;
  const std::optional<Tensors> results = half_results(row, in, dtype);
  if (!results) return false;
  const Tensors expected = results_of(row, widened(in), dtype);
  EXPECT_EQ(results->size(), expected.size());
  const double tolerance = dtype == bf16 ? 0x1p-6 : 0x1p-9;  // a few units in the last place
  for (std::size_t k = 0; k < expected.size() && k < results->size(); ++k) {
    const Tensor &got = (*results)[k], &want = expected[k];
    if (k > 0) {
      EXPECT_EQ(got.dtype(), want.dtype() == f32 ? dtype : want.dtype());  // that of the input
    }
    EXPECT_EQ(got.shape(), want.shape());
    if (got.shape() != want.shape()) continue;
    const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      EXPECT_LE(std::abs(a[i] - b[i]), tolerance * (1 + std::abs(b[i]))) << "result " << k << ", element " << i;
    }
  }
  return true;
}

}  // namespace reel::test
