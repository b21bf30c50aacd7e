// Each op on Ragged against the same op on its sequences one by one and on padded sequences with a mask: values and gradients,
// one by one those of second order too;
// and the bits of a sequence alone against those in a batch. Lengths are random, many of them 0. The table of ops is in
// ragged_properties_ops.cpp and ragged_properties_shape.cpp; RC_PARAMS in the environment sets another seed or number of cases.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "reel/reel.h"
#include "reel/tests/ragged_properties.h"

namespace reel::test {
namespace {

using Kind = Beside::Kind;

// Random inputs of an op.
struct Problem {
  Tensor x;
  Offsets offsets;
  Tensors beside;
};

Problem any_problem(const RaggedOp& op, DType dtype) {
  const auto length =
      rc::gen::resize(100, rc::gen::weightedOneOf<std::int64_t>({{4, rc::gen::just<std::int64_t>(0)},
                                                                 {12, rc::gen::inRange<std::int64_t>(1, 10)},
                                                                 {1, rc::gen::inRange<std::int64_t>(100, 300)}}));
  const auto lengths = *rc::gen::resize(8, rc::gen::container<std::vector<std::int64_t>>(length));
  const auto width = *rc::gen::element<std::int64_t>(1, 2, 3, 8, 17, 33);
  Generator generator(*rc::gen::resize(1000, rc::gen::inRange<std::uint64_t>(0, 1 << 30)));
  const auto numbers = [&](const Shape& shape, double low, double high) {
    const Tensor unit = cast(rand(shape, generator, {.dtype = f64}), f64);
    return cast(low + (high - low) * unit, dtype);
  };
  Problem problem{{}, Offsets(lengths), {}};
  problem.x = numbers({problem.offsets.total(), width}, op.low, op.high);
  for (const Beside& beside : op.beside) {
    Shape shape;
    if (beside.kind != Kind::shared)
      shape.push_back(beside.kind == Kind::row ? problem.offsets.total() : problem.offsets.count());
    for (const std::int64_t size : beside.trailing(width)) shape.push_back(size);
    Tensor made = numbers(shape, beside.low, beside.high);
    problem.beside.push_back(beside.index ? cast(made, i64) : made);
  }
  return problem;
}

// What belongs to sequence i.
Problem part(const RaggedOp& op, const Problem& whole, std::int64_t i) {
  const std::int64_t begin = whole.offsets.span()[static_cast<std::size_t>(i)], length = whole.offsets.length(i);
  Problem one{narrow(whole.x, 0, begin, length), Offsets(std::vector{length}), {}};
  for (std::size_t k = 0; k < op.beside.size(); ++k) {
    const Tensor& all = whole.beside[k];
    one.beside.push_back(op.beside[k].kind == Kind::row        ? narrow(all, 0, begin, length)
                         : op.beside[k].kind == Kind::sequence ? narrow(all, 0, i, 1)
                                                               : all);
  }
  return one;
}

Problem copied(const Problem& problem) {
  Problem copy{clone(problem.x), problem.offsets, {}};
  for (const Tensor& x : problem.beside) copy.beside.push_back(clone(x));
  return copy;
}

// --- three ways to compute ------------------------------------------------------------------------------------------------

Tensor by_ragged(const RaggedOp& op, const Problem& p) { return op.ragged(Ragged(p.x, p.offsets), p.beside); }

// A row for each row of sequence i, or one, from what `list` gives for at least as many rows.
Tensor result_of(const RaggedOp& op, const Tensor& y, std::int64_t length) {
  return op.per_sequence ? unsqueeze(y, 0) : narrow(y, 0, 0, length);
}

Tensor of_nothing(const RaggedOp& op, const Problem& p) {
  return full({1, p.x.shape()[1]}, *op.empty, {.dtype = p.x.dtype()});
}

Tensor by_list(const RaggedOp& op, const Problem& p) {
  Tensors parts;
  for (std::int64_t i = 0; i < p.offsets.count(); ++i) {
    const Problem one = part(op, p, i);
    if (op.empty && p.offsets.length(i) == 0) parts.push_back(of_nothing(op, p));
    else parts.push_back(result_of(op, op.list(one.x, one.beside), p.offsets.length(i)));
  }
  return concatenate(parts);
}

Tensor by_padding(const RaggedOp& op, const Problem& p) {
  const auto padded = [&](const Tensor& rows, double with) { return to_padded(Ragged(rows, p.offsets), with); };
  const Tensor x = padded(p.x, *op.padding);
  Tensors parts;
  for (std::int64_t i = 0; i < p.offsets.count(); ++i) {
    if (op.empty && p.offsets.length(i) == 0) {
      parts.push_back(of_nothing(op, p));
      continue;
    }
    Problem one = part(op, p, i);
    for (std::size_t k = 0; k < op.beside.size(); ++k)
      if (op.beside[k].kind == Kind::row) one.beside[k] = select(padded(p.beside[k], 0), 0, i);
    parts.push_back(result_of(op, op.list(select(x, 0, i), one.beside), p.offsets.length(i)));
  }
  return concatenate(parts);
}

// --- comparing ------------------------------------------------------------------------------------------------------------

using Way = Tensor (*)(const RaggedOp&, const Problem&);

// The result, then the gradients of x and of what is beside it (undefined for indices) for an output gradient that depends on
// the result's size alone.
Tensors results(const RaggedOp& op, const Problem& p, Way way, const Tensor& seed = {}) {
  Tape tape;
  Tensors wanted{p.x};
  for (const Tensor& x : p.beside)
    if (is_floating(x.dtype())) wanted.push_back(x);
  for (const Tensor& x : wanted) tape.watch(x);
  const Tensor y = way(op, p);
  Generator generator(5);
  const Tensor dy = seed.defined() ? seed : cast(randn(y.shape(), generator, {.dtype = f64}), y.dtype());
  const Tensors gradients = is_tracked(y) ? tape.gradient(y, dy, wanted) : Tensors();
  Tensors all{y};
  std::size_t next = 0;
  for (std::size_t i = 0; i <= p.beside.size(); ++i) {
    const Tensor& input = i == 0 ? p.x : p.beside[i - 1];
    if (!is_floating(input.dtype())) all.push_back({});
    else if (gradients.empty()) all.push_back(zeros_like(input));
    else all.push_back(gradients[next++]);
  }
  return all;
}

// The derivatives of the gradients' product with random numbers, of the inputs and of the output's gradient; none if it
// depends on nothing.
Tensors second_derivatives(const RaggedOp& op, const Problem& p, Way way) {
  Tensors wanted{p.x};
  for (const Tensor& x : p.beside)
    if (is_floating(x.dtype())) wanted.push_back(x);
  Tape outer;
  for (const Tensor& x : wanted) outer.watch(x);
  Generator generator(5);
  Tensor total = zeros({}, {.dtype = p.x.dtype()}), dy;
  {
    Tape inner;
    for (const Tensor& x : wanted) inner.watch(x);
    const Tensor y = clone(way(op, p));  // some give x itself
    if (!is_tracked(y)) return {};
    dy = cast(randn(y.shape(), generator, {.dtype = f64}), y.dtype());
    outer.watch(dy);
    for (const Tensor& dx : inner.gradient(y, dy, wanted))
      total = total + sum(dx * cast(randn(dx.shape(), generator, {.dtype = f64}), dx.dtype()));
  }
  if (!is_tracked(total)) return {};
  wanted.push_back(dy);
  return outer.gradient(total, wanted);
}

// What differs, or nothing.
std::string difference(const Tensor& got, const Tensor& expected, const std::string& what) {
  if (!(got.shape() == expected.shape()))
    return what + " of shape " + got.shape().str() + ", not " + expected.shape().str();
  const std::vector<double> a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!(std::abs(a[i] - b[i]) <= 1e-11 * (1 + std::abs(b[i]))))
      return what + " element " + std::to_string(i) + ": " + std::to_string(a[i]) + ", not " + std::to_string(b[i]);
  }
  return "";
}

