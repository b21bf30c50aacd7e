#pragma once

#include <cstdint>

namespace reel::cuda {

/// The device word: the first bad index since the host last looked, as kernels on the device report it. `serial` is the
/// number of the check that found it; 0: none.
struct Fault {
  unsigned lock;
  unsigned unused;
  unsigned long long serial;
  long long position, value;
};

}  // namespace reel::cuda
