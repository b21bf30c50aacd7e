#include "reel/ops/transforms.h"

namespace reel {}  // namespace reel
