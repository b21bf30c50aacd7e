#include "reel/ops/sparse.h"

namespace reel {}  // namespace reel
