// Uses a little of everything that crosses the library's boundary: objects, templates, a callback, an exception.

#include <reel/reel.h>

#include <cstdio>
#include <string>

using namespace reel;

#if defined(WITH_CUDA)
// The backend is there: on a machine without a GPU it is the machine, not Reel, of which something is missing.
bool cuda_answers() {
  if (Device::best() == Device::cuda()) return sum(ones({3}, {.device = Device::cuda()})).item() == 3;
  try {
    ones({3}, {.device = Device::cuda()});
  } catch (const DeviceError& error) {
    std::puts(error.what());
    const std::string text = error.what();
    for (const char* missing : {"the NVIDIA driver is missing", "this machine has no NVIDIA GPU"})
      if (text.find(missing) != std::string::npos) return Device::best() == Device::cpu();
  }
  return false;
}
#else
bool cuda_answers() { return true; }
#endif

int main() {
  Parameter w(full({3}, 2.0), "w");
  {
    Tape tape;
    tape.backward(sum(w * w));
  }
  if (sum(w.gradient()).item() != 12.0) return 1;

  try {
    matmul(zeros({2, 3}), zeros({2, 3}));
    return 1;
  } catch (const ShapeError& error) {
    std::puts(error.what());
  }
  return cuda_answers() ? 0 : 1;
}
