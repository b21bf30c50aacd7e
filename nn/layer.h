#pragma once

// Private to nn/: what layers share.

#include <cstdint>
#include <string>

#include "reel/core/error.h"
#include "reel/nn/module.h"

namespace reel::nn::detail {

inline void require(bool good, const char* layer, const std::string& what, const std::string& got,
                    SourceLocation where) {
  if (!good) throw Error(std::string(layer) + ": " + what + " is required, got " + got, where);
}

inline void require_size(const char* layer, const char* name, std::int64_t size, SourceLocation where,
                         std::int64_t least = 1) {
  require(size >= least, layer, std::string(name) + " >= " + std::to_string(least), std::to_string(size), where);
}

/// The layer's weight is [out, 0, ...] so far: `in` is to come from the first input.
void leave_open(const Module& layer);
bool is_open(const Module& layer);
/// Gives the weight its second axis, with zeros. Throws Error outside of nn::initialize.
void settle(const Module& layer, const Parameter& weight, std::int64_t in, SourceLocation where);
/// Throws Error if a size in the module is open, naming the layer.
void require_sizes(const ModuleState& module, const char* call, SourceLocation where);

/// The parameter's value; an undefined tensor for an undefined parameter.
inline const Tensor& value_of(const Parameter& parameter) {
  static const Tensor none;
  return parameter.defined() ? parameter.value() : none;
}

}  // namespace reel::nn::detail
