#pragma once

#include <string>

#include "reel/core/tensor.h"

namespace reel::nn {

/// A tensor under its name in a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace reel::nn
