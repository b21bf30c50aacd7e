#include "reel/ops/hashing.h"

namespace reel {}  // namespace reel
