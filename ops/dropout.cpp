#include "reel/ops/dropout.h"

namespace reel {}  // namespace reel
