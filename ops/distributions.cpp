#include "reel/ops/distributions.h"

namespace reel {}  // namespace reel
