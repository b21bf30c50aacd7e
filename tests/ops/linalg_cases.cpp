#include "reel/tests/ops/op_case.h"

namespace reel::test {

std::vector<OpCase> linalg_cases() { return {}; }

}  // namespace reel::test
