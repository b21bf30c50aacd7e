// What every row of the op-case table must do at its door and below: refuse undefined operands, and be named with the user's
// line wherever something goes wrong later.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/node_list.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/tests/little_memory.h"
#include "reel/tests/ops/op_case.h"

namespace reel::test {
namespace {

// The user is the row: its file stands in tests/ops.
bool names_user(const std::string& text) { return text.find("/tests/ops/") != std::string::npos; }

class Doors : public testing::TestWithParam<OpCase> {
 protected:
  const OpCase& row() const { return GetParam(); }
  Size size() const {
    for (const Size size : {Size::large, Size::odd, Size::small})
      if (std::find(row().skip.begin(), row().skip.end(), size) == row().skip.end()) return size;
    return Size::one;
  }
  Tensors inputs(Size size) const {
    Maker make(f64, 11);
    return row().inputs(make, size);
  }
  Tensors watched(Tape& tape, const Tensors& in) const {
    Tensors wanted;
    for (const int i : row().differentiable) {
      tape.watch(in[static_cast<std::size_t>(i)]);
      wanted.push_back(in[static_cast<std::size_t>(i)]);
    }
    return wanted;
  }
};

// What ran before on another line is not what is told.
void run_something_else() { detail::now_running("stale", {"stale.cpp", 1}); }

TEST_P(Doors, UndefinedOperandsAreRefusedOrLeftOut) {
  const Tensors in = inputs(Size::small);
  for (std::size_t i = 0; i < in.size(); ++i) {
    Tensors some = in;
    some[i] = Tensor();
    run_something_else();
    try {
      row().call(some);  // an optional operand
    } catch (const Error& error) {
      EXPECT_TRUE(names_user(error.what())) << "input " << i << ": " << error.what();
    }
  }
}

TEST_P(Doors, WhatIsRecordedKnowsTheUsersLine) {
  if (row().order == 0) return;
  const Tensors in = inputs(Size::small);
  Tape outer;
  const Tensors wanted = watched(outer, in);
  const detail::NodeList& list = *detail::thread_tape.list;
  const std::int64_t first = list.node_count();
  const auto expect_known = [&](std::int64_t from, const char* when) {
    for (std::int64_t i = from; i < list.node_count(); ++i)
      EXPECT_TRUE(names_user(list.node(i).where.file))
          << when << ": " << list.node(i).op << " was recorded at " << list.node(i).where.file;
  };
  run_something_else();
  const Tensor y = row().call(in);
  expect_known(first, "forward");
  if (row().order < 2 || !is_tracked(y)) return;
  const std::int64_t behind = list.node_count();
  {
    Tape inner;
    const Tensor z = row().call(in) * 1;  // some ops give the operand itself
    run_something_else();
    inner.gradient(z, ones(z.shape(), {.dtype = z.dtype()}), wanted);
  }
  expect_known(behind, "in the gradient");
}

TEST_P(Doors, OutOfMemoryNamesTheUsersLine) {
  const Tensors in = inputs(size());
  // A handle's state and a few elements; some tensors too.
  for (const std::size_t room : {256, 4096}) {
    run_something_else();
    try {
      const LittleMemory little(room);
      row().call(in);
    } catch (const OutOfMemory& error) {
      EXPECT_TRUE(names_user(error.what())) << error.what();
      EXPECT_EQ(std::string(error.what()).find("stale"), std::string::npos) << error.what();
    }
    if (row().order == 0) continue;
    Tape tape;
    const Tensors wanted = watched(tape, in);
    const Tensor y = row().call(in);
    if (!is_tracked(y)) continue;
    const Tensor dy = ones(y.shape(), {.dtype = y.dtype()});
    run_something_else();
    try {
      const LittleMemory little(room);
      tape.gradient(y, dy, wanted);
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      if (text.rfind("gradient: ", 0) == 0) continue;  // the sweep's own
      EXPECT_EQ(text.rfind("backward of ", 0), 0u) << text;
      EXPECT_TRUE(names_user(text)) << text;
      EXPECT_EQ(text.find("stale"), std::string::npos) << text;
    }
  }
}

// What a tape with check_finite tells, "" if nothing.
std::string told_by_strict_tape(const OpCase& row, const Tensors& in) {
  Tape strict{{.check_finite = true}};
  for (const int i : row.differentiable) strict.watch(in[static_cast<std::size_t>(i)]);
  try {
    row.call(in);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// "student_t" is StudentT, "poisson_distribution" Poisson, "affine_transform" Affine.
std::string plain(std::string name) {
  for (const char* kind : {"_distribution", "_transform"})
    if (name.ends_with(kind)) name.erase(name.size() - std::string(kind).size());
  std::string letters;
  for (const char c : name)
    if (c != '_') letters += static_cast<char>(std::tolower(c));
  return letters;
}

// Rows that themselves call another op before or behind the one that they are about.
const std::set<std::pair<std::string, std::string>> kCalledByTheRow = {
    {"pow", "neg"},
    {"to", "mul"},
    {"cross_entropy", "reshape"},
    {"nll_loss", "reshape"},
    {"squeeze", "slice"},
    {"expand", "unsqueeze"},
    {"relu_k", "mul"},
    {"cholesky", "transpose"},
    {"conv2d_relu", "WriteOnce"},
    {"concatenate", "slice"},
    {"concatenate_batches", "slice"},
    {"lkj_cholesky", "CorrelationCholesky"},
    {"where", "greater"},
};

TEST_P(Doors, CheckFiniteNamesTheOpThatWasCalled) {
  if (row().order == 0) return;
  const std::string op = row().name.substr(0, row().name.find('/'));
  const Tensors in = inputs(Size::small);
  for (const int i : row().differentiable) {
    Tensors some = in;
    Tensor& x = some[static_cast<std::size_t>(i)];
    x = full_like(x, NAN);
    run_something_else();
    const std::string text = told_by_strict_tape(row(), some);
    if (text.find("must be finite") == text.npos) continue;  // passed over, or refused by the op itself
    const std::string told = text.substr(0, text.find(':'));
    if (kCalledByTheRow.count({op, told}) == 0) {
      EXPECT_EQ(plain(told), plain(op)) << "input " << i << ": " << text;
    }
    EXPECT_TRUE(names_user(text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Doors, testing::ValuesIn(op_cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
});

}  // namespace
}  // namespace reel::test
