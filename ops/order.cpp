#include "reel/ops/order.h"

namespace reel {}  // namespace reel
