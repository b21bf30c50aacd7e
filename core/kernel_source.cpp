#include "reel/core/kernel_source.h"

#include <atomic>

namespace reel {

KernelSource::KernelSource() {
  static std::atomic<std::uint64_t> count{0};
  serial = ++count;
}

}  // namespace reel
