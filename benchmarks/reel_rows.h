#pragma once

#include <memory>
#include <utility>

#include "rows.h"
#include "reel/reel.h"

namespace bench {

inline reel::Tensor tensor(std::uint32_t stream, const reel::Shape& shape, double scale = 1) {
  return reel::from_vector(inputs(stream, shape.size(), scale), shape);
}
inline reel::Tensor labels(Int rows, Int classes) {
  std::vector<Int> values;
  for (Int i = 0; i < rows; ++i) values.push_back(label(i, classes));
  return reel::from_vector(values);
}
inline Digest digest(const reel::Tensors& tensors) {
  Digest digest;
  for (const reel::Tensor& x : tensors) {
    const std::vector<float> values = x.to_vector<float>();
    digest.add(values.data(), static_cast<std::int64_t>(values.size()));
  }
  return digest;
}

/// f() gives the result; nothing is recorded.
template <class F>
Work forward(F f) {
  auto last = std::make_shared<reel::Tensor>();
  return {repeated([f, last] { *last = f(); }), [last] { return digest({*last}); }};
}
/// f(xs) is computed and its gradient with regard to all xs taken, from a given gradient of the result.
template <class F>
Work with_backward(reel::Tensors xs, F f) {
  using namespace reel;
  auto last = std::make_shared<Tensors>();
  const Tensor dy = tensor(50, f(xs).shape());
  return {repeated([=] {
            Tape tape;
            for (const Tensor& x : xs) tape.watch(x);
            *last = tape.gradient(f(xs), dy, xs);
          }),
          [last] { return digest(*last); }};
}

/// In three_pass_softmax.cpp.
Work three_pass_softmax(Int rows, Int cols);

std::vector<Row> model_rows();
std::vector<Row> kernel_rows();
std::vector<Row> ragged_rows();

}  // namespace bench