std::string difference(const Tensors& got, const Tensors& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined()) continue;
    const std::string what = i == 0 ? "result" : "gradient of input " + std::to_string(i - 1);
    if (const std::string text = difference(got[i], expected[i], what); !text.empty()) return text;
  }
  return "";
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

class RaggedProperties : public testing::TestWithParam<RaggedOp> {
 protected:
  static void SetUpTestSuite() { ::setenv("RC_PARAMS", "seed=20 max_success=100", 0); }
};

TEST_P(RaggedProperties, IsALoopOverTheSequences) {
  rc::detail::checkGTest([&] {
    const Problem p = any_problem(GetParam(), f64);
    const Tensors got = results(GetParam(), p, by_ragged);
    RC_ASSERT(got[0].shape()[0] == (GetParam().per_sequence ? p.offsets.count() : p.offsets.total()));
    if (p.offsets.count() == 0) return;
    RC_ASSERT(difference(got, results(GetParam(), p, by_list)) == "");
  });
}

TEST_P(RaggedProperties, HasTheSecondDerivativesOfALoop) {
  rc::detail::checkGTest([&] {
    const Problem p = any_problem(GetParam(), f64);
    if (p.offsets.count() == 0 || p.offsets.total() > 40) return;  // long sequences show no more, slowly
    const Tensors got = second_derivatives(GetParam(), p, by_ragged),
                  expected = second_derivatives(GetParam(), p, by_list);
    for (std::size_t i = 0; i < std::max(got.size(), expected.size()); ++i) {
      const Tensor a = got.empty() ? zeros_like(expected[i]) : got[i];
      const Tensor b = expected.empty() ? zeros_like(got[i]) : expected[i];
      RC_ASSERT(difference(a, b, "second derivative " + std::to_string(i)) == "");
    }
  });
}

