#pragma once

#include <string_view>

#include "reel/core/macros.h"

namespace reel::detail {

/// The same text at a place where it stays: nodes, traces and tensors keep op names as pointers, longer than who gave the
/// name may live. One place per name; it is never freed.
REEL_API const char* interned(std::string_view name);

}  // namespace reel::detail
