#pragma once

// The op-case table: one row per public op, from which every generic suite draws. See docs/adding-an-op.md.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "reel/core/tensors.h"

namespace reel::test {

/// A plain reference value: a shape and its elements in row-major order, in double.
struct Ref {
  Shape shape;
  std::vector<double> v;
};

/// The sizes that every op is tried at: a few elements, sizes beside powers of two, no elements, one element, and enough of
/// them for several threads.
enum class Size { small, odd, empty, one, large };

/// The two sizes that a row of the table builds its inputs from.
struct Extent {
  std::int64_t rows, cols;
};
Extent extent_of(Size size);
/// Of Size::large: 1025 x 129. Benchmarks set others.
Extent& large_extent();

/// Makes the inputs of a case: the same numbers for f32 and f64.
class Maker {
 public:
  Maker(DType dtype, std::uint64_t seed) : dtype_(dtype), seed_(seed) {}
  DType dtype() const { return dtype_; }
  /// Uniform in [low, high).
  Tensor uniform(const Shape& shape, double low = -2, double high = 2);
  /// All different, at least 0.01 apart: no ties, and far from kinks for differences.
  Tensor distinct(const Shape& shape);
  /// Integers in [0, limit), i64.
  Tensor index(const Shape& shape, std::int64_t limit);
  /// Lengths that sum up to `total`, some of them 0.
  std::vector<std::int64_t> lengths(std::int64_t total);

 private:
  std::uint64_t next();
  DType dtype_;
  std::uint64_t seed_;
};

/// A call that must throw, and words that its message must have.
struct BadCall {
  std::function<void()> call;
  std::vector<std::string> words;
};

struct OpCase {
  /// The public function's name; "_variant" behind a '/' tells rows of one op apart.
  std::string name;
  std::function<Tensors(Maker&, Size)> inputs;
  std::function<Tensor(const Tensors&)> call;
  std::function<Ref(const std::vector<Ref>&)> reference;
  /// Order up to which derivatives are claimed; 0: none.
  int order = 2;
  /// Inputs with a gradient; the others are indices and the like.
  std::vector<int> differentiable = {0};
  /// |error| <= tolerance * epsilon * (1 + |reference|).
  double tolerance = 8;
  /// Why element i of the result's first axis depends on more than element i of each input that is as long. Empty: it does not,
  /// and a test compares the bits of a row alone with those in a batch.
  std::string mixes_rows = {};
  /// Inputs that belong to all rows, however long they are.
  std::vector<int> whole = {};
  /// No result at these sizes.
  std::vector<Size> skip = {};
  std::vector<BadCall> bad = {};
};

inline void PrintTo(const OpCase& row, std::ostream* out) { *out << row.name; }

/// All rows.
const std::vector<OpCase>& op_cases();

// One function per file of rows.
std::vector<OpCase> arithmetic_cases();
std::vector<OpCase> unary_cases();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> product_cases();
std::vector<OpCase> softmax_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> ragged_cases();
std::vector<OpCase> choice_cases();
std::vector<OpCase> statistics_cases();
std::vector<OpCase> losses_cases();
std::vector<OpCase> rearrange_cases();
std::vector<OpCase> logical_cases();
std::vector<OpCase> gated_cases();
std::vector<OpCase> scan_cases();
std::vector<OpCase> index_cases();
std::vector<OpCase> ragged_index_cases();
std::vector<OpCase> order_cases();
std::vector<OpCase> sparse_cases();
std::vector<OpCase> hashing_cases();
std::vector<OpCase> padding_cases();
std::vector<OpCase> linalg_cases();
std::vector<OpCase> einsum_cases();
std::vector<OpCase> distributions_cases();
std::vector<OpCase> transform_cases();
std::vector<OpCase> pool_cases();
std::vector<OpCase> conv_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> normalize_cases();
std::vector<OpCase> sequence_cases();
std::vector<OpCase> recurrent_cases();
std::vector<OpCase> ragged_shape_cases();
std::vector<OpCase> lkj_cases();
std::vector<OpCase> number_cases();

}  // namespace reel::test
