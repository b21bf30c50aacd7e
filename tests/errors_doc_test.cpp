// docs/errors.md, held to the code: each example of errors_doc_*.cpp stands there under its title, and throws what it says.

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "reel/reel.h"
#include "reel/tests/error_of.h"
#include "reel/tests/errors_doc.h"
#include "reel/tests/page.h"

namespace reel {
namespace {

std::vector<Example> examples() {
  std::vector<Example> all = examples_of_values();
  for (const Example& example : examples_of_tapes()) all.push_back(example);
  return all;
}

// Without the indentation that a function's body has.
std::string unindented(const std::string& code) {
  std::istringstream lines(code);
  std::string line, result;
  while (std::getline(lines, line)) result += (line.rfind("  ", 0) == 0 ? line.substr(2) : line) + "\n";
  return result;
}

class ErrorsPage : public testing::TestWithParam<Example> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("reel_errors_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);  // files of examples have short names
  }
  static void TearDownTestSuite() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static inline std::filesystem::path folder_, before_;
};

TEST_P(ErrorsPage, SaysWhatIsThrown) {
  const std::string page = contents(REEL_SOURCE_DIR "/docs/errors.md");
  const std::string title = GetParam().title;
  const std::size_t at = page.find("\n### " + title + "\n");
  ASSERT_NE(at, page.npos) << "docs/errors.md has no example '" << title << "'";

  const std::string source = contents(std::string(REEL_SOURCE_DIR "/tests/") + GetParam().file);
  EXPECT_EQ(between(page, "```cpp\n", "```\n", at),
            unindented(between(source, "#line 1 \"train.cpp\"\n", "\n}\n", source.find("\n// " + title + "\n"))))
      << "the page shows other code";

  const std::string text = error_of(GetParam().run);
  const std::string expected = between(page, "```text\n", "\n```\n", at);
  EXPECT_TRUE(reads(text, expected)) << "the page says:\n" << expected << "\nthrown is:\n" << text;
}

INSTANTIATE_TEST_SUITE_P(All, ErrorsPage, testing::ValuesIn(examples()), [](const auto& info) {
  std::string name;
  for (const char c : std::string(info.param.title))
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

constexpr const char* kOfNvrtc[] = {"A kernel that does not compile",
                                    "A kernel with other parameters"};  // nvrtc_test.cpp

TEST(ErrorsPageItself, HasNoOtherExamples) {
  const std::string page = contents(REEL_SOURCE_DIR "/docs/errors.md");
  std::size_t found = 0;
  for (std::size_t at = page.find("\n### "); at != page.npos; at = page.find("\n### ", at + 1)) ++found;
  EXPECT_EQ(found, examples().size() + std::size(kOfNvrtc));
  for (const char* title : kOfNvrtc) EXPECT_NE(page.find("\n### " + std::string(title) + "\n"), page.npos) << title;
}

// --- docs/custom-ops.md -------------------------------------------------------------------------------------------------

TEST(CustomOpsPage, ShowsWhatAWrongGradientIsTold) {
  const auto loop = []<class T>(const CpuContext&, Inputs in, Outputs out) {
    const auto x = in.get<T>(0);
    for (std::size_t i = 0; i < x.size(); ++i) out.get<T>(0)[i] = (1 - x[i] * x[i]) * std::exp(-x[i] * x[i] / 2);
  };
  const CustomOp ricker = CustomOp("ricker", true).cpu(loop).backprop([](const CustomBackward& g) {
    const Tensor& x = g.in[0];
    return Tensors{g.dy[0] * x * (3 - x * x) * exp(-x * x / 2)};  // the wrong sign
  });
  const std::string text = error_of([&] {
#line 42 "my_program.cpp"
    ricker(tensor({0.5, -1, 2}));
  });
#line 99 "errors_doc_test.cpp"
  const std::string page = contents(REEL_SOURCE_DIR "/docs/custom-ops.md");
  std::string expected = between(page, "```text\n", "\n```\n", page.find("A wrong sign is told like this"));
  std::replace(expected.begin(), expected.end(), '\n', ' ');
  EXPECT_TRUE(reads(text, expected)) << "the page says:\n" << expected << "\nthrown is:\n" << text;
}

}  // namespace
}  // namespace reel
