#include "reel/ops/logical.h"

namespace reel {}  // namespace reel
