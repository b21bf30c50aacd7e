#pragma once

// Private to nn/: what layers share.

#include <cstdint>
#include <string>

#include "reel/core/error.h"
#include "reel/core/parameter.h"

namespace reel::nn::detail {

inline void require(bool good, const char* layer, const std::string& what, const std::string& got,
                    SourceLocation where) {
  if (!good) throw Error(std::string(layer) + ": " + what + " is required, got " + got, where);
}

inline void require_size(const char* layer, const char* name, std::int64_t size, SourceLocation where) {
  require(size >= 1, layer, std::string(name) + " >= 1", std::to_string(size), where);
}

/// The parameter's value; an undefined tensor for an undefined parameter.
inline const Tensor& value_of(const Parameter& parameter) {
  static const Tensor none;
  return parameter.defined() ? parameter.value() : none;
}

}  // namespace reel::nn::detail
