// Reductions and softmax within sequences of different lengths.

#include "reel_rows.h"

namespace bench {

using namespace reel;

namespace {

/// Forward, and forward with backward, of f: Ragged -> Tensor or Ragged.
template <class F>
void add_both(std::vector<Row>& rows, const std::string& name, F f) {
  const auto values_of = [](const auto& y) {
    if constexpr (std::is_same_v<std::decay_t<decltype(y)>, Ragged>) return y.values();
    else return y;
  };
  const auto input = [] {
    const std::vector<Int> lengths = sequence_lengths();
    Int total = 0;
    for (const Int length : lengths) total += length;
    return Ragged::from_lengths(tensor(1, {total, kWidth}), lengths);
  };
  rows.push_back({name, 0, [=] { return forward([=, x = input()] { return values_of(f(x)); }); }});
  rows.push_back({name + "_backward", 0, [=] {
                    const Ragged x = input();
                    return with_backward({x.values()}, [=](const Tensors& xs) { return values_of(f(x.with(xs[0]))); });
                  }});
}

}  // namespace

std::vector<Row> ragged_rows() {
  std::vector<Row> rows;
  add_both(rows, "ragged_sum", [](const Ragged& x) { return sum(x); });
  add_both(rows, "ragged_mean", [](const Ragged& x) { return mean(x); });
  add_both(rows, "ragged_max", [](const Ragged& x) { return max(x); });
  add_both(rows, "ragged_softmax", [](const Ragged& x) { return softmax(x); });
  return rows;
}

}  // namespace bench
