#pragma once

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/math.h"
#include "reel/core/scalar/tanh.h"

// Recurrent cells, one unit at a time.

namespace reel::cuda {

namespace device {

/// x (1 - x), a sigmoid's derivative, and (1 - x) (1 + x), that of a hyperbolic tangent, at their results.
template <class T>
REEL_DEVICE T sigmoid_slope(T x) {
  return x * (T(1) - x);
}
template <class T>
REEL_DEVICE T tanh_slope(T x) {
  return (T(1) - x) * (T(1) + x);
}

// One unit of a cell. Forward: x, r -> gates; `state` is what the step takes over from the one before (c or h), then what it
// hands on in its place (c); returns h. Backward: gates, `before` = c_prev or h_prev, dh -> dx; `carried` is dc, then what
// goes to the step before (dc_prev or dh_prev).

template <bool bent>
struct Rnn {
  static constexpr int kGates = 1;
  template <class T>
  REEL_DEVICE static T forward(const T (&x)[1], const T (&r)[1], T&, T (&gates)[1]) {
    const T sum = x[0] + r[0];
    gates[0] = bent ? scalar::tanh(sum) : sum <= T(0) ? T(0) : sum;
    return gates[0];
  }
  template <class T>
  REEL_DEVICE static void backward(const T (&gates)[1], T, T, T, T dh, T& carried, T (&dx)[1], T (&dr)[1]) {
    dx[0] = bent ? dh * tanh_slope(gates[0]) : gates[0] <= T(0) ? T(0) : dh;
    dr[0] = dx[0];
    carried = 0;
  }
};

/// Gates i f g o; c = f c_prev + i g, h = o tanh(c).
struct Lstm {
  static constexpr int kGates = 4;
  template <class T>
  REEL_DEVICE static T forward(const T (&x)[4], const T (&r)[4], T& state, T (&gates)[4]) {
    REEL_UNROLL
    for (int k = 0; k < 4; ++k) gates[k] = k == 2 ? scalar::tanh(x[k] + r[k]) : scalar::sigmoid(x[k] + r[k]);
    state = scalar::fma(gates[1], state, gates[0] * gates[2]);
    return gates[3] * scalar::tanh(state);
  }
  template <class T>
  REEL_DEVICE static void backward(const T (&gates)[4], T, T before, T c, T dh, T& carried, T (&dx)[4], T (&dr)[4]) {
    const T bent = scalar::tanh(c), dc = scalar::fma(dh * gates[3], tanh_slope(bent), carried);
    dx[0] = dc * gates[2] * sigmoid_slope(gates[0]);
    dx[1] = dc * before * sigmoid_slope(gates[1]);
    dx[2] = dc * gates[0] * tanh_slope(gates[2]);
    dx[3] = dh * bent * sigmoid_slope(gates[3]);
    REEL_UNROLL
    for (int k = 0; k < 4; ++k) dr[k] = dx[k];
    carried = dc * gates[1];
  }
};

/// Gates r z n; n = tanh(x_n + r r_n), h = (1 - z) n + z h_prev.
struct Gru {
  static constexpr int kGates = 3;
  template <class T>
  REEL_DEVICE static T forward(const T (&x)[3], const T (&r)[3], T& state, T (&gates)[3]) {
    gates[0] = scalar::sigmoid(x[0] + r[0]);
    gates[1] = scalar::sigmoid(x[1] + r[1]);
    gates[2] = scalar::tanh(scalar::fma(gates[0], r[2], x[2]));
    return scalar::fma(gates[1], state, (T(1) - gates[1]) * gates[2]);
  }
  template <class T>
  REEL_DEVICE static void backward(const T (&gates)[3], T r_n, T before, T, T dh, T& carried, T (&dx)[3], T (&dr)[3]) {
    dx[2] = dh * (T(1) - gates[1]) * tanh_slope(gates[2]);
    dx[0] = dx[2] * r_n * sigmoid_slope(gates[0]);
    dx[1] = dh * (before - gates[2]) * sigmoid_slope(gates[1]);
    dr[0] = dx[0];
    dr[1] = dx[1];
    dr[2] = dx[2] * gates[0];
    carried = dh * gates[1];
  }
};

}  // namespace device

/// f.template operator()<Cell>()
template <class F>
void dispatch_cell(CellOp op, F&& f) {
  switch (op) {
    case CellOp::rnn_tanh:
      return f.template operator()<device::Rnn<true>>();
    case CellOp::rnn_relu:
      return f.template operator()<device::Rnn<false>>();
    case CellOp::lstm:
      return f.template operator()<device::Lstm>();
    case CellOp::gru:
      return f.template operator()<device::Gru>();
  }
}

}  // namespace reel::cuda
