#include "reel/core/ops.h"

namespace reel {

Ops::~Ops() = default;  // here, so that the vtable has one home

}  // namespace reel
