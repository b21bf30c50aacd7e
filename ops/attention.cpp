#include "reel/ops/attention.h"

namespace reel {}  // namespace reel
