#include "reel/ops/sequence.h"

namespace reel {}  // namespace reel
