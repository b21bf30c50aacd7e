#include "reel/ops/recurrent.h"

namespace reel {}  // namespace reel
