// Recurrent cells and windows of rows against plain loops.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::random_array;
using test::TestArray;
using Real = long double;

constexpr CellOp kCells[] = {CellOp::rnn_tanh, CellOp::rnn_relu, CellOp::lstm, CellOp::gru};
constexpr int64_t kHidden[] = {0, 1, 3, 15, 16, 17, 33, 64};
constexpr int64_t kRows[] = {0, 1, 5, 300};

int64_t gates_of(CellOp op) { return op == CellOp::lstm ? 4 : op == CellOp::gru ? 3 : 1; }

/// A step's arrays. c_prev, c, dc, dc_prev are there for each cell, but only lstm gets them.
template <class T>
struct Step {
  CellOp op;
  int64_t n, h;
  TestArray<T> x, r, h_prev, c_prev, y, c, saved, dh, dc, dx, dr, dh_prev, dc_prev;

  Step(CellOp op_, int64_t n_, int64_t h_)
      : op(op_),
        n(n_),
        h(h_),
        x(random_array<T>({n, gates_of(op) * h}, 1)),
        r(random_array<T>({n, gates_of(op) * h}, 2)),
        h_prev(random_array<T>({n, h}, 3)),
        c_prev(random_array<T>({n, h}, 4)),
        y({n, h}),
        c({n, h}),
        saved({n, gates_of(op) * h}),
        dh(random_array<T>({n, h}, 5)),
        dc(random_array<T>({n, h}, 6)),
        dx({n, gates_of(op) * h}),
        dr({n, gates_of(op) * h}),
        dh_prev({n, h}),
        dc_prev({n, h}) {}

  bool lstm() const { return op == CellOp::lstm; }
  void run() {
    test::cpu().cell(op, x, r, h_prev, lstm() ? &c_prev.array() : nullptr, y, lstm() ? &c.array() : nullptr, saved);
  }
  void run_backward() {
    test::cpu().cell_backward(op, r, h_prev, lstm() ? &c_prev.array() : nullptr, y, lstm() ? &c.array() : nullptr,
                              saved, dh, lstm() ? &dc.array() : nullptr, dx, dr, dh_prev,
                              lstm() ? &dc_prev.array() : nullptr);
  }
  bool margins_intact() const {
    for (const TestArray<T>* a : {&y, &c, &saved, &dx, &dr, &dh_prev, &dc_prev})
      if (!a->margins_intact()) return false;
    return true;
  }
};

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }

/// What one element depends on: the gates' two parts, h_prev, c_prev. Gives h and c.
struct Element {
  Real x[4], r[4], h_prev, c_prev;
};
struct State {
  Real h, c;
};
State reference(CellOp op, const Element& e) {
  const auto gate = [&](int k) { return e.x[k] + e.r[k]; };
  if (op == CellOp::rnn_tanh) return {std::tanh(gate(0)), 0};
  if (op == CellOp::rnn_relu) return {std::max(Real(0), gate(0)), 0};
  if (op == CellOp::lstm) {
    const Real c = sigmoid(gate(1)) * e.c_prev + sigmoid(gate(0)) * std::tanh(gate(2));
    return {sigmoid(gate(3)) * std::tanh(c), c};
  }
  const Real z = sigmoid(gate(1));
  return {(1 - z) * std::tanh(e.x[2] + sigmoid(gate(0)) * e.r[2]) + z * e.h_prev, 0};
}

template <class T>
Element element(const Step<T>& s, int64_t row, int64_t j) {
  Element e{{}, {}, s.h_prev[row * s.h + j], s.c_prev[row * s.h + j]};
  for (int64_t k = 0; k < gates_of(s.op); ++k) {
    e.x[k] = s.x[(row * gates_of(s.op) + k) * s.h + j];
    e.r[k] = s.r[(row * gates_of(s.op) + k) * s.h + j];
  }
  return e;
}

template <class T>
class Cells : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Cells, Types);

// Prints the largest errors, in epsilons of 1 + |expected|.
TYPED_TEST(Cells, StepByTheirFormulas) {
  const char* names[] = {"rnn tanh", "rnn relu", "lstm", "gru"};
  for (const CellOp op : kCells) {
    Real worst = 0;
    const auto compare = [&](TypeParam got, Real expected) {
      const Real error = std::abs(got - expected) / (1 + std::abs(expected));
      worst = std::max(worst, error / std::numeric_limits<TypeParam>::epsilon());
    };
    for (const int64_t n : kRows)
      for (const int64_t h : kHidden) {
        Step<TypeParam> s(op, n, h);
        s.run();
        for (int64_t row = 0; row < n; ++row)
          for (int64_t j = 0; j < h; ++j) {
            const State expected = reference(op, element(s, row, j));
            compare(s.y[row * h + j], expected.h);
            if (s.lstm()) compare(s.c[row * h + j], expected.c);
          }
        EXPECT_TRUE(s.margins_intact());
      }
    EXPECT_LE(worst, 4) << names[static_cast<int>(op)];
    std::printf("%s, %s: %.2Lf\n", names[static_cast<int>(op)], sizeof(TypeParam) == 4 ? "f32" : "f64", worst);
  }
}

