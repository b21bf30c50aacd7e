#include "reel/ops/rotary.h"

namespace reel {}  // namespace reel
