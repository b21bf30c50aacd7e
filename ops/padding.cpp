#include "reel/ops/padding.h"

namespace reel {}  // namespace reel
