#pragma once

// What the examples take on their command lines, where CLI11 alone would take more.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

namespace example {

/// True if the whole of `text` is a T, which goes to `value`.
template <class T>
bool parsed(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// A seed, 0 to 2^64 - 1. CLI11 takes -1 for the largest, and what is larger too.
inline CLI::Validator seed() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        if (parsed(text, value)) return std::string();
        return "a whole number from 0 to 18446744073709551615 is required, got " + text;
      },
      "0 to 2^64-1", "seed");
}

/// A finite number above 0. To CLI11 NaN is above it.
inline CLI::Validator positive() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        if (parsed(text, value) && std::isfinite(value) && value > 0) return std::string();
        return "a number above 0 is required, got " + text;
      },
      "above 0", "positive");
}

/// Text, as of a script's variable that should not be empty.
inline CLI::Validator given() {
  return CLI::Validator([](std::string& text) { return text.empty() ? "a name is required, got ''" : std::string(); },
                        "", "given");
}

/// Makes a folder for results, before any work is done. Throws std::runtime_error unless it can be written to.
inline void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && ::access(path.c_str(), W_OK | X_OK) != 0) error = std::error_code(errno, std::generic_category());
  if (error)
    throw std::runtime_error("--output: a folder to write to is required, got '" + path + "': " + error.message());
}

}  // namespace example
