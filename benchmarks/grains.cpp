// The grains of the CPU backend: how much work a thread does alone before a second one is called in. For an op of each grain, what
// one thread and two take where its work is still one chunk, at the first size that is two (where work is not cut evenly the second
// is then next to nothing), at two whole chunks and at four. With two whole chunks t1 / t2 should be from 1.1 to 1.6: below 1 the
// grain is too small, as two threads are slower than one; above 1.7 it is too large, as less work would gain by a second one too.
// With one chunk it is 1, or the machine does not hold still. Nothing else may run: a thread that waits for its core costs
// milliseconds. In kTask's row each task is of that size, and all sizes are cut.
//
// Usage: benchmark_grains [<part of a grain's or an op's name> [<rounds>]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "reel_rows.h"
#include "slope.h"
#include "reel/backends/cpu/cpu.h"
#include "reel/core/parallel.h"

namespace {

using namespace reel;
using bench::Int;

constexpr double kSeconds = 0.015;  // of one measurement

/// Calls in a row are timed, while what they need is alive.
using Timer = std::function<void(const std::function<void()>& call)>;

struct Case {
  std::string grain, op;
  Int chunk;         // units that one thread does alone, as the grain says
  std::string unit;  // of which the op is given so many
  std::function<void(Int units, const Timer& timer)> run;
};

/// An op on its operands.
struct Call {
  Tensors in;
  std::function<Tensor(const Tensors&)> op;
};
using Make = std::function<Call(Int units)>;

auto forward(const Make& make) {
  return [make](Int units, const Timer& timer) {
    const Call call = make(units);
    timer([&] { call.op(call.in); });
  };
}
/// Forward as for a gradient.
auto recorded(const Make& make) {
  return [make](Int units, const Timer& timer) {
    const Call call = make(units);
    timer([&] {
      Tape tape;
      tape.watch(call.in[0]);
      call.op(call.in);
    });
  };
}
/// The sweep alone, for the operands [first, last).
auto backward(const Make& make, std::size_t first = 0, std::size_t last = 100) {
  return [=](Int units, const Timer& timer) {
    const Call call = make(units);
    Tensors wanted;
    for (std::size_t i = first; i < std::min(last, call.in.size()); ++i) wanted.push_back(call.in[i]);
    Tape tape;
    for (const Tensor& x : wanted) tape.watch(x);
    const Tensor y = call.op(call.in);
    const Tensor dy = bench::tensor(50, y.shape());
    timer([&] { tape.gradient(y, dy, wanted, {.keep = true}); });
  };
}

/// `n` sequences of 15 rows, which with the place of an empty row count as 16.
Ragged sequences(Int n, Int width) {
  return Ragged::from_lengths(bench::tensor(1, {15 * n, width}), std::vector<Int>(static_cast<std::size_t>(n), 15));
}

std::vector<Case> cases() {
  using bench::tensor;
  std::vector<Case> cases;
  const auto add = [&](const char* grain, const char* op, Int chunk, const char* unit, const Make& make) {
    cases.push_back({grain, op, chunk, unit, forward(make)});
  };
  const auto add_both = [&](const char* grain, const char* op, Int chunk, const char* unit, const Make& make) {
    add(grain, op, chunk, unit, make);
    cases.push_back({grain, std::string(op) + " backward", chunk, unit, backward(make)});
  };
  const auto elements = [](auto f, DType dtype = DType::f32) {
    return [=](Int n) { return Call{{cast(tensor(1, {n}) + 2, dtype)}, [f](const Tensors& in) { return f(in[0]); }}; };
  };
  const auto rows = [](auto f) {
    return [f](Int n) { return Call{{tensor(1, {n, 64})}, [f](const Tensors& in) { return f(in[0]); }}; };
  };
  const auto columns = [](auto f) {
    return [f](Int n) { return Call{{tensor(1, {64, n})}, [f](const Tensors& in) { return f(in[0]); }}; };
  };
  const auto ragged = [](Int width, auto f) {
    return [=](Int n) {
      const Ragged x = sequences(n, width);
      return Call{{x.values()}, [=](const Tensors& in) { return f(x.with(in[0])); }};
    };
  };
  const auto softmax_of = [](const Ragged& x) { return softmax(x).values(); };

  add("kAlone", "add", 16384, "elements", elements([](const Tensor& x) { return x + x; }));
  const auto exponential = [](const Tensor& x) { return exp(x); };
  const std::string isa = cpu::isa_name();
  const Int bytes = isa == "v4" ? 64 : isa == "v3" ? 32 : 16;  // of a vector, of which one thread takes 1024 alone
  add("alone_with_formula", "exp", 1024 * bytes / 4, "elements", elements(exponential));
  add("alone_with_formula", "exp of doubles", 1024 * bytes / 8, "elements", elements(exponential, DType::f64));
  add_both("alone_with_formula / 2", "geglu", 512 * bytes / 4 / 32, "rows of 64",
           rows([](const Tensor& x) { return geglu(x); }));
  add("kGrain", "sum of rows", 512, "rows of 64", rows([](const Tensor& x) { return sum(x, 1); }));
  add("kGrain", "ragged sum", 128, "sequences of [15, 16]", ragged(16, [](const Ragged& x) { return sum(x); }));
  add("kGrain / 8", "rand", 4096, "elements", elements([](const Tensor& x) { return rand(x.shape()); }));
  add("kAlone", "sum of columns", 256, "rows of 64", rows([](const Tensor& x) { return sum(x, 0); }));
  add("kTask", "sum of columns, large", 131072, "rows of 64", rows([](const Tensor& x) { return sum(x, 0); }));
  add("kChunk", "standard_gamma", 128, "elements", elements([](const Tensor& x) { return standard_gamma(x); }));
  add("kChunk", "poisson", 128, "elements", elements([](const Tensor& x) { return poisson(x); }));
  add_both("kDropoutGrain", "dropout", 4096, "elements", elements([](const Tensor& x) { return dropout(x); }));
  add_both("kSoftmaxGrain", "softmax of rows", 128, "rows of 64", rows([](const Tensor& x) { return softmax(x); }));
  add_both("kSoftmaxGrain", "softmax of columns", 128, "columns of 64",
           columns([](const Tensor& x) { return softmax(x, 0); }));
  add_both("kSegmentSoftmaxGrain", "ragged softmax", 32, "sequences of [15, 16]", ragged(16, softmax_of));
  add_both("kSegmentSoftmaxGrain", "ragged softmax", 512, "sequences of [15, 1]", ragged(1, softmax_of));

  for (const Int classes : {10, 64}) {
    const auto make = [=](Int n) {
      return Call{{tensor(1, {n, classes}), bench::labels(n, classes)},
                  [](const Tensors& in) { return cross_entropy(in[0], in[1]); }};
    };
    const std::string unit = "rows of " + std::to_string(classes);
    const Int chunk = 8192 / classes;
    cases.push_back({"kLossGrain", "cross_entropy", chunk, unit, forward(make)});
    cases.push_back({"kLossGrain", "cross_entropy, recorded", chunk, unit, recorded(make)});
  }

  const auto layer_norm_of = [](Int n) {
    return Call{{tensor(1, {n, 64}), tensor(2, {64}), tensor(3, {64})},
                [](const Tensors& in) { return layer_norm(in[0], {64}, in[1], in[2]); }};
  };
  add_both("kNormalizeGrain", "layer_norm", 128, "rows of 64", layer_norm_of);

  const auto product_of = [](DType dtype) {
    return [=](Int n) {
      return Call{{cast(tensor(1, {n, 64}), dtype), cast(tensor(2, {64, 64}), dtype)},
                  [](const Tensors& in) { return matmul(in[0], in[1]); }};
    };
  };
  const auto products = [](Int n) {
    return Call{{tensor(1, {n, 16, 16}), tensor(2, {n, 16, 16})},
                [](const Tensors& in) { return matmul(in[0], in[1]); }};
  };
  add("kProductGrain", "matmul", 64, "rows of 64 by [64, 64]", product_of(DType::f32));
  add("kProductGrain", "matmul of doubles", 48, "rows of 64 by [64, 64]", product_of(DType::f64));
  add("kProductGrain", "matmul, many", 64, "products of 16 x 16", products);

  const auto attention = [](Int n) {
    return Call{{tensor(1, {n, 1, 16, 16}), tensor(2, {n, 1, 16, 16}), tensor(3, {n, 1, 16, 16})},
                [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }};
  };
  add("kAttentionGrain", "attention", 15, "sequences of [16, 16]", attention);
  cases.push_back({"kAttentionGrain", "attention backward", 5, "sequences of [16, 16]", backward(attention)});

  const auto convolution = [](Int n, Int in, Int out, Int height, Int width) {
    return Call{{tensor(1, {n, in, height, width}), tensor(2, {out, in, 3, 3}, 0.3), tensor(3, {out})},
                [](const Tensors& x) { return conv2d_relu(x[0], x[1], x[2], {.padding = 1}); }};
  };
  const auto images = [=](Int n) { return convolution(n, 4, 8, 8, 8); };
  const auto larger_images = [=](Int n) { return convolution(n, 1, 4, 32, 32); };
  const auto channels = [=](Int n) { return convolution(n, 1, 1, 32, 32); };
  const auto one_image = [=](Int n) { return convolution(1, 4, 8, n, 48); };
  add("kConvGrain", "conv2d_relu 4 -> 8", 12, "images of 8 x 8", images);
  add("kConvGrain", "conv2d_relu 4 -> 8", 16, "rows of 48 of one image", one_image);
  cases.push_back({"kConvGrain", "dx of conv2d_relu 4 -> 8", 11, "images of 8 x 8", backward(images, 0, 1)});
  cases.push_back({"kConvGrain", "dweight of conv2d_relu 1 -> 4", 3, "images of 32 x 32", backward(larger_images, 1)});
  cases.push_back({"kConvGrain", "gradients of conv2d_relu 1 -> 1", 14, "images of 32 x 32", backward(channels)});
  return cases;
}

/// The median and between what nine of ten lie.
struct Spread {
  double median, low, high;
  explicit Spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
    };
    median = at(0.5), low = at(0.05), high = at(0.95);
  }
};

