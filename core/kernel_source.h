#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reel/core/device.h"

namespace reel {

/// A CUDA kernel as its user wrote it: compiled at run time for the GPU that it is launched on.
struct REEL_API KernelSource {
  KernelSource();

  std::string op;                    // told in errors
  std::string text;                  // CUDA C++
  std::string file;                  // where the text is from
  std::string kernel;                // its name, as C++ has it: "cube<float>"
  std::string parameters;            // the types that it is launched with: "long long, const float*, float*"
  std::vector<std::string> folders;  // in which headers are looked for
  std::vector<std::string> options;  // of the compiler, beside Reel's
  std::uint64_t serial;              // tells sources apart
};

struct KernelLaunch {
  std::int64_t blocks[3] = {1, 1, 1};
  int threads[3] = {1, 1, 1};
  std::size_t shared_bytes = 0;
  void** arguments = nullptr;  // one address for each of the parameters
};

/// Puts a kernel on the device's stream, compiling it first if that has not been done. Throws Error with the compiler's log if
/// it does not compile, DeviceError if the launch fails.
REEL_API void launch_kernel(Device device, const KernelSource& source, const KernelLaunch& launch,
                            SourceLocation where);

}  // namespace reel
