// Reductions and softmax within sequences of different lengths.

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

/// Forward, and forward with backward, of f: as many sequences as `streams` tells -> Tensor or Ragged.
template <class F>
void add_both(std::vector<Row>& rows, const std::string& name, const std::vector<std::uint32_t>& streams, F f) {
  for (const Lengths& each :
       {Lengths{"", sequence_lengths()}, Lengths{"_equal", std::vector<Int>(kSequences, kEqualLength)}}) {
    const auto inputs = [=] {
      std::vector<Ragged> xs;
      for (const std::uint32_t stream : streams) xs.push_back(sequences(stream, each.lengths));
      return xs;
    };
    rows.push_back({name + each.suffix, 0, [=] { return forward([=, xs = inputs()] { return values_of(f(xs)); }); }});
    rows.push_back({name + "_backward" + each.suffix, 0, [=] {
                      const std::vector<Ragged> xs = inputs();
                      Tensors values;
                      for (const Ragged& x : xs) values.push_back(x.values());
                      return with_backward(values, [=](const Tensors& vs) {
                        std::vector<Ragged> watched;
                        for (std::size_t i = 0; i < vs.size(); ++i) watched.push_back(xs[i].with(vs[i]));
                        return values_of(f(watched));
                      });
                    }});
  }
}

}  // namespace

std::vector<Row> ragged_rows() {
  std::vector<Row> rows;
  add_both(rows, "ragged_sum", {1}, [](const std::vector<Ragged>& xs) { return sum(xs[0]); });
  add_both(rows, "ragged_mean", {1}, [](const std::vector<Ragged>& xs) { return mean(xs[0]); });
  add_both(rows, "ragged_max", {1}, [](const std::vector<Ragged>& xs) { return max(xs[0]); });
  add_both(rows, "ragged_softmax", {1}, [](const std::vector<Ragged>& xs) { return softmax(xs[0]); });
  add_both(rows, "ragged_attention", {1, 2, 3}, [](const std::vector<Ragged>& xs) {
    const auto by_heads = [](const Ragged& x) {
      return x.with(reshape(x.values(), {x.values().shape()[0], kSequenceHeads, kWidth / kSequenceHeads}));
    };
    return flatten(scaled_dot_product_attention(by_heads(xs[0]), by_heads(xs[1]), by_heads(xs[2])).values(), 1);
  });
  return rows;
}

}  // namespace bench
