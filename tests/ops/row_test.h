#pragma once

// What the suites over the op-case table share, on the CPU and on CUDA.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/op_case.h"

namespace reel::test {

inline const char* name_of(Size size) {
  constexpr const char* kNames[] = {"small", "odd", "empty", "one", "large"};
  return kNames[static_cast<int>(size)];
}

/// A row's name as GoogleTest allows it.
inline std::string test_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

inline double epsilon_of(DType dtype) {
  return dtype == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

inline Ref ref_of(const Tensor& x) { return {x.shape(), x.to_vector<double>()}; }

inline std::vector<Ref> refs_of(const Tensors& xs) {
  std::vector<Ref> refs;
  for (const Tensor& x : xs) refs.push_back(ref_of(x));
  return refs;
}

/// The first element of y for which |y - expected| <= tolerance * epsilon of y's type * (1 + |expected|) does not hold, in
/// words; "": there is none. Both have one shape.
inline std::string far_element(const Tensor& y, const Ref& expected, double tolerance) {
  const std::vector<double> values = y.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double got = values[i], want = expected.v[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    if (std::abs(got - want) <= tolerance * epsilon_of(y.dtype()) * (1 + std::abs(want))) continue;
    std::ostringstream text;
    text.precision(17);
    text << "element " << i << ": " << got << ", not " << want << " within " << tolerance << " epsilon";
    return text.str();
  }
  return {};
}

inline void expect_close(const Tensor& y, const Ref& expected, double tolerance) {
  ASSERT_EQ(y.shape(), expected.shape);
  ASSERT_EQ(far_element(y, expected, tolerance), "");
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = contiguous(to(a, Device::cpu())), y = contiguous(to(b, Device::cpu()));
  return std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

// The same elements, reached by other strides.
inline Tensor with_gaps(const Tensor& x) {
  if (x.rank() == 0) return x;
  const Tensor wide = stack({x, zeros_like(x)}, -1);  // every second element
  return select(wide, -1, 0);
}
inline Tensor column_major(const Tensor& x) {
  Shape reversed;
  for (int i = x.rank() - 1; i >= 0; --i) reversed.push_back(i);
  return permute(contiguous(permute(x, reversed)), reversed);
}

/// A test of one row of the table.
class RowTest : public testing::TestWithParam<OpCase> {
 protected:
  const OpCase& row() const { return GetParam(); }
  bool skips(Size size) const { return std::find(row().skip.begin(), row().skip.end(), size) != row().skip.end(); }
  Tensors inputs(DType dtype, Size size) const {
    Maker make(dtype, 11);
    return row().inputs(make, size);
  }
  /// The result and the gradients of the differentiable inputs for a random output gradient.
  Tensors result_and_gradients(const Tensors& in) const {
    Tape tape;
    Tensors wanted;
    for (const int i : row().differentiable) {
      tape.watch(in[static_cast<std::size_t>(i)]);
      wanted.push_back(in[static_cast<std::size_t>(i)]);
    }
    const Tensor y = row().call(in);
    Tensors results{y};
    if (wanted.empty() || !is_tracked(y)) return results;
    Generator generator(5);
    const Tensor dy = randn(y.shape(), generator, {.dtype = y.dtype(), .device = y.device()});
    for (const Tensor& dx : tape.gradient(y, dy, wanted)) results.push_back(dx);
    return results;
  }
};

}  // namespace reel::test
