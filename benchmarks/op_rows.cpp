// Every op of the op-case table, forward and with backward, at a size that fits the second cache and one that does not:
// "matmul#l2", "matmul#memory_backward". The table gives calls and inputs, so that a new op is measured without another word.
// A side of scripts/bench: each answer has the bytes of inputs and outputs, read or written once (with backward also of the
// gradients, and the inputs twice), and the FLOP: all of products and of what solves linear systems, a bound from below of others.

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "google.h"
#include "reel_rows.h"
#include "reel/core/parallel.h"
#include "reel/tests/ops/op_case.h"

namespace bench {

using namespace reel;
using test::OpCase;

namespace {

// The larger one is what f32 inputs of [4097, 513] are.
constexpr test::Extent kSecond{1025, 129}, kBeyond{4097, 513};
constexpr double kBeyondBytes = 16e6;

/// One operation for each element of the largest operand or result, a function such as exp counted as one, of an op that has
/// rounding errors. What only moves, compares and chooses does none.
double least_flops(const OpCase& row, const Tensors& in, const Tensor& y) {
  static const std::set<std::string> choosing = {"max", "min", "amax", "amin", "maximum", "minimum"};
  if (row.tolerance == 0 || !is_floating(y.dtype()) || choosing.count(row.name) == 1) return 0;
  if (row.name == "scatter_add") return static_cast<double>(in[2].size());  // numbers that are added
  if (row.name == "nll_loss") return static_cast<double>(in[0].shape()[0]);
  Int most = y.size();
  for (const Tensor& x : in)
    if (is_floating(x.dtype())) most = std::max(most, x.size());
  return static_cast<double>(most);
}

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& x : tensors) bytes += static_cast<double>(x.size()) * static_cast<double>(size_of(x.dtype()));
  return bytes;
}

/// Multiplications and additions of an op that is a product, or that solves linear systems (the terms of the highest order, as in
/// LAPACK Working Note 41, appendix C); 0 of others.
double product_flops(const std::string& op, const Tensors& in, const Tensor& y) {
  const auto size = [](const Tensor& x) { return static_cast<double>(x.size()); };
  const auto axis = [](const Tensor& x, int i) { return static_cast<double>(x.shape()[i]); };
  const auto last = [&](const Tensor& x) { return axis(x, x.rank() - 1); };
  if (op == "matmul" || op == "linear" || op == "einsum") return 2 * size(y) * last(in[0]);
  if (op == "dot") return 2 * size(in[0]);
  if (op == "outer") return size(y);
  if (op == "spmm") return 2 * size(in[1]) * size(in[0]) / axis(in[0], 0);
  // Each row of x by the weights of the input, and its state by those of the state.
  if (op == "lstm" || op == "gru" || op == "rnn") return 2 * size(in[0]) / last(in[0]) * (size(in[3]) + size(in[4]));
  if (op == "cholesky") return size(in[0]) * last(in[0]) / 3;
  if (op == "logdet" || op == "slogdet") return 2 * size(in[0]) * last(in[0]) / 3;
  if (op == "inverse") return 2 * size(in[0]) * last(in[0]);
  if (op == "solve") return 2 * size(in[0]) * last(in[0]) / 3 + 2 * size(y) * last(in[0]);
  if (op == "triangular_solve") return size(y) * axis(y, y.rank() - 2);
  if (op == "scaled_dot_product_attention") return 2 * (size(in[0]) + size(y)) * axis(in[1], in[1].rank() - 2);
  if (op.rfind("conv_transpose", 0) == 0) return 2 * size(in[0]) * size(in[1]) / axis(in[1], 0);
  if (op.rfind("conv", 0) == 0) return 2 * size(y) * size(in[1]) / axis(in[1], 0);
  return 0;
}

double flops_of(const OpCase& row, const Tensors& in, const Tensor& y) {
  const double flops = product_flops(row.name, in, y);
  return flops > 0 ? flops : least_flops(row, in, y);
}

