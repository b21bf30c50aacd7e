#include "reel/ops/sampling.h"

namespace reel {}  // namespace reel
