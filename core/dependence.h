#pragma once

// Private to core/: what depends on what, across the beginning of a tape.

#include <cstdint>

#include "reel/core/node_list.h"

namespace reel::detail {

/// The op before node `first` through which y, an output of one of the nodes [first, last], depends on x; null if none is.
const Node* link_before(const NodeList& list, std::int64_t first, std::int64_t last, std::int64_t y_slot,
                        const TensorState& x);

}  // namespace reel::detail