/// What a gradient with regard to both operands costs beside the op: two more products of the size, but for a solve, which has its
/// factors, the determinants, which need an inverse, decompositions and what is no product: their own count is a bound from below.
double flops_with_backward(const OpCase& row, const Tensors& in, const Tensor& y, std::size_t wanted) {
  const double flops = flops_of(row, in, y);
  if (product_flops(row.name, in, y) == 0 || row.name == "solve" || row.name == "cholesky" || row.name == "logdet" ||
      row.name == "slogdet")
    return flops;
  return flops * static_cast<double>(1 + std::min<std::size_t>(wanted, 2));
}

/// The first axis of what goes row by row is made longer, until inputs and result are beyond the second cache.
Tensors lengthened(const OpCase& row, const Tensors& in) {
  const Tensor y = row.call(in);
  const double bytes = bytes_of(in) + bytes_of({y});
  if (!row.mixes_rows.empty() || y.rank() == 0 || bytes * 2 > kBeyondBytes || bytes == 0) return in;
  const auto times = static_cast<Int>(kBeyondBytes / bytes);
  Tensors longer = in;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool whole = std::find(row.whole.begin(), row.whole.end(), static_cast<int>(i)) != row.whole.end();
    if (whole || in[i].rank() == 0 || in[i].shape()[0] != y.shape()[0]) continue;
    Shape repeats{times};
    while (repeats.rank() < in[i].rank()) repeats.push_back(1);
    longer[i] = tile(in[i], repeats);
  }
  try {
    row.call(longer);
    return longer;
  } catch (const Error&) {  // it has its sizes from elsewhere
    return in;
  }
}

Work work(const OpCase& row, bool beyond, bool backward) {
  test::large_extent() = beyond ? kBeyond : kSecond;
  test::Maker make(f32, 11);
  Tensors in = row.inputs(make, test::Size::large);
  if (beyond) in = lengthened(row, in);
  Tensors wanted;
  if (backward)
    for (const int i : row.differentiable) wanted.push_back(in[static_cast<std::size_t>(i)]);
  const Tensor y = row.call(in);
  const auto no_digest = [] { return Digest(); };  // the tests know what is right
  if (!backward)
    return {repeated([=] { row.call(in); }), no_digest, {}, bytes_of(in) + bytes_of({y}), flops_of(row, in, y)};
  const Tensor dy = rand(y.shape(), {.dtype = y.dtype()});
  return {repeated([=] {
            Tape tape;
            for (const Tensor& x : wanted) tape.watch(x);
            tape.gradient(row.call(in), dy, wanted);
          }),
          no_digest,
          {},
          2 * bytes_of(in) + 2 * bytes_of({y}) + bytes_of(wanted),
          flops_with_backward(row, in, y, wanted.size())};
}

/// The plain form of each op: its row without a variant, or its first.
std::vector<const OpCase*> plain_forms() {
  std::vector<const OpCase*> rows;
  std::map<std::string, std::size_t> places;
  for (const OpCase& row : test::op_cases()) {
    const std::string op = row.name.substr(0, row.name.find('/'));
    if (std::find(row.skip.begin(), row.skip.end(), test::Size::large) != row.skip.end()) continue;
    const auto [place, added] = places.try_emplace(op, rows.size());
    if (added) rows.push_back(&row);
    else if (row.name == op) rows[place->second] = &row;
  }
  return rows;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  std::vector<Row> rows;
  for (const test::OpCase* op : plain_forms())
    for (const bool beyond : {false, true})
      for (const bool backward : {false, true})
        if (!backward || op->order > 0)
          rows.push_back({op->name + (beyond ? "#memory" : "#l2") + (backward ? "_backward" : ""), 0,
                          [=] { return work(*op, beyond, backward); }, 1});
  return serve_or_run(argc, argv, rows, reel::num_threads(), [](int threads) { reel::set_num_threads(threads); });
}
