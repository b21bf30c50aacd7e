#pragma once

#include <cstdlib>
#include <memory>
#include <utility>

#include "rows.h"
#include "reel/reel.h"

namespace bench {

/// Where everything is computed: REEL_BENCH_DEVICE in the environment ("cuda"), else the CPU.
inline reel::Device device() {
  static const reel::Device chosen = [] {
    const char* name = std::getenv("REEL_BENCH_DEVICE");
    return reel::Device::parse(name != nullptr ? name : "cpu");
  }();
  return chosen;
}

inline reel::Tensor tensor(std::uint32_t stream, const reel::Shape& shape, double scale = 1) {
  const Int count = shape.size();
  if (device().is_cpu() || count < kManyElements)
    return reel::to(reel::from_vector(inputs(stream, count, scale), shape), device());
  const reel::Tensor first = reel::to(reel::from_vector(inputs(stream, kRepeated, scale)), device());
  return reel::reshape(reel::tile(first, {count / kRepeated}), shape);
}
/// Images, weight and bias of a 3x3 convolution.
inline reel::Tensors conv_operands(Int images, Int in, Int out, Int size) {
  const auto operand = [](std::uint32_t stream, const reel::Shape& shape, double scale = 1) {
    return reel::to(reel::from_vector(conv_inputs(stream, shape.size(), scale), shape), device());
  };
  return {operand(1, {images, in, size, size}), operand(2, {out, in, 3, 3}, 0.3), operand(3, {out}) + kConvBias};
}
inline reel::Tensor labels(Int rows, Int classes) {
  std::vector<Int> values;
  for (Int i = 0; i < rows; ++i) values.push_back(label(i, classes));
  return reel::to(reel::from_vector(values), device());
}
inline Digest digest(const reel::Tensors& tensors) {
  Digest digest;
  for (const reel::Tensor& tensor : tensors) {
    reel::Tensor x = tensor;
    if (x.size() >= kManyElements) {  // the first and the last stand for all
      const reel::Tensor all = reel::flatten(x);
      x = reel::concatenate({reel::slice(all, 0, 0, kShown), reel::slice(all, 0, x.size() - kShown, x.size())});
    }
    const std::vector<float> values = x.to_vector<float>();
    digest.add(values.data(), static_cast<std::int64_t>(values.size()));
  }
  return digest;
}

/// f() gives the result; nothing is recorded.
template <class F>
Work forward(F f) {
  auto last = std::make_shared<reel::Tensor>();
  return {[f, last](std::int64_t n) {
            call_repeatedly(n, *last, f);
            reel::synchronize(device());
          },
          [last] { return digest({*last}); }};
}
/// f(xs) is computed and its gradient with regard to all xs taken, from a given gradient of the result; that of a loss is 1.
template <class F>
Work with_backward(reel::Tensors xs, F f) {
  using namespace reel;
  auto last = std::make_shared<Tensors>();
  const Shape shape = f(xs).shape();
  const Tensor dy = shape.rank() == 0 ? ones({}, {.device = device()}) : tensor(50, shape);
  return {[=](std::int64_t n) {
            call_repeatedly(n, *last, [&] {
              Tape tape;
              for (const Tensor& x : xs) tape.watch(x);
              return tape.gradient(f(xs), dy, xs);
            });
            reel::synchronize(device());
          },
          [last] { return digest(*last); }};
}

/// In softmax_ways.cpp.
Work three_pass_softmax(Int rows, Int cols);
Work online_softmax(Int rows, Int cols);

std::vector<Row> model_rows();
std::vector<Row> kernel_rows();
std::vector<Row> layer_rows();
std::vector<Row> ragged_rows();
/// For GPUs: tensors of 2^26 elements, and what has no row among those for CPUs.
std::vector<Row> gpu_rows();

}  // namespace bench
