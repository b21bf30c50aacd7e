// docs/numerics.md has a line for every op, and states the bound that the op-case table asserts.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "reel/tests/ops/op_case.h"

namespace reel::test {
namespace {

// The lines of the table under "## Every op": for each name in backticks in the first cell the number in the second.
std::map<std::string, double> stated_bounds() {
  std::ifstream in(REEL_SOURCE_DIR "/docs/numerics.md");
  std::map<std::string, double> bounds;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## Every op";
    if (!inside || line.rfind("| `", 0) != 0) continue;
    std::istringstream cells(line.substr(1));
    std::string names, bound;
    std::getline(cells, names, '|');
    std::getline(cells, bound, '|');
    for (std::size_t at = names.find('`'); at != names.npos; at = names.find('`', at + 1)) {
      const std::size_t end = names.find('`', at + 1);
      const std::string name = names.substr(at + 1, end - at - 1);
      EXPECT_TRUE(bounds.emplace(name, bound.find("exact") != bound.npos ? 0 : std::stod(bound)).second)
          << name << " has two lines";
      at = end;
    }
  }
  return bounds;
}

TEST(NumericsDocument, HasALineForEveryOpWithTheBoundThatTestsAssert) {
  std::map<std::string, double> asserted;
  for (const OpCase& row : op_cases()) {
    double& bound = asserted[row.name.substr(0, row.name.find('/'))];
    bound = std::max(bound, row.tolerance);
  }
  const std::map<std::string, double> stated = stated_bounds();
  for (const auto& [name, bound] : asserted) {
    const auto line = stated.find(name);
    if (line == stated.end())
      ADD_FAILURE() << name << " (bound " << bound
                    << ") has no line under \"Every op\" in docs/numerics.md (scripts/numerics-table)";
    else EXPECT_EQ(line->second, bound) << name << ": the bound in docs/numerics.md is not the table's";
  }
  for (const auto& [name, bound] : stated) EXPECT_EQ(asserted.count(name), 1u) << name << " is no op of the table";
  EXPECT_GT(stated.size(), 150u);
}

}  // namespace
}  // namespace reel::test
