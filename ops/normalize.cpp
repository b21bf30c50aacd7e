#include "reel/ops/normalize.h"

namespace reel {}  // namespace reel
