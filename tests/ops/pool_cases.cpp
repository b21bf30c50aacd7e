#include "reel/tests/ops/op_case.h"

namespace reel::test {

std::vector<OpCase> pool_cases() { return {}; }

}  // namespace reel::test
