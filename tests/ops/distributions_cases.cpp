#include "reel/tests/ops/op_case.h"

namespace reel::test {

std::vector<OpCase> distributions_cases() { return {}; }

}  // namespace reel::test
