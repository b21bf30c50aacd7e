#include "reel/core/ops.h"

#include "reel/core/scratch.h"

namespace reel {

Ops::~Ops() = default;  // here, so that the vtable has one home

void* Ops::allocate(std::size_t bytes) { return bytes == 0 ? nullptr : detail::host_allocate(bytes); }

void Ops::deallocate(void* block, std::size_t bytes) noexcept { detail::host_free(block, bytes); }

}  // namespace reel
