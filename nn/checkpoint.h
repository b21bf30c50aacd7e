#pragma once

#include <string>
#include <vector>

#include "reel/nn/batches.h"
#include "reel/nn/ema.h"
#include "reel/nn/module.h"
#include "reel/nn/named_tensor.h"
#include "reel/nn/optimizer.h"

/// Models and whole states of training as safetensors files. A file appears whole or not at all; reading believes nothing
/// in it and changes nothing unless everything fits.
namespace reel::nn {

struct LoadOptions {
  /// The file must have exactly the module's tensors. Otherwise those that fit are taken.
  bool strict = true;
};

/// What load() did.
struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // in the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the module
  std::vector<std::string> mismatched;  // "head.weight must be f32 [10, 64], got f32 [10, 32]"
};

/// Writes all parameters and buffers under their paths ("conv1.weight"), a shared one once. Throws FileError.
REEL_API void save(const Module& module, const std::string& path, SourceLocation where = SourceLocation::current());

/// Overwrites parameters and buffers with those of a file, also of one that save_training wrote. Throws FileError for a file
/// that cannot be read or, if strict, that does not fit: all that is missing, unexpected, or of another shape or dtype is
/// named; VersionError if a living tape watches one of the tensors. (What a tape has only read may be loaded; its sweep then
/// throws VersionError.) After an exception the module is as it was.
REEL_API LoadReport load(Module& module, const std::string& path, LoadOptions options = {},
                         SourceLocation where = SourceLocation::current());

/// Writes tensors of any dtypes and devices under their names, which differ, without a module: data, or what another program
/// is to read (Python's safetensors does). Throws Error for an undefined one, FileError.
REEL_API void save_tensors(const std::vector<NamedTensor>& tensors, const std::string& path,
                           SourceLocation where = SourceLocation::current());
/// All tensors of a safetensors file, in its order and with its dtypes; on the CPU. Throws FileError, OutOfMemory.
REEL_API std::vector<NamedTensor> load_tensors(const std::string& path,
                                               SourceLocation where = SourceLocation::current());

/// What a run of training consists of. Further tensors of the program's own (histories, counts) go into `tensors`. When a
/// file is loaded it must have them in the same shapes and dtypes; a first axis of size 0 stands for any size.
struct Training {
  Module& module;
  Optimizer& optimizer;
  Batches* batches = nullptr;
  std::vector<NamedTensor> tensors = {};
  Ema* ema = nullptr;
};

/// Writes everything on which the rest of the run depends: parameters, buffers, the optimiser's buffers and counts, its
/// schedules' states, averages, the place in the data, and that of the process's random numbers. Throws FileError.
REEL_API void save_training(const Training& training, const std::string& path,
                            SourceLocation where = SourceLocation::current());

/// Takes all that over: the run goes on as if it had not stopped, bit for bit. Module, optimiser and batches are made as they
/// were for the run that was saved. Throws FileError or Error if something does not fit; then nothing is changed.
REEL_API void load_training(Training& training, const std::string& path,
                            SourceLocation where = SourceLocation::current());

}  // namespace reel::nn
