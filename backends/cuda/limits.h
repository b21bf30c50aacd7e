#pragma once

#include <cstdint>
#include <string>

namespace reel::cuda {

/// Throws ShapeError "<op>: <what> must have at most <most> elements on a GPU, got <got>" with the op that runs.
[[noreturn]] void refuse_size(const char* what, std::int64_t most, const std::string& got);

}  // namespace reel::cuda
