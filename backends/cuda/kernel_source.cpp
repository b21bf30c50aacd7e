#include "reel/backends/cuda/kernel_source.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

#include "reel/core/error.h"

namespace reel::cuda {

namespace {

namespace fs = std::filesystem;
using Form = KernelArgument::Form;

const char* cuda_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i32:
      return "int";
    case DType::i64:
      return "long long";
    case DType::u8:
      return "unsigned char";
    case DType::bf16:
    case DType::f16:
      reel::detail::refuse_half(dtype);
    case DType::bool8:
      break;
  }
  return "bool";
}

/// The kernel's name with the floating type for T.
std::string instance_of(const std::string& kernel, DType real) {
  const auto in_name = [&](std::size_t i) {
    return i < kernel.size() && (std::isalnum(static_cast<unsigned char>(kernel[i])) != 0 || kernel[i] == '_');
  };
  std::string name;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] == 'T' && !in_name(i + 1) && (i == 0 || !in_name(i - 1))) name += cuda_name(real);
    else name += kernel[i];
  }
  return name;
}

/// As CUDA's code spells them: "long long, const float*, float*".
std::string types_of(const KernelLaunch& launch) {
  std::string text;
  for (std::size_t i = 0; i < launch.count; ++i) {
    const KernelArgument& argument = launch.arguments[i];
    text += (i == 0 ? "" : ", ") + std::string(argument.form == Form::input ? "const " : "") +
            cuda_name(argument.dtype) + (argument.form == Form::number ? "" : "*");
  }
  return text;
}

/// Where a path that stands in the program leads at run time. Compilers may write sources' paths relative to the folder that
/// they run in, in which or above which the program lies; and a program may be elsewhere than its sources.
std::string found(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return path;
  if (path[0] != '/')
    for (fs::path folder = program; folder.has_relative_path(); folder = folder.parent_path())
      if (fs::exists(folder / path, error)) return (folder / path).lexically_normal();
  const fs::path beside = program / fs::path(path).filename();
  return fs::exists(beside, error) ? beside.string() : path;
}

std::string contents(const UserKernel& kernel, const std::string& file, SourceLocation where) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream read;
  read << in.rdbuf();  // fails for a folder, and for an empty file
  std::string text = std::move(read).str();
  if (!in || text.empty())
    throw FileError(
        kernel.op + ": the kernel's file must be readable and not empty, there or beside the program, got " + file,
        where);
  return text;
}

/// Tells the kernels and their types apart.
std::uint64_t key_of(const UserKernel& kernel, const KernelLaunch& launch) {
  std::uint64_t key = 0xcbf29ce484222325u;
  const auto add = [&](std::uint64_t word) { key = (key ^ word) * 0x100000001b3u; };
  add(kernel.serial);
  add(static_cast<std::uint64_t>(launch.real));
  for (std::size_t i = 0; i < launch.count; ++i)
    add(static_cast<std::uint64_t>(launch.arguments[i].dtype) * 4 +
        static_cast<std::uint64_t>(launch.arguments[i].form));
  return key;
}

struct Sources {
  std::mutex mutex;
  std::map<std::uint64_t, std::unique_ptr<const KernelSource>> all;
};

}  // namespace

const KernelSource& source_of(const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where) {
  static Sources* const sources = new Sources;
  const std::lock_guard lock(sources->mutex);
  std::unique_ptr<const KernelSource>& place = sources->all[key_of(kernel, launch)];
  if (place != nullptr) return *place;
  auto made = std::make_unique<KernelSource>();
  made->op = kernel.op;
  made->text = kernel.text;
  made->file = kernel.file;
  if (kernel.text.empty()) {
    made->file = found(kernel.file);
    made->text = contents(kernel, made->file, where);
    made->folders.push_back(fs::absolute(made->file).parent_path().string());
  }
  made->kernel = instance_of(kernel.kernel, launch.real);
  made->parameters = types_of(launch);
  for (const std::string& folder : kernel.folders) made->folders.push_back(found(folder));
  made->options = kernel.options;
  place = std::move(made);
  return *place;
}

std::vector<void*> addresses_of(const KernelLaunch& launch) {
  std::vector<void*> addresses;
  for (std::size_t i = 0; i < launch.count; ++i)
    addresses.push_back(const_cast<KernelArgument::Value*>(&launch.arguments[i].value));
  return addresses;
}

}  // namespace reel::cuda
