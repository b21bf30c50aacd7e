#include "reel/ops/dropout.h"

#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/check.h"

namespace reel {

namespace {

// Linear in x: the gradient drops the same elements of dy, whatever the order.
Tensor dropped(const Tensor& x, double p, const PhiloxState& state, SourceLocation where) {
  Tensor y = empty(x.shape(), x.options());
  backend(x.device()).dropout(detail::packed(x).array(), p, state, y.array());
  if (detail::taping())
    detail::record_op("dropout", where, {&x}, y, {},
                      [p, state, where](detail::Gradients& g) { g.add(0, dropped(g.dy(), p, state, where)); });
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, DropoutOptions options, SourceLocation where) {
  check::floating("dropout", "x", x, where);
  if (!(p >= 0 && p <= 1)) throw Error("dropout: p must be in [0, 1], got " + detail::number_text(p), where);
  if (!options.training || p == 0) return x;
  const PhiloxState state = options.generator != nullptr ? options.generator->take(x.size(), x.dtype())
                                                         : detail::take_random(x.size(), x.dtype());
  return dropped(x, p, state, where);
}

Ragged dropout(const Ragged& x, double p, DropoutOptions options, SourceLocation where) {
  return x.with(dropout(x.values(), p, options, where));
}

}  // namespace reel
