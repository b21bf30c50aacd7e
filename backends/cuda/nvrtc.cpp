// NVRTC by its C interface, which is the same in CUDA 12 and 13. No header of CUDA's: this file is compiled and tested on
// machines without a toolkit.

#include "reel/backends/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "reel/core/error.h"

namespace reel::cuda {

struct Nvrtc::Functions {
  using Program = struct ProgramState*;
  int (*version)(int* major, int* minor);
  int (*architecture_count)(int* count);
  int (*architectures)(int* architectures);
  const char* (*error_string)(int status);
  int (*create)(Program* program, const char* text, const char* name, int headers, const char* const* header_texts,
                const char* const* header_names);
  int (*destroy)(Program* program);
  int (*add_name)(Program program, const char* expression);
  int (*compile)(Program program, int options, const char* const* option);
  int (*log_size)(Program program, std::size_t* size);
  int (*log)(Program program, char* text);
  int (*lowered_name)(Program program, const char* expression, const char** name);
  int (*cubin_size)(Program program, std::size_t* size);
  int (*cubin)(Program program, char* image);
  int (*ptx_size)(Program program, std::size_t* size);
  int (*ptx)(Program program, char* image);
};

namespace {

constexpr int kErrorCompilation = 6;  // NVRTC_ERROR_COMPILATION

// A launch passes addresses, so that nothing but this would notice an int where the kernel has a long.
constexpr const char* kFits = R"(
namespace reel_fits {
template <class T> struct Size { static constexpr int of = 0; };
template <> struct Size<int> { static constexpr int of = 4; };
template <> struct Size<long> { static constexpr int of = 8; };
template <> struct Size<long long> { static constexpr int of = 8; };
template <class Given, class Parameter> struct Element { static constexpr bool value = Size<Given>::of != 0 && Size<Given>::of == Size<Parameter>::of; };
template <class T> struct Element<T, T> { static constexpr bool value = true; };
template <class Given, class Parameter> struct One : Element<Given, Parameter> {};
template <class Given, class Parameter> struct One<const Given*, const Parameter*> : Element<Given, Parameter> {};
template <class Given, class Parameter> struct One<Given*, const Parameter*> : Element<Given, Parameter> {};
template <class Given, class Parameter> struct One<const Given*, Parameter*> { static constexpr bool value = false; };
template <class Given, class Parameter> struct One<Given*, Parameter*> : Element<Given, Parameter> {};
template <class Given, class Kernel> struct All { static constexpr bool value = false; };
template <> struct All<void (*)(), void (*)()> { static constexpr bool value = true; };
template <class G, class... Gs, class P, class... Ps> struct All<void (*)(G, Gs...), void (*)(P, Ps...)> {
  static constexpr bool value = One<G, P>::value && All<void (*)(Gs...), void (*)(Ps...)>::value;
};
}
)";

/// As a string of the language has it.
std::string in_quotes(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' || c == '\r' ? ' ' : c;
  }
  return quoted;
}

}  // namespace

std::string checked_text(const KernelSource& source) {
  return source.text + "\n#line 1 \"" + in_quotes(source.op) + "\"" + kFits + "static_assert(reel_fits::All<void (*)(" +
         source.parameters + "), decltype(&" + source.kernel + ")>::value, \"the kernel must be void " + source.kernel +
         "(" + source.parameters + ")\");\n";
}

const Nvrtc& Nvrtc::get(SourceLocation where) {
  struct Opened {
    Functions functions = {};
    std::string missing;

    Opened() {
      const char* named = std::getenv("REEL_NVRTC");
      const std::vector<std::string> places =
          named != nullptr
              ? std::vector<std::string>{named}
              : std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                         "/usr/local/cuda/lib64/libnvrtc.so", "/opt/cuda/lib64/libnvrtc.so"};
      void* library = nullptr;
      for (const std::string& place : places) {
        library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) break;
        if (missing.empty()) missing = dlerror();
      }
      if (library == nullptr) return;
      missing.clear();
      const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        if (function == nullptr) missing = std::string("it has no ") + name;
      };
      find(functions.version, "nvrtcVersion");
      find(functions.architecture_count, "nvrtcGetNumSupportedArchs");
      find(functions.architectures, "nvrtcGetSupportedArchs");
      find(functions.error_string, "nvrtcGetErrorString");
      find(functions.create, "nvrtcCreateProgram");
      find(functions.destroy, "nvrtcDestroyProgram");
      find(functions.add_name, "nvrtcAddNameExpression");
      find(functions.compile, "nvrtcCompileProgram");
      find(functions.log_size, "nvrtcGetProgramLogSize");
      find(functions.log, "nvrtcGetProgramLog");
      find(functions.lowered_name, "nvrtcGetLoweredName");
      find(functions.cubin_size, "nvrtcGetCUBINSize");
      find(functions.cubin, "nvrtcGetCUBIN");
      find(functions.ptx_size, "nvrtcGetPTXSize");
      find(functions.ptx, "nvrtcGetPTX");
    }
  };
  static const Opened* const opened = new Opened;
  if (!opened->missing.empty())
    throw DeviceError(
        "kernels in source form need NVIDIA's run-time compiler, libnvrtc (12 or newer): " + opened->missing, where);
  static const Nvrtc* const instance = new Nvrtc(&opened->functions, where);
  return *instance;
}

