// Every row of the op-case table on the second of two devices: the same bits as on the first, and that an op with operands on
// both is refused.

#include <algorithm>
#include <set>
#include <string>

#include "reel/tests/cuda_on_cpu/devices.h"
#include "reel/tests/cuda_on_cpu/schedule.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

class Second : public WithTwoDevices<RowTest> {
 protected:
  static Tensors on(Device device, const Tensors& xs) {
    Tensors moved;
    for (const Tensor& x : xs) moved.push_back(to(x, device));
    return moved;
  }
};

// A tensor that was made on the first, or the memory of the first, would end the program.
TEST_P(Second, TheSameBitsAsOnTheFirst) {
  const Tensors in = inputs(f32, Size::small);
  const Tensors expected = result_and_gradients(on(kFirst, in)), results = result_and_gradients(on(kSecond, in));
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].device(), kSecond);
    EXPECT_TRUE(same_bits(results[i], expected[i])) << "result " << i;
  }
}

/// Rows with an input that is no operand of theirs: it holds sizes or random numbers for the reference, or goes to others.
bool has_idle_input(const OpCase& row, const std::string& op) {
  return std::set<std::string>{"repeat_rows", "from_padded", "dropout", "gru", "rnn"}.contains(op) ||
         row.name.ends_with("/ragged_number");
}

/// Rows whose call computes with the inputs itself, or by a distribution: the op that it is told with is another one.
bool computes(const OpCase& row, const std::string& op) {
  static const std::set<std::string> ops = {"normal",
                                            "student_t",
                                            "gamma",
                                            "beta",
                                            "poisson_distribution",
                                            "negative_binomial",
                                            "bernoulli_distribution",
                                            "half_cauchy",
                                            "categorical",
                                            "lkj_cholesky"};
  return ops.contains(op) || row.name == "where/ragged_sequences";
}

TEST_P(Second, OperandsOnBothAreRefused) {
  const Tensors in = inputs(f32, Size::small);
  if (in.size() < 2) return;
  const std::string op = row().name.substr(0, row().name.find('/'));
  for (std::size_t i = 0; i < in.size(); ++i) {
    Tensors mixed = on(kFirst, in);
    mixed[i] = to(in[i], kSecond);
    try {
      row().call(mixed);
      EXPECT_TRUE(has_idle_input(row(), op)) << "input " << i << " may be on another device";
    } catch (const DeviceError& error) {
      const std::string told = computes(row(), op) ? "" : op;
      EXPECT_EQ(missing_words(error.what(), {told.c_str(), "cuda:0", "cuda:1", "cases.cpp:"}), "") << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Second, testing::ValuesIn(op_cases()), test_name);

}  // namespace
}  // namespace reel::test
