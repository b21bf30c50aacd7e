#include "reel/ops/write_once.h"

namespace reel {}  // namespace reel
