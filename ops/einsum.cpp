#include "reel/ops/einsum.h"

namespace reel {}  // namespace reel