/// Threads take turns, as machines change their speed.
void measure(const Case& c, Int units, int rounds) {
  c.run(units, [&](const std::function<void()>& call) {
    std::vector<double> times[2], ratios;
    for (int round = -1; round < rounds; ++round) {  // the first to be warm
      double seconds[2];
      for (const int threads : {1, 2}) {
        set_num_threads(threads);
        seconds[threads - 1] = bench::time_slope(bench::repeated([&] { call(); }), kSeconds).seconds;
      }
      if (round < 0) continue;
      for (const int i : {0, 1}) times[i].push_back(seconds[i]);
      ratios.push_back(seconds[0] / seconds[1]);
    }
    const Spread ratio(ratios);
    std::printf("%-21s %-32s %7lld %-23s %8.2f %8.2f   %.2f (%.2f to %.2f)\n", c.grain.c_str(), c.op.c_str(),
                static_cast<long long>(units), c.unit.c_str(), Spread(times[0]).median * 1e6,
                Spread(times[1]).median * 1e6, ratio.median, ratio.low, ratio.high);
    std::fflush(stdout);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  if (rounds < 1 || argc > 3) {
    std::fputs("usage: benchmark_grains [<part of a grain's or an op's name> [<rounds>]]\n", stderr);
    return 1;
  }
  std::printf("%-21s %-32s %31s %8s %8s   t1 / t2 (90 %% of the rounds)\n", "grain", "op", "size", "t1, us", "t2, us");
  for (const Case& c : cases())
    if ((c.grain + " " + c.op).find(wanted) != std::string::npos)
      for (const Int units : {c.chunk, c.chunk + 1, 2 * c.chunk, 4 * c.chunk}) measure(c, units, rounds);
  return 0;
}
