#pragma once

#include <string>

#include "reel/core/error.h"

namespace reel {

/// What the reel::Error that f throws says, or "no error".
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace reel
