#pragma once

#include <string>

#include "reel/backends/cuda/kernel_source.h"

namespace reel::cuda {

/// Machine code of one kernel, as cudaLibraryLoadData takes it (a cubin, or PTX for a GPU newer than the compiler), and its
/// name in there.
struct CompiledKernel {
  std::string name, image;
};

/// NVIDIA's run-time compiler, opened when a kernel in source form is first launched: programs without one need no libnvrtc.
class Nvrtc {
 public:
  /// Throws DeviceError if there is no libnvrtc: the file that REEL_NVRTC in the environment names, or where the loader and
  /// CUDA's installers put it.
  static const Nvrtc& get(SourceLocation where);

  /// "13.0"
  const std::string& version() const { return version_; }
  /// The options for a GPU of this architecture (90: sm_90), in order.
  std::vector<std::string> options(const KernelSource& source, int architecture) const;
  /// Throws Error with the compiler's log, in which files and lines stand.
  CompiledKernel compile(const KernelSource& source, int architecture, SourceLocation where) const;

 private:
  struct Functions;
  Nvrtc(const Functions* functions, SourceLocation where);
  /// Whether it makes machine code for that GPU; else PTX of the newest that it knows.
  bool knows(int architecture) const;

  const Functions* functions_;
  std::string version_;
  std::vector<int> architectures_;
};

/// The source as it is compiled: the user's text, and a line that refuses a kernel whose parameters are not those that it is
/// launched with.
std::string checked_text(const KernelSource& source);

}  // namespace reel::cuda
