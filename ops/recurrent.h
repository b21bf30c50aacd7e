#pragma once

#include <vector>

#include "reel/core/ragged.h"

/// Recurrent networks in PyTorch's layout and formulas, over sequences of different lengths without padding, or over a batch
/// of equal ones. Letters: gates = 4 (lstm: i f g o), 3 (gru: r z n) or 1 (rnn); n sequences.
namespace reel {

/// One layer in one direction. Biases may be undefined.
struct RecurrentWeights {
  Tensor weight_ih;     // [gates hidden, in]; above the first layer in = hidden, or 2 hidden if bidirectional
  Tensor weight_hh;     // [gates hidden, hidden]
  Tensor bias_ih = {};  // [gates hidden]
  Tensor bias_hh = {};  // [gates hidden]
};

struct RecurrentOptions {
  /// Each layer also runs from the last row to the first; the results stand side by side.
  bool bidirectional = false;
  /// A Tensor is [n, steps, in] rather than [steps, n, in], and so is the result.
  bool batch_first = false;
  /// Where to start, [layers directions, n, hidden]; undefined: 0. c0 for lstm only.
  Tensor h0 = {}, c0 = {};
};

/// All states of the last layer, and the last states of each layer and direction, [layers directions, n, hidden]; c is
/// defined for lstm only. A sequence without rows ends where it starts.
template <class X>
struct RecurrentResult {
  X y;
  Tensor h, c;
};

enum class Nonlinearity : std::uint8_t { tanh, relu };

/// Over x's rows [total, in] within each sequence, or x [steps, n, in]; y has `directions hidden` in place of `in`. `weights`
/// has layer after layer, and for each the forward and, if bidirectional, the backward direction. f32 or f64; gradients of
/// any order for x, the weights and the initial states (the second order by plain ops, slowly). Outputs and x's gradients of
/// a sequence are the same bits alone and in a batch.
///   lstm: i, f, o = sigmoid(..), g = tanh(..) of W_ih x + b_ih + W_hh h + b_hh; c' = f c + i g; h' = o tanh(c')
///         (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000)
///   gru:  r, z = sigmoid(..); n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h' = (1 - z) n + z h (Cho et al., 2014)
///   rnn:  h' = tanh or relu of W_ih x + b_ih + W_hh h + b_hh
/// Throw ShapeError, DTypeError, DeviceError, and Error for a wrong number of weights or a c0 that has no use. Backward keeps
/// x, the weights, the states and the gates of all rows; without a tape nothing is kept.
REEL_API RecurrentResult<Ragged> lstm(const Ragged& x, const std::vector<RecurrentWeights>& weights,
                                      const RecurrentOptions& options = {},
                                      SourceLocation where = SourceLocation::current());
REEL_API RecurrentResult<Tensor> lstm(const Tensor& x, const std::vector<RecurrentWeights>& weights,
                                      const RecurrentOptions& options = {},
                                      SourceLocation where = SourceLocation::current());
REEL_API RecurrentResult<Ragged> gru(const Ragged& x, const std::vector<RecurrentWeights>& weights,
                                     const RecurrentOptions& options = {},
                                     SourceLocation where = SourceLocation::current());
REEL_API RecurrentResult<Tensor> gru(const Tensor& x, const std::vector<RecurrentWeights>& weights,
                                     const RecurrentOptions& options = {},
                                     SourceLocation where = SourceLocation::current());
REEL_API RecurrentResult<Ragged> rnn(const Ragged& x, const std::vector<RecurrentWeights>& weights,
                                     Nonlinearity nonlinearity = Nonlinearity::tanh,
                                     const RecurrentOptions& options = {},
                                     SourceLocation where = SourceLocation::current());
REEL_API RecurrentResult<Tensor> rnn(const Tensor& x, const std::vector<RecurrentWeights>& weights,
                                     Nonlinearity nonlinearity = Nonlinearity::tanh,
                                     const RecurrentOptions& options = {},
                                     SourceLocation where = SourceLocation::current());

}  // namespace reel
