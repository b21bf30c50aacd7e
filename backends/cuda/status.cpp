#include "reel/backends/cuda/status.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "reel/core/device.h"
#include "reel/core/error.h"

namespace reel::cuda {

namespace {

// The text of each GPU's first sticky error; never freed.
std::atomic<const std::string*> broken[kMostGpus] = {};

thread_local int used = -1;  // the GPU that this thread made its own last

std::atomic<bool> ending{false}, forked{false};

/// Errors after which, as the runtime's manual says of each, the process has to be ended to use CUDA again.
bool is_sticky(cudaError_t status) {
  switch (static_cast<int>(status)) {
    case 226:  // cudaErrorContained
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
    case 810:  // cudaErrorMpsClientTerminated
    case 911:  // cudaErrorExternalDevice
      return true;
    default:
      return false;
  }
}

// A thread that has chosen none works on the first.
std::string told(const std::string& what) { return Device::cuda(used < 0 ? 0 : used).name() + ": " + what; }

std::string failed(const char* call, const std::string& got) { return std::string(call) + " must succeed, got " + got; }

void check_usable() {
  if (used < 0) return;
  if (forked.load(std::memory_order_relaxed)) [[unlikely]]
    throw DeviceError(
        told("the GPU must be used by the process that used CUDA first, got one forked from it: fork before, or start "
             "a program in the child"));
  if (const std::string* text = broken[used].load(std::memory_order_acquire)) [[unlikely]]
    throw DeviceError(
        told("the GPU must be usable, but an earlier error left it unusable until the program ends: " + *text));
}

}  // namespace

void watch_process() {
  static const int watched = [] {
    std::atexit([] { ending.store(true, std::memory_order_relaxed); });
    return pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  }();
  (void)watched;
}

bool is_over() { return ending.load(std::memory_order_relaxed) || forked.load(std::memory_order_relaxed); }

void use_gpu(int index) {
  const bool known = used == index;
  used = index;
  check_usable();
  // Whoever else works with CUDA in this thread may have gone to another GPU since. A thread's first call sets its own even if
  // it is the right one by default: only then it has a context.
  int now = -1;
  if (known && cudaGetDevice(&now) == cudaSuccess && now == index) [[likely]]
    return;
  check(cudaSetDevice(index), "cudaSetDevice");
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  check_usable();
  const std::string text =
      failed(call, std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")");
  cudaGetLastError();  // else the next launch would tell it once more
  if (is_sticky(status) && used >= 0) {
    const std::string* none = nullptr;
    broken[used].compare_exchange_strong(none, new std::string(text), std::memory_order_acq_rel);
  }
  throw DeviceError(told(text));
}

void throw_failed(const char* call, const std::string& got) {
  check_usable();
  throw DeviceError(told(failed(call, got)));
}

}  // namespace reel::cuda
