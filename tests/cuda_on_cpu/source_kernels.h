#pragma once

// Users' kernels on the executor, which has no compiler for them: a test compiles the .cu with itself and registers the
// kernels under the names that NVRTC would look for.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "reel/backends/cuda/kernel_source.h"

namespace cuda_on_cpu {

/// As in CUDA's code.
template <class T>
constexpr const char* name_of_type() {
  if constexpr (std::is_same_v<T, float>) return "float";
  else if constexpr (std::is_same_v<T, double>) return "double";
  else if constexpr (std::is_same_v<T, int>) return "int";
  else if constexpr (std::is_same_v<T, unsigned char>) return "unsigned char";
  else if constexpr (std::is_same_v<T, bool>) return "bool";
  else {
    static_assert(std::is_integral_v<T> && sizeof(T) == 8);
    return "long long";
  }
}
template <class T>
std::string parameter_type() {
  if constexpr (std::is_pointer_v<T>)
    return (std::is_const_v<std::remove_pointer_t<T>> ? std::string("const ") : std::string()) +
           name_of_type<std::remove_const_t<std::remove_pointer_t<T>>>() + "*";
  else return name_of_type<T>();
}

/// What a launch does with the addresses of its arguments.
using Call = void (*)(void (*kernel)(), void** arguments);
void register_source_kernel(const std::string& name, void (*kernel)(), Call call, const std::string& parameters);

/// What the last launch would have given to the compiler.
const reel::cuda::KernelSource& last_source();

/// register_kernel("cube<float>", &cube<float>)
template <class... Parameters>
void register_kernel(const std::string& name, void (*kernel)(Parameters...)) {
  std::string types;
  ((types += (types.empty() ? "" : ", ") + parameter_type<Parameters>()), ...);
  register_source_kernel(
      name, reinterpret_cast<void (*)()>(kernel),
      [](void (*function)(), void** arguments) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
          reinterpret_cast<void (*)(Parameters...)>(function)(*static_cast<Parameters*>(arguments[I])...);
        }
        (std::index_sequence_for<Parameters...>());
      },
      types);
}

}  // namespace cuda_on_cpu
