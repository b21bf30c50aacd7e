#pragma once

// What the tests of custom ops share.

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/custom_op.h"

namespace reel {

inline Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

/// y[i] = f(inputs at i). In these tests ops that are wrong on purpose are not checked at their first call.
template <class F>
CustomOp elementwise(const char* name, F f) {
  return CustomOp(name, false).cpu([f]<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
    cpu.parallel_for(out.elements(0), [&](auto begin, auto end) {
      for (auto i = begin; i < end; ++i)
        out.get<T>(0)[static_cast<std::size_t>(i)] = f(in, static_cast<std::size_t>(i), T());
    });
  });
}

/// x^3 with its gradient to third order, each op the backprop of the one before.
inline CustomOp make_cube() {
  return elementwise("cube",
                     [](Inputs in, std::size_t i, auto t) {
                       const auto x = in.get<decltype(t)>(0)[i];
                       return x * x * x;
                     })
      .backprop(elementwise("cube_backward", [](Inputs in, std::size_t i, auto t) {
                  const auto x = in.get<decltype(t)>(1)[i];
                  return 3 * in.get<decltype(t)>(0)[i] * x * x;
                }).backprop([](const CustomBackward& g) {
        return Tensors{3 * g.dy[0] * g.in[1] * g.in[1], 6 * g.dy[0] * g.in[0] * g.in[1], Tensor()};
      }));
}

}  // namespace reel
