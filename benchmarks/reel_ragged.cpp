// Reductions and softmax within sequences of different lengths.

#include <array>

#include "reel_rows.h"

namespace bench {

using namespace reel;

namespace {

struct Lengths {
  const char* suffix;
  std::vector<Int> lengths;
};

/// [rows of all sequences, kWidth]
Ragged sequences(std::uint32_t stream, const std::vector<Int>& lengths) {
  Int total = 0;
  for (const Int length : lengths) total += length;
  return Ragged::from_lengths(tensor(stream, {total, kWidth}), lengths);
}
Tensor values_of(const Tensor& y) { return y; }
Tensor values_of(const Ragged& y) { return y.values(); }

/// Forward, and forward with backward, of f: `operands` of sequences -> Tensor or Ragged.
template <std::size_t operands, class F>
void add_both(std::vector<Row>& rows, const std::string& name, F f) {
  using Sequences = std::array<Ragged, operands>;
  for (const Lengths& each :
       {Lengths{"", sequence_lengths()}, Lengths{"_equal", std::vector<Int>(kSequences, kEqualLength)}}) {
    const auto inputs = [=] {
      Sequences xs;
      for (std::size_t i = 0; i < operands; ++i) xs[i] = sequences(static_cast<std::uint32_t>(i + 1), each.lengths);
      return xs;
    };
    rows.push_back({name + each.suffix, 0, [=] { return forward([=, xs = inputs()] { return values_of(f(xs)); }); }});
    rows.push_back({name + "_backward" + each.suffix, 0, [=] {
                      const Sequences xs = inputs();
                      Tensors values;
                      for (const Ragged& x : xs) values.push_back(x.values());
                      return with_backward(values, [=](const Tensors& vs) {
                        Sequences watched;
                        for (std::size_t i = 0; i < operands; ++i) watched[i] = xs[i].with(vs[i]);
                        return values_of(f(watched));
                      });
                    }});
  }
}

}  // namespace

std::vector<Row> ragged_rows() {
  std::vector<Row> rows;
  add_both<1>(rows, "ragged_sum", [](const std::array<Ragged, 1>& xs) { return sum(xs[0]); });
  add_both<1>(rows, "ragged_mean", [](const std::array<Ragged, 1>& xs) { return mean(xs[0]); });
  add_both<1>(rows, "ragged_max", [](const std::array<Ragged, 1>& xs) { return max(xs[0]); });
  add_both<1>(rows, "ragged_softmax", [](const std::array<Ragged, 1>& xs) { return softmax(xs[0]); });
  add_both<3>(rows, "ragged_attention", [](const std::array<Ragged, 3>& xs) {
    const auto by_heads = [](const Ragged& x) {
      return x.with(reshape(x.values(), {x.values().shape()[0], kSequenceHeads, kWidth / kSequenceHeads}));
    };
    return flatten(scaled_dot_product_attention(by_heads(xs[0]), by_heads(xs[1]), by_heads(xs[2])).values(), 1);
  });
  return rows;
}

}  // namespace bench
