#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace example {

/// What a program takes on its command line. Each option has a variable, whose value at that time is the default; --help shows both.
/// The variables must live until parse() is done.
class Arguments {
 public:
  explicit Arguments(const std::string& purpose);
  ~Arguments();

  /// A whole number from `least` to `most`.
  void whole(const std::string& option, std::int64_t& value, std::int64_t least, std::int64_t most,
             const std::string& meaning);
  void whole(const std::string& option, int& value, int least, int most, const std::string& meaning);
  /// A finite number above 0. A default that is not is none, and --help leaves it out.
  void positive(const std::string& option, double& value, const std::string& meaning);
  /// A seed, 0 to 2^64 - 1.
  void seed(const std::string& option, std::uint64_t& value, const std::string& meaning);
  /// Text, "" too.
  void text(const std::string& option, std::string& value, const std::string& meaning);
  /// A file's name, which must not be "", as a script's variable may be; without the option the value stays as it is.
  void file(const std::string& option, std::string& value, const std::string& meaning);

  /// Reads the command line. The status to exit with at once, where --help is asked for (0) or an argument is wrong; either way
  /// what there is to say has been printed.
  std::optional<int> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> parser_;
};

/// Makes a folder for results, before any work is done. Throws std::runtime_error unless it can be written to.
void make_folder(const std::string& path);

}  // namespace example
