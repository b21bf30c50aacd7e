#include "reel/ops/gated.h"

namespace reel {}  // namespace reel
