// Every row of the op-case table, its gradients included, with the calls of the runtime failing, one after the other.

#include <algorithm>
#include <string>
#include <vector>

#include "reel/tests/cuda_on_cpu/failures.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

class CudaFailures : public RowTest {
 protected:
  void SetUp() override { cuda_on_cpu::set_guard(false); }
  void TearDown() override { cuda_on_cpu::fail_call(0); }
};

/// The bytes of a tensor on any device; the host waits for them.
std::string bytes_of(const Tensor& x) {
  const Tensor here = contiguous(to(x, Device::cpu()));
  return {static_cast<const char*>(here.array().data), static_cast<std::size_t>(here.size()) * size_of(here.dtype())};
}

// Of the calls behind the 12th every fourth. Which fourth depends on the row's place in the table: neighbours, which are mostly
// forms of one op, have them all.
TEST_P(CudaFailures, AnyCallMayFailWithoutALeak) {
  const Tensors in = inputs(f32, Size::small);
  const auto program = [&] {
    Tensors there;
    for (const Tensor& x : in) there.push_back(to(x, Device::cuda()));
    std::vector<std::string> results;
    for (const Tensor& result : result_and_gradients(there)) results.push_back(bytes_of(result));
    return results;
  };
  const auto place = std::find_if(op_cases().begin(), op_cases().end(),
                                  [&](const OpCase& other) { return other.name == row().name; }) -
                     op_cases().begin();
  const Failing calls{.each = 12, .step = 4, .first = static_cast<int>(place % 4)};
  EXPECT_GE(fail_each_call(program, {Device::cuda()}, calls).size(), 3u);  // there, a kernel, back
}

INSTANTIATE_TEST_SUITE_P(Table, CudaFailures, testing::ValuesIn(op_cases()), test_name);

}  // namespace
}  // namespace reel::test