// The derivatives by differences of the formulas, in long double.
TYPED_TEST(Cells, GoBackByTheFormulasSlopes) {
  for (const CellOp op : kCells)
    for (const int64_t n : {1, 5})
      for (const int64_t h : {1, 3, 17, 33}) {
        Step<TypeParam> s(op, n, h);
        s.run();
        s.run_backward();
        for (int64_t row = 0; row < n; ++row)
          for (int64_t j = 0; j < h; ++j) {
            const Element at = element(s, row, j);
            const int64_t i = row * h + j;
            const auto slope = [&](auto&& place) {
              constexpr Real kStep = 1e-6;
              Element up = at, down = at;
              place(up) += kStep;
              place(down) -= kStep;
              const State a = reference(op, up), b = reference(op, down);
              return ((a.h - b.h) * s.dh[i] + (s.lstm() ? (a.c - b.c) * s.dc[i] : 0)) / (2 * kStep);
            };
            const auto near = [&](TypeParam got, Real expected, const char* what) {
              const Real epsilon = std::numeric_limits<TypeParam>::epsilon();
              ASSERT_NEAR(got, expected, (1e-9 + 30 * epsilon) * (1 + std::abs(expected))) << what;
            };
            for (int64_t k = 0; k < gates_of(op); ++k) {
              const int64_t gate = (row * gates_of(op) + k) * h + j;
              near(s.dx[gate], slope([k](Element& e) -> Real& { return e.x[k]; }), "dx");
              near(s.dr[gate], slope([k](Element& e) -> Real& { return e.r[k]; }), "dr");
            }
            near(s.dh_prev[i], slope([](Element& e) -> Real& { return e.h_prev; }), "dh_prev");
            if (s.lstm()) near(s.dc_prev[i], slope([](Element& e) -> Real& { return e.c_prev; }), "dc_prev");
          }
        EXPECT_TRUE(s.margins_intact());
      }
}

TYPED_TEST(Cells, MayWorkInPlace) {
  for (const CellOp op : kCells) {
    Step<TypeParam> apart(op, 5, 17), same(op, 5, 17);
    apart.run();
    apart.run_backward();
    same.run();
    TestArray<TypeParam> c = same.c_prev;
    if (same.lstm()) test::cpu().cell(op, same.x, same.r, same.h_prev, &c.array(), same.y, &c.array(), same.saved);
    const bool lstm = same.lstm();
    test::cpu().cell_backward(op, same.r, same.h_prev, lstm ? &same.c_prev.array() : nullptr, same.y,
                              lstm ? &c.array() : nullptr, same.saved, same.dh, lstm ? &same.dc.array() : nullptr,
                              same.dx, op == CellOp::gru ? same.dr : same.dx, same.dh,
                              lstm ? &same.dc.array() : nullptr);
    EXPECT_TRUE(test::same_bits(same.y, apart.y) && test::same_bits(same.dx, apart.dx));
    EXPECT_TRUE(test::same_bits(same.dh, apart.dh_prev));
    if (lstm) {
      EXPECT_TRUE(test::same_bits(c, apart.c) && test::same_bits(same.dc, apart.dc_prev));
    }
  }
}

TYPED_TEST(Cells, GiveTheSameBitsForAnyNumberOfThreadsAndForARowAlone) {
  for (const CellOp op : kCells) {
    Step<TypeParam> expected(op, 300, 70);
    {
      const test::Threads scope(1);
      expected.run();
      expected.run_backward();
    }
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      Step<TypeParam> s(op, 300, 70);
      s.run();
      s.run_backward();
      EXPECT_TRUE(test::same_bits(s.y, expected.y) && test::same_bits(s.saved, expected.saved));
      EXPECT_TRUE(test::same_bits(s.dx, expected.dx) && test::same_bits(s.dr, expected.dr));
      EXPECT_TRUE(test::same_bits(s.c, expected.c) && test::same_bits(s.dh_prev, expected.dh_prev) &&
                  test::same_bits(s.dc_prev, expected.dc_prev));
    }
    const int64_t row = 123;
    Step<TypeParam> alone(op, 1, 70);
    for (int64_t j = 0; j < gates_of(op) * 70; ++j) {
      alone.x.set(j, expected.x[row * gates_of(op) * 70 + j]);
      alone.r.set(j, expected.r[row * gates_of(op) * 70 + j]);
    }
    for (int64_t j = 0; j < 70; ++j) {
      alone.h_prev.set(j, expected.h_prev[row * 70 + j]);
      alone.c_prev.set(j, expected.c_prev[row * 70 + j]);
    }
    alone.run();
    for (int64_t j = 0; j < 70; ++j) ASSERT_EQ(alone.y[j], expected.y[row * 70 + j]);
  }
}

