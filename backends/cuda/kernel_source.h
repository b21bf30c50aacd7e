#pragma once

#include <string>
#include <vector>

#include "reel/core/user_kernel.h"

namespace reel::cuda {

/// A kernel as the compiler gets it: read, and named for the types that it is launched with.
struct KernelSource {
  std::string op;                    // told in errors
  std::string text;                  // CUDA C++
  std::string file;                  // where the text is from
  std::string kernel;                // its name, as C++ has it: "cube<float>"
  std::string parameters;            // the types that it is launched with: "long long, const float*, float*"
  std::vector<std::string> folders;  // in which headers are looked for
  std::vector<std::string> options;  // of the compiler, beside Reel's
};

/// The source of a launch, made once; it stays where it is. Throws FileError if the file cannot be read.
const KernelSource& source_of(const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where);

/// Where the arguments are, as launches take them.
std::vector<void*> addresses_of(const KernelLaunch& launch);

}  // namespace reel::cuda
