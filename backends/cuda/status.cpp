#include "reel/backends/cuda/status.h"

#include <atomic>
#include <string>

#include "reel/core/error.h"

namespace reel::cuda {

namespace {

// The text of the first sticky error; never freed.
std::atomic<const std::string*> broken{nullptr};

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
  cudaGetLastError();                       // takes an ordinary error away,
  if (cudaGetLastError() != cudaSuccess) {  // and leaves a sticky one
    const std::string* none = nullptr;
    broken.compare_exchange_strong(none, new std::string(text), std::memory_order_acq_rel);
  }
  throw DeviceError("cuda: " + text);
}

}  // namespace reel::cuda
