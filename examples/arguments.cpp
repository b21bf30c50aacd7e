#include "reel/examples/arguments.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace example {

namespace {

/// True if the whole of `text` is a T, which goes to `value`.
template <class T>
bool parsed(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

// To CLI11 NaN is above 0.
const CLI::Validator kPositive(
    [](std::string& text) {
      double value = 0;
      return parsed(text, value) && is_positive(value) ? std::string() : "a number above 0 is required, got " + text;
    },
    "above 0", "positive");

// CLI11 takes -1 for the largest, and what is larger too.
const CLI::Validator kSeed(
    [](std::string& text) {
      std::uint64_t value = 0;
      return parsed(text, value) ? std::string()
                                 : "a whole number from 0 to 18446744073709551615 is required, got " + text;
    },
    "0 to 2^64-1", "seed");

const CLI::Validator kNotEmpty(
    [](std::string& text) { return text.empty() ? "a name is required, got ''" : std::string(); }, "", "not empty");

}  // namespace

Arguments::Arguments(const std::string& purpose) : parser_(std::make_unique<CLI::App>(purpose)) {}
Arguments::~Arguments() = default;

void Arguments::whole(const std::string& option, std::int64_t& value, std::int64_t least, std::int64_t most,
                      const std::string& meaning) {
  parser_->add_option(option, value, meaning)->check(CLI::Range(least, most))->capture_default_str();
}

void Arguments::whole(const std::string& option, int& value, int least, int most, const std::string& meaning) {
  parser_->add_option(option, value, meaning)->check(CLI::Range(least, most))->capture_default_str();
}

void Arguments::positive(const std::string& option, double& value, const std::string& meaning) {
  CLI::Option* const added = parser_->add_option(option, value, meaning)->check(kPositive);
  if (is_positive(value)) added->capture_default_str();
}

void Arguments::seed(const std::string& option, std::uint64_t& value, const std::string& meaning) {
  parser_->add_option(option, value, meaning)->check(kSeed)->capture_default_str();
}

void Arguments::text(const std::string& option, std::string& value, const std::string& meaning) {
  parser_->add_option(option, value, meaning)->capture_default_str();
}

void Arguments::file(const std::string& option, std::string& value, const std::string& meaning) {
  parser_->add_option(option, value, meaning)->check(kNotEmpty);
}

std::optional<int> Arguments::parse(int argc, char** argv) {
  try {
    parser_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return parser_->exit(error);
  }
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && ::access(path.c_str(), W_OK | X_OK) != 0) error = std::error_code(errno, std::generic_category());
  if (error)
    throw std::runtime_error("--output: a folder to write to is required, got '" + path + "': " + error.message());
}

}  // namespace example
