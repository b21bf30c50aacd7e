#include "reel/backends/cuda/status.h"

#include <atomic>
#include <string>

#include "reel/core/error.h"

namespace reel::cuda {

namespace {

// The text of the first sticky error; never freed.
std::atomic<const std::string*> broken{nullptr};

/// Errors after which, as the runtime's manual says of each, the process has to be ended to use CUDA again.
bool is_sticky(cudaError_t status) {
  switch (static_cast<int>(status)) {
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
      return true;
    default:
      return false;
  }
}

}  // namespace

void check_usable() {
  if (const std::string* text = broken.load(std::memory_order_acquire)) [[unlikely]]
    throw DeviceError("cuda: the GPU must be usable, but an earlier error left it unusable until the program ends: " +
                      *text);
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  check_usable();
  const std::string text =
      std::string(call) + " must succeed, got " + cudaGetErrorName(status) + " (" + cudaGetErrorString(status) + ")";
  cudaGetLastError();  // else the next launch would tell it once more
  if (is_sticky(status)) {
    const std::string* none = nullptr;
    broken.compare_exchange_strong(none, new std::string(text), std::memory_order_acq_rel);
  }
  throw DeviceError("cuda: " + text);
}

}  // namespace reel::cuda
