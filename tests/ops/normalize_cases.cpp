#include "reel/tests/ops/op_case.h"

namespace reel::test {

std::vector<OpCase> normalize_cases() { return {}; }

}  // namespace reel::test
