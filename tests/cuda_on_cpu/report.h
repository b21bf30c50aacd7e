#pragma once

#include <string>

#include "reel/tests/cuda_on_cpu/executor.h"

namespace cuda_on_cpu {

/// The executor's report of what f does.
template <class F>
std::string report(F f) {
  try {
    f();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "nothing was reported";
}

}  // namespace cuda_on_cpu
