#include "reel/core/half.h"

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/running.h"
#include "reel/core/tensor.h"

namespace reel::detail {

void refuse_half(DType dtype) {
  throw DTypeError(running_op() + ": numbers to compute with must be f32, f64 or integers, got " + name_of(dtype) +
                       "; cast to f32 first",
                   {});
}

void accumulate(const Tensor& x, const Tensor& y) {
  Ops& ops = backend(y.device());
  if (!is_half(y.dtype())) return ops.accumulate(x.array(), y.array());
  const Tensor sum = copied(y, f32);
  ops.accumulate(copied(x, f32).array(), sum.array());
  ops.copy(sum.array(), y.array());
}

}  // namespace reel::detail
