#include "reel/ops/pool.h"

namespace reel {}  // namespace reel
