#include "reel/ops/index.h"

namespace reel {}  // namespace reel
