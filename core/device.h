#pragma once

#include <cstdint>
#include <string>

#include "reel/core/source_location.h"

namespace reel {

enum class DeviceType : std::uint8_t { cpu, cuda };

/// Where a tensor's elements live.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int8_t index = 0;

  static constexpr Device cpu() { return {}; }
  /// GPU number `index`. Throws DeviceError unless it is in [0, 100). Whether it exists is checked when it is first used.
  static constexpr Device cuda(int index = 0, SourceLocation where = SourceLocation::current()) {
    if (index < 0 || index >= 100) refuse_index(index, where);
    return {DeviceType::cuda, static_cast<std::int8_t>(index)};
  }
  /// The first CUDA GPU if there is one that this build can use, else the CPU.
  REEL_API static Device best();
  /// "cpu", "cuda" or "cuda:1". Throws DeviceError for any other text.
  REEL_API static Device parse(const std::string& text, SourceLocation where = SourceLocation::current());

  REEL_INLINE constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  REEL_INLINE constexpr bool operator==(const Device& other) const {
    return type == other.type && index == other.index;
  }
  /// "cpu" or "cuda:0".
  REEL_API std::string name() const;

 private:
  [[noreturn]] REEL_API static void refuse_index(int index, SourceLocation where);
};

/// Returns when the device has done all that it was given: a GPU works while the program goes on, which matters to who reads a
/// clock. Throws what went wrong there and nobody was told of yet: IndexError for a bad index, DeviceError. On the CPU nothing
/// is ever left to wait for.
REEL_API void synchronize(Device device, SourceLocation where = SourceLocation::current());

}  // namespace reel
