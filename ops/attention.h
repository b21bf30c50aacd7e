#pragma once

#include <optional>

#include "reel/core/ragged.h"

namespace reel {

struct AttentionOptions {
  /// Which keys a query sees: bool8, or of q's dtype and added to the scores (-inf hides). Broadcasts to [..., queries, keys];
  /// for Ragged to [heads, longest query sequence, longest key sequence], each sequence taking what it needs from the front.
  Tensor mask = {};
  /// Query i sees keys up to i + (keys - queries): the last query sees all of them. (PyTorch's is_causal counts from the
  /// first query and key; the two agree where there are as many keys as queries.)
  bool causal = false;
  /// 1 / sqrt(width) if not given.
  std::optional<double> scale = {};
};

/// softmax(scale q k^T + mask) v over the keys: q [..., queries, width], k [..., keys, width], v [..., keys, value width], the
/// leading axes (as a rule batch, heads) equal; the result is [..., queries, value width]. f32 or f64. A query that sees no key,
/// or only scores of -inf, gives 0 with zero gradient. What a query does not see, by the mask or as causal, does not reach it, nor it
/// the key, forward or backward, NaN and infinities included: a key that none sees has zero gradient, whatever it is.
/// Vaswani et al., "Attention is all you need", 2017.
///
/// Works in blocks (online softmax, Milakov and Gimelshein, 2018): no matrix of all scores is kept. Backward keeps q, k, v, the
/// result and two numbers per query, and computes the probabilities again. Where the mask needs a gradient, and in gradients of
/// gradients, all scores are kept, and a GPU is waited for where keys may be hidden. Throws DTypeError, DeviceError,
/// ShapeError, and Error for a scale that is not finite.
REEL_API Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOptions& options = {},
                                             SourceLocation where = SourceLocation::current());
/// The same within each sequence, without padding: values q [total queries, heads, width], k [total keys, heads, width],
/// v [total keys, heads, value width]. k and v have the same lengths; q has as many sequences, which may have other lengths
/// (cross-attention). A sequence's result does not depend on the others, to the bit.
REEL_API Ragged scaled_dot_product_attention(const Ragged& q, const Ragged& k, const Ragged& v,
                                             const AttentionOptions& options = {},
                                             SourceLocation where = SourceLocation::current());

}  // namespace reel
