#include "reel/nn/digits.h"

#include "reel/ops/create.h"

namespace reel::nn::digits {

namespace {

constexpr float kInk = 16;

Dataset part(int begin, int end) {
  const Images& all = images();
  Dataset dataset{empty({end - begin, 1, kSide, kSide}), empty({end - begin}, {.dtype = i64})};
  float* pixel = dataset.inputs.array().as<float>();
  auto* label = dataset.targets.array().as<std::int64_t>();
  for (int i = begin; i < end; ++i) {
    for (const std::uint8_t level : all.pixels[i]) *pixel++ = static_cast<float>(level) / kInk;
    *label++ = all.labels[i];
  }
  return dataset;
}

}  // namespace

Dataset train() { return part(0, kTrain); }
Dataset test() { return part(kTrain, kImages); }

}  // namespace reel::nn::digits