Nvrtc::Nvrtc(const Functions* functions, SourceLocation where) : functions_(functions) {
  int major = 0, minor = 0, count = 0;
  bool good = functions_->version(&major, &minor) == 0;
  version_ = std::to_string(major) + "." + std::to_string(minor);
  if (good && major < 12) throw DeviceError("libnvrtc must be of CUDA 12 or newer, got " + version_, where);
  good = good && functions_->architecture_count(&count) == 0;
  architectures_.resize(static_cast<std::size_t>(count));
  good = good && functions_->architectures(architectures_.data()) == 0;
  if (!good || count == 0) throw DeviceError("libnvrtc must tell what it can compile for, got nothing", where);
}

bool Nvrtc::knows(int architecture) const {
  return std::find(architectures_.begin(), architectures_.end(), architecture) != architectures_.end();
}

std::vector<std::string> Nvrtc::options(const KernelSource& source, int architecture) const {
  int newest = 0;  // whose PTX the GPU can run
  for (const int known : architectures_)
    if (known <= architecture) newest = std::max(newest, known);
  std::vector<std::string> options = {(knows(architecture) ? "--gpu-architecture=sm_" : "--gpu-architecture=compute_") +
                                          std::to_string(newest > 0 ? newest : architecture),
                                      "--std=c++20", "--generate-line-info"};
  // As in Reel's own kernels, fma is where it is written; who wants it elsewhere says so.
  const auto is_fmad = [](const std::string& option) { return option.find("-fmad") != option.npos; };
  if (std::none_of(source.options.begin(), source.options.end(), is_fmad)) options.push_back("--fmad=false");
  options.insert(options.end(), source.options.begin(), source.options.end());
  for (const std::string& folder : source.folders) options.push_back("--include-path=" + folder);
  return options;
}

CompiledKernel Nvrtc::compile(const KernelSource& source, int architecture, SourceLocation where) const {
  const auto require = [&](int status, const char* call) {
    if (status != 0)
      throw Error(source.op + ": " + call + " must succeed for kernel " + source.kernel + ", got " +
                      functions_->error_string(status),
                  where);
  };
  const std::string text = checked_text(source);
  Functions::Program program = nullptr;
  require(functions_->create(&program, text.c_str(), source.file.c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  const auto destroy = [this](Functions::Program p) { functions_->destroy(&p); };
  const std::unique_ptr<std::remove_pointer_t<Functions::Program>, decltype(destroy)> owner(program, destroy);
  require(functions_->add_name(program, source.kernel.c_str()), "nvrtcAddNameExpression");

  const std::vector<std::string> all = options(source, architecture);
  std::vector<const char*> pointers;
  for (const std::string& option : all) pointers.push_back(option.c_str());
  const int status = functions_->compile(program, static_cast<int>(pointers.size()), pointers.data());
  if (status != 0) {
    std::size_t size = 0;
    std::string log;
    if (functions_->log_size(program, &size) == 0) {
      log.resize(size);
      functions_->log(program, log.data());
      while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    }
    const std::string why = status == kErrorCompilation ? "" : std::string(functions_->error_string(status)) + "\n";
    throw Error(source.op + ": kernel " + source.kernel + " must compile with NVRTC " + version_ + " " + all[0] +
                    ", got\n" + why + log + "\n",
                where);
  }
  const char* name = nullptr;
  require(functions_->lowered_name(program, source.kernel.c_str(), &name), "nvrtcGetLoweredName");
  CompiledKernel kernel{name, {}};
  const bool machine_code = knows(architecture);
  std::size_t size = 0;
  require((machine_code ? functions_->cubin_size : functions_->ptx_size)(program, &size), "nvrtcGetCUBINSize");
  kernel.image.resize(size);
  require((machine_code ? functions_->cubin : functions_->ptx)(program, kernel.image.data()), "nvrtcGetCUBIN");
  return kernel;
}

}  // namespace reel::cuda
