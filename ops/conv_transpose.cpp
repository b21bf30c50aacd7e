#include "reel/ops/conv_transpose.h"

namespace reel {}  // namespace reel
