#pragma once

#include "reel/core/ragged.h"

namespace reel {}  // namespace reel
