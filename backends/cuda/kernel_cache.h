#pragma once

#include <memory>
#include <string>

#include "reel/backends/cuda/nvrtc.h"

namespace reel::cuda {

/// The kernel compiled for a GPU of this architecture: from this process' memory, from the disk, or by NVRTC just now. What is
/// found is told apart by content: text, headers that it includes, options, architecture, NVRTC's version.
/// Kept in $XDG_CACHE_HOME/reel/kernels, or ~/.cache/reel/kernels. Files are written under another name and renamed, so that
/// processes may race; one that is damaged is made anew; without a folder to write to, nothing is kept.
/// Throws what Nvrtc throws.
std::shared_ptr<const CompiledKernel> compiled_kernel(const KernelSource& source, int architecture,
                                                      SourceLocation where);

/// The file on the disk, which need not exist; empty if there is no folder for it, or it is not all known what the kernel
/// includes.
std::string cache_file(const KernelSource& source, int architecture, SourceLocation where);

/// How many kernels NVRTC has compiled in this process.
int kernels_compiled();
/// Forgets what is in memory.
void forget_kernels();

}  // namespace reel::cuda
