#include "reel/tests/ops/op_case.h"

namespace reel::test {

std::vector<OpCase> hashing_cases() { return {}; }

}  // namespace reel::test
