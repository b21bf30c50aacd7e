#include "reel/tests/ops/op_case.h"

#include <set>

#include "reel/core/scalar/philox.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"

namespace reel::test {

Extent& large_extent() {
  static Extent extent{1025, 129};
  return extent;
}

Extent extent_of(Size size) {
  switch (size) {
    case Size::small:
      return {3, 4};
    case Size::odd:
      return {33, 31};
    case Size::empty:
      return {0, 4};
    case Size::one:
      return {1, 1};
    case Size::large:
      break;
  }
  return large_extent();
}

std::uint64_t Maker::next() {
  const scalar::PhiloxBlock block = scalar::philox(seed_, 77, 0);
  seed_ = std::uint64_t{block.lane[0]} << 32 | block.lane[1];
  return seed_;
}

Tensor Maker::uniform(const Shape& shape, double low, double high) {
  Generator generator(next());
  const Tensor unit = rand(shape, generator, {.dtype = f32});  // f32's numbers, so that both dtypes see the same
  Tensor x = cast(unit, f64);
  for (double& value : x.mutable_data<double>()) value = static_cast<float>(low + (high - low) * value);
  return cast(x, dtype_);
}

Tensor Maker::distinct(const Shape& shape) {
  Generator generator(next());
  const Tensor order = permutation(shape.size(), generator);
  std::vector<double> values;
  for (const std::int64_t i : order.to_vector<std::int64_t>())
    values.push_back(0.0625 * (static_cast<double>(i) + 0.5) - 1.25);
  return cast(from_vector(values, shape), dtype_);
}

Tensor Maker::index(const Shape& shape, std::int64_t limit) {
  Generator generator(next());
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.size()));
  for (std::int64_t& value : values) value = generator.below(limit);
  return from_vector(values, shape);
}

std::vector<std::int64_t> Maker::lengths(std::int64_t total) {
  Generator generator(next());
  std::vector<std::int64_t> result{0};
  while (total > 0) {
    const std::int64_t length = std::min(total, generator.below(9));
    result.push_back(length);
    total -= length;
  }
  result.push_back(0);
  return result;
}

const std::vector<OpCase>& op_cases() {
  // What only compares and chooses has no error in any of its forms.
  static const std::set<std::string> exact = {
      "all",     "any",     "amax",  "amin",      "max",  "min",     "max_which",  "min_which",     "argmax", "argmin",
      "maximum", "minimum", "equal", "not_equal", "less", "greater", "less_equal", "greater_equal", "clamp",  "where"};
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> rows;
    for (const auto& part :
         {arithmetic_cases(),   unary_cases(),         reduce_cases(),    product_cases(),      softmax_cases(),
          shape_cases(),        ragged_cases(),        choice_cases(),    statistics_cases(),   rearrange_cases(),
          losses_cases(),       logical_cases(),       gated_cases(),     scan_cases(),         index_cases(),
          order_cases(),        sparse_cases(),        hashing_cases(),   padding_cases(),      linalg_cases(),
          einsum_cases(),       distributions_cases(), pool_cases(),      conv_cases(),         attention_cases(),
          normalize_cases(),    sequence_cases(),      recurrent_cases(), ragged_index_cases(), transform_cases(),
          ragged_shape_cases(), lkj_cases(),           number_cases()})
      rows.insert(rows.end(), part.begin(), part.end());
    for (OpCase& row : rows)
      if (exact.count(row.name.substr(0, row.name.find('/'))) == 1) row.tolerance = 0;
    return rows;
  }();
  return all;
}

}  // namespace reel::test
