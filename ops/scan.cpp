#include "reel/ops/scan.h"

namespace reel {}  // namespace reel
