#include "reel/core/user_kernel.h"

#include <atomic>

namespace reel {

UserKernel::UserKernel() {
  static std::atomic<std::uint64_t> count{0};
  serial = ++count;
}

}  // namespace reel
