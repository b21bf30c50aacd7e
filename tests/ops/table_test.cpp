// That the op-case table is whole: every public function of ops/ has a row, in each of its forms, and every op is told off for
// bad input.

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <set>

#include "reel/tests/ops/declarations.h"
#include "reel/tests/ops/op_case.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {
namespace {

using Reasons = std::map<std::string, std::string>;

const Reasons kWithoutRow = {
    {"zeros", "reads no tensor: tensor_test.cpp"},
    {"ones", "reads no tensor: tensor_test.cpp"},
    {"full", "reads no tensor: tensor_test.cpp"},
    {"zeros_like", "reads no elements: tensor_test.cpp"},
    {"ones_like", "reads no elements: as zeros_like"},
    {"arange", "reads no tensor: create_test.cpp"},
    {"tensor", "reads no tensor: tensor_test.cpp"},
    {"from_span", "reads no tensor: the same as from_vector"},
    {"from_vector", "reads no tensor: what references are compared with"},
    {"rand", "random: sampling_test.cpp"},
    {"randn", "random: sampling_test.cpp"},
    {"randint", "random: random_test.cpp, sampling_test.cpp"},
    {"bernoulli", "random: create_test.cpp"},
    {"permutation", "random: random_test.cpp, sampling_test.cpp"},
    {"gradcheck", "no op, but what tests ops: checks_test.cpp"},
    {"adjoint_check", "no op: checks_test.cpp"},
    {"compare_backends", "no op: checks_test.cpp"},
    {"jacobian", "calls what it is given: jacobian_test.cpp"},
    {"hessian", "calls what it is given: jacobian_test.cpp"},
    {"hessian_vector_product", "calls what it is given: jacobian_test.cpp"},
    {"custom_op", "what users make ops of: custom_op_test.cpp"},
    {"custom_argument", "an argument of custom_op"},
    {"custom_backward", "what custom_op's backprop gets"},
    {"inputs", "what custom_op's loop gets"},
    {"outputs", "what custom_op's loop writes"},
    {"write_once", "memory to write into: write_once_test.cpp"},
};

// "op/variant"
std::string op_of(const std::string& row) { return row.substr(0, row.find('/')); }
std::string variant_of(const std::string& row) {
  const std::size_t slash = row.find('/');
  return slash == row.npos ? "" : row.substr(slash + 1);
}

// StudentT is student_t.
std::string snake_case(const std::string& type) {
  const auto is_lower = [&](std::size_t i) { return i < type.size() && std::islower(type[i]) != 0; };
  std::string name;
  for (std::size_t i = 0; i < type.size(); ++i) {
    const bool upper = std::isupper(type[i]) != 0;
    if (i > 0 && upper && (is_lower(i - 1) || is_lower(i + 1))) name += '_';
    name += static_cast<char>(std::tolower(type[i]));
  }
  return name;
}

// The ops that have a row on tensors, on a Ragged, and on a Ragged along other axes than that of its rows.
struct Rows {
  std::set<std::string> tensor, ragged, ragged_axes;
  bool any(const std::string& op) const { return tensor.count(op) + ragged.count(op) + ragged_axes.count(op) > 0; }
};

Rows all_rows() {
  Rows rows;
  for (const OpCase& row : op_cases()) {
    const std::string op = op_of(row.name), variant = variant_of(row.name);
    const bool axes = variant.starts_with("ragged_rows") || variant.starts_with("ragged_columns");
    (axes ? rows.ragged_axes : variant.starts_with("ragged") ? rows.ragged : rows.tensor).insert(op);
  }
  for (const RaggedOp& row : ragged_ops())
    (variant_of(row.name) == "row" ? rows.ragged_axes : rows.ragged).insert(op_of(row.name));
  return rows;
}

std::vector<Declaration> declarations() { return public_declarations(REEL_SOURCE_DIR "/ops"); }

TEST(OpTable, NamesAreDifferent) {
  std::set<std::string> names;
  for (const OpCase& row : op_cases()) EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
}

TEST(OpTable, EveryPublicFunctionHasARow) {
  const Rows rows = all_rows();
  std::set<std::string> functions, of_tensors, of_rows;
  for (const Declaration& d : declarations()) {
    if (d.type) continue;
    functions.insert(d.name);
    if (!d.ragged) of_tensors.insert(d.name);
    else if (!d.axes) of_rows.insert(d.name);
  }
  for (const Declaration& d : declarations()) {
    if (d.type || kWithoutRow.count(d.name) == 1) continue;
    const std::string where = d.name + " in " + d.header + " has no row ";
    // What there is in one form only is named after that alone.
    if (!d.ragged) {
      EXPECT_EQ(rows.tensor.count(d.name), 1u) << where << "in the op-case table";
    } else if (d.axes && of_rows.count(d.name) == 1) {
      EXPECT_EQ(rows.ragged_axes.count(d.name), 1u)
          << where << "/ragged_rows in the op-case table, or /row in ragged_ops()";
    } else if (of_tensors.count(d.name) == 1) {
      EXPECT_EQ(rows.ragged.count(d.name), 1u) << where << "/ragged in the op-case table, or in ragged_ops()";
    } else {
      EXPECT_TRUE(rows.any(d.name)) << where << "in any table";
    }
  }
  EXPECT_GT(functions.size(), 200u);
}

TEST(OpTable, EveryPublicClassHasARow) {
  const Rows rows = all_rows();
  int classes = 0;
  for (const Declaration& d : declarations()) {
    if (!d.type) continue;
    ++classes;
    const std::string name = snake_case(d.name);
    EXPECT_TRUE(kWithoutRow.count(name) == 1 || rows.any(name) || rows.any(name + "_distribution") ||
                rows.any(name + "_transform"))
        << d.name << " in " << d.header << " has no row in the op-case table";
  }
  EXPECT_GT(classes, 10);
}

TEST(OpTable, EveryRowIsOfAPublicFunction) {
  std::set<std::string> names;
  for (const Declaration& d : declarations())
    for (const char* suffix : {"", "_distribution", "_transform"}) names.insert(snake_case(d.name) + suffix);
  for (const OpCase& row : op_cases()) EXPECT_EQ(names.count(op_of(row.name)), 1u) << row.name;
  for (const RaggedOp& row : ragged_ops()) EXPECT_EQ(names.count(op_of(row.name)), 1u) << row.name;
  const Rows rows = all_rows();
  for (const auto& [name, reason] : kWithoutRow) {
    EXPECT_EQ(names.count(name), 1u) << name << " is no longer there: " << reason;
    EXPECT_FALSE(rows.any(name)) << name << " has a row";
  }
}

TEST(OpTable, EveryOpHasABadCall) {
  std::map<std::string, std::size_t> calls;
  for (const OpCase& row : op_cases()) calls[op_of(row.name)] += row.bad.size();
  for (const auto& [op, count] : calls) EXPECT_GT(count, 0u) << op << " has no bad call";
}

}  // namespace
}  // namespace reel::test