TYPED_TEST(Cells, ElementsBesideOnesFarOutKeepTheirBits) {
  constexpr int64_t h = 48;
  for (const CellOp op : kCells) {
    Step<TypeParam> near(op, 2, h), beside(op, 2, h);
    near.run();
    for (int64_t k = 0; k < 2 * gates_of(op); ++k) beside.x.set(k * h + 7 + k, TypeParam(k % 2 ? -30 : -11));
    beside.run();
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t j = 0; j < h; ++j) {
        const int64_t first = row * gates_of(op), last = first + gates_of(op) - 1;
        if (j < 7 + first || j > 7 + last) {
          for (int64_t k = first; k <= last; ++k) ASSERT_EQ(beside.saved[k * h + j], near.saved[k * h + j]) << j;
          ASSERT_EQ(beside.y[row * h + j], near.y[row * h + j]) << j;
        }
        const State expected = reference(op, element(beside, row, j));
        ASSERT_NEAR(beside.y[row * h + j], expected.h, 1e-6) << j;
      }
  }
}

TYPED_TEST(Cells, PassNaNAndBearInfinities) {
  constexpr TypeParam inf = std::numeric_limits<TypeParam>::infinity(),
                      nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const CellOp op : kCells) {
    Step<TypeParam> s(op, 3, 1);
    for (int64_t k = 0; k < gates_of(op); ++k) {
      s.x.set(k, nan);
      s.x.set(gates_of(op) + k, inf);
      s.x.set(2 * gates_of(op) + k, -inf);
    }
    s.run();
    s.run_backward();
    EXPECT_TRUE(std::isnan(s.y[0]));
    if (op != CellOp::rnn_relu) {  // whose gradient goes through
      EXPECT_TRUE(std::isnan(s.dx[0]));
    }
    EXPECT_FALSE(std::isnan(s.y[1]) || std::isnan(s.y[2]));
  }
}

// --- windows ------------------------------------------------------------------------------------------------------------

struct Cut {
  std::vector<int64_t> offsets{0};
  int64_t longest = 0;
  explicit Cut(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      offsets.push_back(offsets.back() + length);
      longest = std::max(longest, length);
    }
  }
  operator Segments() const {
    return {static_cast<int64_t>(offsets.size()) - 1, offsets.data(), offsets.back(), longest};
  }
  int64_t total() const { return offsets.back(); }
  bool together(int64_t r, int64_t q) const {
    if (q < 0 || q >= total()) return false;
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
      if (r >= offsets[s] && r < offsets[s + 1]) return q >= offsets[s] && q < offsets[s + 1];
    return false;
  }
};

TYPED_TEST(Cells, WindowsAreThoseOfLoopsForwardAndBackward) {
  for (const auto& lengths : std::vector<std::vector<int64_t>>{{}, {0}, {1}, {0, 5, 0, 1, 2, 33, 0}, {70, 31}}) {
    const Cut cut(lengths);
    for (const int64_t width : {0, 1, 3, 17, 64})
      for (const auto& [before, window] :
           {std::pair<int64_t, int64_t>{1, 3}, {0, 1}, {4, 9}, {0, 4}, {3, 4}, {40, 81}}) {
        const auto x = random_array<TypeParam>({cut.total(), width}, 1);
        const auto dy = random_array<TypeParam>({cut.total(), window, width}, 2);
        TestArray<TypeParam> y({cut.total(), window, width}), dx({cut.total(), width});
        test::cpu().segment_window(x, cut, before, y);
        test::cpu().segment_window_backward(dy, cut, before, dx);
        std::vector<Real> sums(static_cast<std::size_t>(cut.total() * width)), sizes = sums;
        for (int64_t r = 0; r < cut.total(); ++r)
          for (int64_t j = 0; j < window; ++j)
            for (int64_t c = 0; c < width; ++c) {
              const int64_t q = r + j - before, i = (r * window + j) * width + c;
              const bool there = cut.together(r, q);
              ASSERT_EQ(y[i], there ? x[q * width + c] : TypeParam(0));
              if (!there) continue;
              sums[static_cast<std::size_t>(q * width + c)] += dy[i];
              sizes[static_cast<std::size_t>(q * width + c)] += std::abs(Real(dy[i]));
            }
        for (int64_t i = 0; i < cut.total() * width; ++i)
          ASSERT_NEAR(dx[i], sums[static_cast<std::size_t>(i)],
                      40 * std::numeric_limits<TypeParam>::epsilon() * sizes[static_cast<std::size_t>(i)]);
        EXPECT_TRUE(y.margins_intact() && dx.margins_intact());
      }
  }
}

TYPED_TEST(Cells, WindowsAreTheSameBitsForAnyNumberOfThreads) {
  const Cut cut({1000, 0, 1, 700});
  const auto x = random_array<TypeParam>({1701, 33}, 1);
  const auto dy = random_array<TypeParam>({1701, 5, 33}, 2);
  TestArray<TypeParam> y({1701, 5, 33}), dx({1701, 33});
  {
    const test::Threads scope(1);
    test::cpu().segment_window(x, cut, 2, y);
    test::cpu().segment_window_backward(dy, cut, 2, dx);
  }
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    TestArray<TypeParam> y2({1701, 5, 33}), dx2({1701, 33});
    test::cpu().segment_window(x, cut, 2, y2);
    test::cpu().segment_window_backward(dy, cut, 2, dx2);
    EXPECT_TRUE(test::same_bits(y, y2) && test::same_bits(dx, dx2));
  }
}

}  // namespace
}  // namespace reel
