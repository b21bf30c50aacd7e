#include "reel/core/ops.h"

#include "reel/core/error.h"
#include "reel/core/scratch.h"

namespace reel {

Ops::~Ops() = default;  // here, so that the vtable has one home

void* Ops::allocate(std::size_t bytes) { return bytes == 0 ? nullptr : detail::host_allocate(bytes); }

void Ops::deallocate(void* block, std::size_t bytes) noexcept { detail::host_free(block, bytes); }

void Ops::synchronize() {}

void Ops::conv_backward(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                        const Array& weight, const Array& dx, const Array& dweight, const Array* dbias) {
  conv_backward_input(conv, dy, relu_output, weight, dx);
  conv_backward_weight(conv, x, dy, relu_output, dweight, dbias);
}

bool Ops::fuses_steps(DType, std::int64_t) const { return false; }

void Ops::recurrent(const Recurrence&, const Array&, const Array&, const Array*, const Array&, const Array*,
                    const Array&, const Array*, const Array&, const Array*, const Array*, const Array*) {
  throw Error("recurrent: this backend computes layers step by step");
}

void Ops::recurrent_backward(const Recurrence&, const Array&, const Array&, const Array*, const Array&, const Array*,
                             const Array&, const Array*, const Array*, const Array*, const Array*, const Array&,
                             const Array&, const Array&, const Array*, const Array*) {
  throw Error("recurrent_backward: this backend computes layers step by step");
}

}  // namespace reel
