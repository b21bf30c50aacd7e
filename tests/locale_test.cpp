// What Reel writes does not depend on the program's locale: Qt and GTK set the user's, and in half of the world that one has
// a comma where printf's numbers have a point. The locale is made here, since few machines have one installed.

#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "reel/reel.h"
#include "reel/tests/error_of.h"

namespace reel {
namespace {

class CommaLocale : public testing::Test {
 protected:
  CommaLocale() : folder_(std::filesystem::temp_directory_path() / ("reel-locale-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ / "source") << "LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\n"
                                         "grouping 3;3\nEND LC_NUMERIC\n";
    std::ofstream map(folder_ / "map");
    map << "<code_set_name> ASCII\n<comment_char> %\n<escape_char> /\n<mb_cur_min> 1\n<mb_cur_max> 1\nCHARMAP\n";
    for (int c = 1; c < 128; ++c) {
      char line[32];
      std::snprintf(line, sizeof line, "<U%04X> /x%02x\n", c, c);
      map << line;
    }
    map << "END CHARMAP\n";
  }
  ~CommaLocale() override {
    std::setlocale(LC_ALL, "C");
    std::filesystem::remove_all(folder_);
  }

  /// False where libc's localedef is missing.
  bool begin() {
    const std::string in = "cd '" + folder_.string() + "' && ";
    (void)!std::system((in + "localedef -c --no-archive -i source -f ./map ./comma >log 2>&1").c_str());
    ::setenv("LOCPATH", folder_.c_str(), 1);
    const bool set = std::setlocale(LC_NUMERIC, "comma") != nullptr;
    ::unsetenv("LOCPATH");
    return set;
  }

  std::string contents(const char* file) const {
    std::ifstream in(folder_ / file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
};

// Everything that Reel writes with numbers in it, but for times.
std::string texts(const std::string& svg) {
  std::ostringstream out;
  out << tensor({0.5, 1e-9, 12345.678}) << tensor({1.23456789012, 2}, {.dtype = f64}) << tensor({1e20, 1.5e-20});
  out << tensor({0.1, 2.5}, {.dtype = bf16}) << tensor({1234567, 2}, {.dtype = i64});
  out << error_of([] { dropout(ones({3}), 1.5); }) << error_of([] { nn::Ema({}, {.decay = -0.25}); });
  nn::Confusion confusion(3);
  confusion.add({0, 1, 2}, {0, 0, 2});
  out << confusion.str();
  nn::save_plot(svg, {{.name = "loss", .x = {1, 2.5, 3}, .y = {0.125, 1e-7, 12345.5}}}, {.title = "T", .log_y = true});

  char* written = nullptr;
  std::size_t size = 0;
  std::FILE* file = ::open_memstream(&written, &size);
  {
    nn::Progress progress(
        {.epochs = 1, .steps_per_epoch = 2, .file = file, .terminal = false, .clock = [t = 0.0]() mutable {
           return t += 1;
         }});
    progress.step(3, 0.25, 0.5);
    progress.step(3, 0.125, 0.75);
    progress.end_epoch();
    progress.finish();
  }
  std::fclose(file);
  out << std::string(written, size);
  std::free(written);
  return out.str();
}

TEST_F(CommaLocale, ChangesNothingThatIsWritten) {
  const std::string in_c = texts((folder_ / "c.svg").string());
  if (!begin()) GTEST_SKIP() << "no localedef, or it makes no locale: " << contents("log");
  char number[8];
  std::snprintf(number, sizeof number, "%.1f", 0.5);
  ASSERT_STREQ(number, "0,5");
  EXPECT_EQ(texts((folder_ / "comma.svg").string()), in_c);
  EXPECT_EQ(contents("comma.svg"), contents("c.svg"));
  EXPECT_NE(contents("c.svg"), "");
}

TEST_F(CommaLocale, LeavesATraceThatIsJson) {
  if (!begin()) GTEST_SKIP() << "no localedef, or it makes no locale: " << contents("log");
  Trace trace;
  exp(ones({1000}));
  trace.write_chrome((folder_ / "trace.json").string());
  EXPECT_TRUE(nlohmann::json::accept(contents("trace.json"))) << contents("trace.json");
  std::ostringstream table;
  table << trace;
  EXPECT_EQ(table.str().find(','), std::string::npos) << table.str();
}

}  // namespace
}  // namespace reel