TEST_P(RaggedProperties, IsThePaddedOpUnderAMask) {
  if (!GetParam().padding) return;  // no number masks rows: the op is one of the few below
  rc::detail::checkGTest([&] {
    const Problem p = any_problem(GetParam(), f64);
    if (p.offsets.count() == 0) return;
    RC_ASSERT(difference(results(GetParam(), p, by_ragged), results(GetParam(), p, by_padding)) == "");
  });
}

TEST(RaggedPropertiesTable, FewOpsAreWithoutAMask) {
  const auto shapes = ragged_shape_ops();
  for (const RaggedOp& op : ragged_ops()) {
    if (std::any_of(shapes.begin(), shapes.end(), [&](const RaggedOp& other) { return other.name == op.name; }))
      continue;
    const bool needs_length = op.name == "mean" || op.name == "reverse" || op.name == "reduce_last" ||
                              op.name == "var" || op.name == "stddev" || op.name == "scaled_dot_product_attention" ||
                              op.name.ends_with("/bidirectional") || op.name.ends_with("_state");
    EXPECT_EQ(!op.padding, needs_length) << op.name;
  }
  // Those that go round from the end, count what is there, or repeat the edge.
  EXPECT_LE(std::count_if(shapes.begin(), shapes.end(), [](const RaggedOp& op) { return !op.padding; }), 14);
}

TEST_P(RaggedProperties, ASequenceAloneHasTheSameBitsAsInABatch) {
  rc::detail::checkGTest([&] {
    const RaggedOp& op = GetParam();
    const Problem p = any_problem(op, *rc::gen::element(f32, f64));
    Generator generator(7);
    const Tensor y = by_ragged(op, p), dy = cast(randn(y.shape(), generator, {.dtype = f64}), y.dtype());
    const Tensors batch = results(op, p, by_ragged, dy);
    for (std::int64_t i = 0; i < p.offsets.count(); ++i) {
      const std::int64_t begin = p.offsets.span()[static_cast<std::size_t>(i)], length = p.offsets.length(i);
      const auto cut = [&](const Tensor& x, bool per_sequence) {
        return per_sequence ? narrow(x, 0, i, 1) : narrow(x, 0, begin, length);
      };
      const Tensors alone = results(op, copied(part(op, p, i)), by_ragged, clone(cut(dy, op.per_sequence)));
      RC_ASSERT(same_bits(alone[0], cut(batch[0], op.per_sequence)));
      RC_ASSERT(same_bits(alone[1], cut(batch[1], false)));
      for (std::size_t k = 0; k < op.beside.size(); ++k)
        if (op.beside[k].kind != Kind::shared && !op.beside[k].index)
          RC_ASSERT(same_bits(alone[k + 2], cut(batch[k + 2], op.beside[k].kind == Kind::sequence)));
    }
  });
}

TEST_P(RaggedProperties, UndefinedSequencesAreRefused) {
  const RaggedOp& op = GetParam();
  Tensors beside;
  for (const Beside& one : op.beside) {
    Shape shape;
    if (one.kind != Kind::shared) shape.push_back(one.kind == Kind::row ? 3 : 2);
    for (const std::int64_t size : one.trailing(2)) shape.push_back(size);
    beside.push_back(one.index ? zeros(shape, {.dtype = i64}) : ones(shape));
  }
  Ragged x = Ragged::from_lengths(ones({3, 2}), {1, 2});
  const Ragged other = std::move(x);
  EXPECT_THROW(op.ragged(x, beside), Error);  // NOLINT: one of which values were moved has its lengths
}

INSTANTIATE_TEST_SUITE_P(Table, RaggedProperties, testing::ValuesIn(ragged_ops()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace reel::test
