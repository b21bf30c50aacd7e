#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reel/core/device.h"
#include "reel/core/dtype.h"

namespace reel {

/// A CUDA kernel as its user names it: in a file or a text, compiled at run time for the GPU that it is launched on.
struct REEL_API UserKernel {
  UserKernel();

  std::string op;                    // told in errors
  std::string file;                  // where it is, or where the text is from
  std::string text;                  // CUDA C++; empty: the file's
  std::string kernel;                // its name, in which T stands for the floating type: "cube<T>"
  std::vector<std::string> folders;  // in which headers are looked for, beside the file's
  std::vector<std::string> options;  // of the compiler, beside Reel's
  std::uint64_t serial;              // tells kernels apart
};

/// One of the values that a kernel is launched with.
struct KernelArgument {
  enum class Form : std::uint8_t { input, output, number };
  Form form;
  DType dtype;
  union Value {
    const void* pointer;
    std::int64_t integer;
    double real;
  } value;
};

struct KernelLaunch {
  std::int64_t blocks[3] = {1, 1, 1};
  int threads[3] = {1, 1, 1};
  std::size_t shared_bytes = 0;
  DType real = f32;  // what T stands for
  const KernelArgument* arguments = nullptr;
  std::size_t count = 0;
};

/// Puts a kernel on the device's stream, compiling it first if that has not been done. Throws FileError if its file cannot be
/// read, Error with the compiler's log if it does not compile, DeviceError if the launch fails.
REEL_API void launch_kernel(Device device, const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where);

}  // namespace reel
