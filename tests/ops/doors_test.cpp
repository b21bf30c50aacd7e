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
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
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
    {"gather", "expand"},
    {"scatter_add", "expand"},
    {"where", "greater"},
    {"where", "slice"},
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

// --- operands that do not go together ---------------------------------------------------------------------------------

// x with another shape or dtype: what a user may well give instead.
Tensors wrong_ones(const Tensor& x) {
  Tensors wrong;
  wrong.push_back(reshape(x, [&] {
    Shape shape{1};
    for (const std::int64_t size : x.shape()) shape.push_back(size);
    return shape;
  }()));
  if (x.rank() > 0) wrong.push_back(reshape(x, {-1}));
  for (int axis = 0; axis < x.rank(); ++axis) {
    wrong.push_back(concatenate({x, narrow(x, axis, 0, std::min<std::int64_t>(1, x.shape()[axis]))}, axis));
    if (x.shape()[axis] > 1) wrong.push_back(narrow(x, axis, 1, x.shape()[axis] - 1));
    wrong.push_back(narrow(x, axis, 0, 0));
  }
  for (const DType dtype : {f32, i64, bool8})
    if (dtype != x.dtype()) wrong.push_back(cast(x, dtype));
  return wrong;
}

// What rows call to build their inputs and their results.
const std::set<std::string> kBuilds = {"shape[]", "size", "Ragged"};
const std::set<std::pair<std::string, std::string>> kBuiltByTheRow = {
    {"cross_entropy", "arange"}, {"cross_entropy", "transpose"},
    {"nll_loss", "arange"},      {"nll_loss", "transpose"},
    {"logical_not", "relu"},     {"isinf", "relu"},
    {"isfinite", "relu"},        {"cholesky", "add"},
    {"unique", "select"},        {"gather", "expand"},
    {"scatter_add", "expand"},   {"where", "greater"},
};
// Rows that change the shapes before they call, and those that are told another list than an operand's shape.
const std::set<std::string> kOtherShapes = {
    "cross_entropy",       "nll_loss", "squeeze", "expand", "unique",           "cholesky",
    "lkj_cholesky/number", "reshape",  "permute", "tile",   "conv2d_relu/into", "where/parts"};

// Each "[2, 3]" behind "got" that stands for a shape.
std::vector<std::string> shapes_told(const std::string& text) {
  std::vector<std::string> shapes;
  for (const char* before : {"got [", "got shape [", "got shapes [", "and [", ", ["})
    for (std::size_t at = text.find("got "); (at = text.find(before, at)) != text.npos; ++at) {
      const std::size_t from = text.find('[', at);
      shapes.push_back(text.substr(from, text.find(']', from) - from + 1));
    }
  return shapes;
}

TEST_P(Doors, WhatDoesNotGoTogetherIsToldAsItWasGiven) {
  const std::string op = row().name.substr(0, row().name.find('/'));
  const Tensors in = inputs(Size::small);
  for (std::size_t i = 0; i < in.size(); ++i)
    for (const Tensor& wrong : wrong_ones(in[i])) {
      Tensors some = in;
      some[i] = wrong;
      run_something_else();
      try {
        row().call(some);
      } catch (const Error& error) {
        const std::string text = error.what(), told = text.substr(0, text.find(':'));
        if (kBuilds.count(told) > 0 || kBuiltByTheRow.count({op, told}) > 0) continue;
        EXPECT_TRUE(plain(told) == plain(op) || kCalledByTheRow.count({op, told}) > 0) << "input " << i << ": " << text;
        EXPECT_TRUE(names_user(text)) << text;
        if (kOtherShapes.count(op) + kOtherShapes.count(row().name) > 0 || plain(told) != plain(op)) continue;
        std::set<std::string> given;
        for (const Tensor& x : some) given.insert(x.shape().str());
        for (const std::string& shape : shapes_told(text))
          EXPECT_EQ(given.count(shape), 1u) << "nobody gave " << shape << ": " << text;
      }
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
