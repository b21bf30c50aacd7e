#include "reel/core/ops.h"

#include "reel/core/error.h"
#include "reel/core/scratch.h"

namespace reel {

namespace {

/// A block of a backend's memory for the time of a scope.
struct OwnBlock {
  Ops& ops;
  std::size_t bytes;
  void* data;
  OwnBlock(Ops& ops_, std::size_t bytes_) : ops(ops_), bytes(bytes_), data(ops_.allocate(bytes_)) {}
  ~OwnBlock() { ops.deallocate(data, bytes); }
  OwnBlock(const OwnBlock&) = delete;
  OwnBlock& operator=(const OwnBlock&) = delete;
};

}  // namespace

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

void Ops::recurrent(const Recurrence&, const Array&, const RecurrentLayer&, const Array&, const Array*, const Array&,
                    const Array*, const Array&, const Array*, const Array*, const Array*) {
  throw Error("recurrent: this backend computes layers step by step");
}

void Ops::recurrent_backward(const Recurrence&, const Array&, const RecurrentLayer&, const Array&, const Array*,
                             const Array&, const Array*, const Array&, const Array*, const Array*, const Array*,
                             const Array*, const RecurrentGradients&) {
  throw Error("recurrent_backward: this backend computes layers step by step");
}

void Ops::recurrent_gradients(const Array& x, const RecurrentLayer& layer, const Array& dz, const Array& dback,
                              const Array& before, const RecurrentGradients& to) {
  const std::int64_t gates = dz.shape[1];
  const auto multiply = [&](const Array& a, bool trans_a, const Array& b, const GradientSink& sink) {
    if (!sink.wanted()) return;
    Gemm product = gemm_of(a, trans_a, b, false, sink.to.data);
    product.accumulate = sink.add;
    gemm(product);
  };
  multiply(dz, false, layer.input, to.x);
  multiply(dz, true, x, to.input);
  multiply(dback, true, before, to.recurrent);
  const auto bias = [&](const Array& of_gates, const GradientSink& first, const GradientSink& second) {
    if (!first.wanted() && !second.wanted()) return;
    const OwnBlock room(*this, static_cast<std::size_t>(gates) * size_of(x.dtype));
    Array sum = first.wanted() ? first.to : second.to;
    sum.data = room.data;
    Array row = sum;
    row.shape = {1, gates};
    row.strides[0] = gates;
    row.strides[1] = 1;
    reduce(ReduceOp::sum, of_gates, row, nullptr);
    for (const GradientSink* sink : {&first, &second}) {
      if (!sink->wanted()) continue;
      if (sink->add) accumulate(sum, sink->to);
      else copy(sum, sink->to);
    }
  };
  const bool one = dz.data == dback.data;
  bias(dz, to.input_bias, one ? to.recurrent_bias : GradientSink());
  if (!one) bias(dback, to.recurrent_bias, {});
}

}  // namespace reel
