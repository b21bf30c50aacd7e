#include "reel/ops/linalg.h"

namespace reel {}  // namespace reel
