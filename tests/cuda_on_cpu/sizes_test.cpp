// Kernels that go other ways for other sizes, at the sizes where they do.

#include "reel/tests/cuda_on_cpu/sizes.h"

#include <limits>

#include "reel/core/ops.h"
#include "reel/ops/embedding.h"
#include "reel/ops/gated.h"
#include "reel/ops/index.h"
#include "reel/ops/order.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/sequence.h"
#include "reel/ops/sparse.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {
namespace {

// Numbers of which many are equal; floats with NaN, infinities and both zeros.
Tensor crowded(const Shape& shape, DType dtype, Device device) {
  Generator generator(5);
  std::vector<double> x = randn(shape, generator, {.dtype = f64}).to_vector<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {NAN, -0.0, 0.0, infinity, -infinity};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::round(x[i] * 20);
    if (dtype == i32 || dtype == i64) x[i] *= 100000.0;
    else if (i % 17 < 5) x[i] = special[i % 17];
  }
  return to(cast(from_vector(x, shape), dtype), device);
}

constexpr std::int64_t kLengths[] = {1, 2, 31, 32, 33, 255, 257, 1025, 2047, 2048, 2049, 4097, 9001};

TEST_F(CudaSizes, SortsLinesThatFitAndLinesThatDoNot) {
  for (const std::int64_t n : kLengths)
    for (const auto& [dtype, order] : {std::pair{f32, Order::ascending}, std::pair{f64, Order::descending},
                                       std::pair{i32, Order::descending}, std::pair{i64, Order::ascending}}) {
      SCOPED_TRACE(std::to_string(n) + " " + reel::name_of(dtype));
      const auto lines = [&, dtype = dtype, order = order](Device device) {
        const Sorted rows = sort(crowded({2, n}, dtype, device), 1, order);
        const Sorted columns = sort(crowded({n, 3}, dtype, device), 0, order);
        return Tensors{rows.values, rows.which, columns.values, columns.which};
      };
      expect_equal_devices(lines, 0, dtype == f32);
    }
}

TEST_F(CudaSizes, ManyShortLinesAreSortedSeveralInABlock) {
  for (const Shape& shape : {Shape{700, 5}, Shape{3, 40, 90}, Shape{5000, 1}}) {
    const auto lines = [&](Device device) {
      const Sorted sorted = sort(crowded(shape, f32, device), 1);
      return Tensors{sorted.values, sorted.which};
    };
    expect_equal_devices(lines, 0);
  }
}

TEST_F(CudaSizes, TheFirstOfLongLines) {
  for (const std::int64_t n : {100, 3000}) {
    const auto first = [&](Device device) {
      const Sorted rows = topk(crowded({2, n}, f32, device), 7, 1), columns = topk(crowded({n, 3}, f32, device), 7, 0);
      return Tensors{rows.values, rows.which, columns.values, columns.which};
    };
    expect_equal_devices(first, 0);
  }
}

TEST_F(CudaSizes, SortsShortAndLongSequencesInOneCall) {
  for (const std::int64_t width : {1, 2}) {
    const auto sequences = [&](Device device) {
      const Tensor x = crowded({11176, width}, f32, device);
      const RaggedSorted sorted = sort(Ragged::from_lengths(x, {0, 1, 3000, 0, 70, 2048, 2049, 0, 5, 4000, 3}));
      return Tensors{sorted.values.values(), sorted.which.values()};
    };
    expect_equal_devices(sequences, 0);
  }
}

// Lines of more than 8,192 elements are cut into pieces.
TEST_F(CudaSizes, ScansRunsTilesAndPieces) {
  for (const std::int64_t n : {1, 7, 8, 9, 64, 255, 2049, 16384, 20004})
    for (const bool reverse : {false, true})
      for (const bool exclusive : {false, true}) {
        SCOPED_TRACE(std::to_string(n) + (reverse ? " reversed" : "") + (exclusive ? " exclusive" : ""));
        const ScanOptions options{.reverse = reverse, .exclusive = exclusive};
        const auto scans = [&](Device device) {
          Tensors results;
          for (const DType dtype : {f32, f64})
            for (const auto& [shape, axis] : {std::pair{Shape{2, n}, 1}, std::pair{Shape{n, 3}, 0}}) {
              const Tensor x = normal(shape, dtype, device), near_one = 1 + x * 1e-3;
              results.push_back(cumsum(x, axis, options));
              results.push_back(cumprod(near_one, axis, options));
              results.push_back(linear_scan(x, 0.9 + x * 0.05, axis, options));
            }
          const Tensor integers = cast(normal({2, n}, f64, device) * 1e3, i64);
          results.push_back(cumsum(integers, 1, options));
          results.push_back(cumprod(integers, 1, options));
          return results;
        };
        expect_equal_devices(scans, 2e-6, n == 2049);
      }
}

TEST_F(CudaSizes, ScansSequences) {
  for (const std::int64_t width : {1, 3, 40}) {
    const auto scans = [&](Device device) {
      const Tensor x = normal({20100, width}, f64, device);
      const std::vector<std::int64_t> lengths = {0, 1, 2049, 0, 50, 18000};
      const Ragged r = Ragged::from_lengths(x, lengths), factor = Ragged::from_lengths(0.9 + x * 0.05, lengths);
      return Tensors{cumsum(r).values(),
                     cumprod(Ragged::from_lengths(1 + x * 1e-3, lengths), {.reverse = true}).values(),
                     linear_scan(r, factor).values()};
    };
    expect_equal_devices(scans, 1e-11);
  }
}

// In f32, whose gradients have kernels: of all results, and of a product alone.
TEST_F(CudaSizes, GradientsOfScansRunTilesAndPieces) {
  for (const std::int64_t n : {1, 7, 8, 9, 255, 2049, 20004})
    for (const bool reverse : {false, true})
      for (const bool exclusive : {false, true}) {
        SCOPED_TRACE(std::to_string(n) + (reverse ? " reversed" : "") + (exclusive ? " exclusive" : ""));
        const ScanOptions options{.reverse = reverse, .exclusive = exclusive};
        const auto gradients = [&](Device device) {
          Tensors results;
          for (const auto& [shape, axis] : {std::pair{Shape{2, n}, 1}, std::pair{Shape{n, 3}, 0}}) {
            const Tensor x = normal(shape, f32, device), factor = 0.9 + x * 0.05, near_one = 1 + x * 1e-3;
            Tape tape;
            for (const Tensor& input : {x, factor, near_one}) tape.watch(input);
            const Tensor y = linear_scan(x, factor, axis, options), z = cumprod(near_one, axis, options),
                         product = prod(near_one, axis);
            const auto add = [&](const Tensor& of, const Tensors& wanted) {
              for (const Tensor& dx : tape.gradient(of, normal(of.shape(), f32, device), wanted, {.keep = true}))
                results.push_back(dx);
            };
            add(y, {x, factor});
            add(y, {x});
            add(y, {factor});
            add(z, {near_one});
            add(product, {near_one});
          }
          return results;
        };
        expect_equal_devices(gradients, 2e-5, n == 2049);
      }
}

TEST_F(CudaSizes, GradientsOfScansRunSequences) {
  for (const std::int64_t width : {1, 3, 40}) {
    const auto gradients = [&](Device device) {
      const Tensor x = normal({10100, width}, f32, device), factor = 0.9 + x * 0.05, near_one = 1 + x * 1e-3;
      const auto in_sequences = [](const Tensor& t) { return Ragged::from_lengths(t, {0, 1, 2049, 0, 50, 8000}); };
      Tape tape;
      for (const Tensor& input : {x, factor, near_one}) tape.watch(input);
      const Tensor y = linear_scan(in_sequences(x), in_sequences(factor)).values(),
                   z = cumprod(in_sequences(near_one)).values(), product = prod(in_sequences(near_one));
      Tensors results = tape.gradient(y, normal(y.shape(), f32, device), {x, factor}, {.keep = true});
      for (const Tensor& of : {z, product})
        results.push_back(tape.gradient(of, normal(of.shape(), f32, device), {near_one}, {.keep = true})[0]);
      return results;
    };
    expect_equal_devices(gradients, 2e-5);
  }
}

// Whole packs, what is left beside them, and arrays that do not begin at a boundary, for elements of 1 to 8 bytes.
TEST_F(CudaSizes, ElementwiseOverPacksAndWhatIsLeft) {
  for (const std::int64_t n : {1, 3, 4, 5, 255, 511, 512, 513, 1023, 1024, 1025, 1027, 4099, 9001}) {
    SCOPED_TRACE(n);
    const auto map = [&](Device device) {
      Tensors results;
      for (const DType dtype : {f32, f64, i32, i64, u8, bool8}) {
        const Tensor x = normal({n}, dtype, device), y = normal({n}, dtype, device, 4);
        const Tensor later = slice(x, 0, 1, n), also = slice(y, 0, 0, n - 1);
        for (const auto& [a, b] : {std::pair{x, y}, std::pair{later, also}}) {
          results.push_back(a + b);
          results.push_back(a * 3);
          results.push_back(a < b);
        }
        results.push_back(full({n}, 3, {.dtype = dtype, .device = device}));
        if (dtype != f32 && dtype != f64) continue;
        results.push_back(abs(later));
        Tape tape;
        tape.watch(x);
        results.push_back(tape.gradient(relu(x), y, {x})[0]);
      }
      return results;
    };
    expect_equal_devices(map, 0, n < 600);
  }
}

// Rows and columns that meet a matrix: in packs where the rows are made of such, and where they are not.
TEST_F(CudaSizes, RowsAndColumnsMeetMatrices) {
  for (const std::int64_t n : {1, 7, 8, 16, 64, 1024, 1030})
    for (const DType dtype : {f32, f64, u8}) {
      const auto meet = [&](Device device) {
        const Tensor x = normal({3, 5, n}, dtype, device), wide = normal({3, 5, n + 16}, dtype, device);
        const Tensor row = normal({n}, dtype, device, 4), column = normal({5, 1}, dtype, device, 5);
        const Tensor page = normal({3, 1, n}, dtype, device, 6), part = slice(wide, 2, 16, n + 16);
        return Tensors{x + row,
                       column - x,
                       page * x,
                       x < row,
                       x + part,
                       slice(wide, 2, 1, n + 1) - part,
                       part * row,
                       column + page,
                       reshape(expand(row, {3, 5, n}), {15 * n}),
                       reshape(part, {15 * n}),
                       cast(part, f64),
                       cast(part, bool8)};
      };
      expect_equal_devices(meet, 0, n < 100);
    }
}

// Tiles have 32 or 64 rows and columns.
TEST_F(CudaSizes, TurnsMatricesOnTheWay) {
  for (const auto& [rows, cols] :
       {std::pair{8, 8}, std::pair{9, 70}, std::pair{64, 64}, std::pair{130, 33}, std::pair{600, 9}})
    for (const DType dtype : {f32, f64, u8}) {
      const auto turn = [&, rows = rows, cols = cols](Device device) {
        const Tensor x = normal({2, rows, cols}, dtype, device), y = normal({2, cols, rows}, dtype, device, 4);
        const Tensor row = normal({rows, 1}, dtype, device, 5), swapped = transpose(y, 1, 2);
        const Tensor outer = transpose(normal({rows, 2, cols}, dtype, device, 6), 0, 1);
        return Tensors{x - swapped,
                       swapped - x,
                       swapped * swapped,
                       swapped + row,
                       swapped < 1,
                       outer - swapped,
                       reshape(swapped, {2 * rows * cols}),
                       transpose(x, 0, 2) - transpose(transpose(y, 0, 1), 1, 2)};
      };
      expect_equal_devices(turn, 0, rows * cols < 1000);
    }
}

TEST_F(CudaSizes, GatesOverPacksAndElements) {
  for (const std::int64_t n : {1, 3, 4, 8, 500, 1028}) {
    const auto gate = [&](Device device) {
      Tensors results;
      for (const DType dtype : {f32, f64}) {
        const Tensor x = normal({3, 2 * n}, dtype, device);
        Tape tape;
        tape.watch(x);
        for (const Tensor& y : {glu(x), geglu(x), swiglu(x)}) {
          results.push_back(y);
          results.push_back(tape.gradient(y, normal({3, n}, dtype, device, 4), {x})[0]);
        }
      }
      return results;
    };
    expect_equal_devices(gate, 3e-6, n < 600);
  }
}

// Ranges that begin and end beside boundaries, more of them than one launch takes, and what a step must leave alone.
TEST_F(CudaSizes, OptimizersOverRangesOfAnySize) {
  const std::int64_t ends[] = {1, 2, 3, 7, 8, 12, 13, 600, 601, 602, 3000};
  const auto step = [&](Device device) {
    Tensors results;
    for (const DType dtype : {f32, f64}) {
      const Tensor g = normal({3003}, dtype, device);
      std::vector<SgdRange> sgd;
      std::vector<AdamRange> adam;
      std::vector<RmspropRange> rmsprop;
      std::vector<AdagradRange> adagrad;
      for (std::int64_t begin = 1, i = 0; begin < 3000; begin = ends[i++]) {
        const bool odd = i % 2 == 1;
        const std::int64_t end = ends[i];
        const double decay = i % 3 == 0 ? 0.1 : 0;
        const double scale = i % 4 == 0 ? 0.3 : 1;
        sgd.push_back({begin, end, 0.1, decay, odd ? 0.9 : 0, 0.1, i % 3 == 1, i % 5 == 1, scale});
        adam.push_back({begin, end, 0.1, 0.1, 0.9, 0.9, 0.999, 1e-8, decay, odd, i % 4 != 1, scale});
        rmsprop.push_back({begin, end, 0.1, 0.9, 1e-8, decay, odd ? 0.9 : 0, i % 3 == 0, scale});
        adagrad.push_back({begin, end, 0.1, 1e-10, decay, scale});
      }
      const auto buffers = [&](std::int64_t first) {
        Tensors made;
        for (std::uint64_t k = 0; k < 4; ++k) {
          const Tensor x = normal({3004}, dtype, device, 10 + k);
          made.push_back(slice(k == 0 ? x + 0 : x * x, 0, first, 3003 + first));
        }
        for (const Tensor& x : made) results.push_back(x);
        return made;
      };
      Ops& ops = backend(device);
      const std::int64_t count = std::ssize(sgd);
      for (const std::int64_t first : {0, 1}) {
        const Tensors a = buffers(first), b = buffers(first), c = buffers(first), d = buffers(first);
        ops.sgd(sgd.data(), count, a[0].array(), g.array(), &a[1].array());
        ops.adam(adam.data(), count, b[0].array(), g.array(), b[1].array(), b[2].array());
        ops.rmsprop(rmsprop.data(), count, c[0].array(), g.array(), c[1].array(), &c[2].array(), &c[3].array());
        ops.adagrad(adagrad.data(), count, d[0].array(), g.array(), d[1].array());
        ops.ema(g.array(), 0.9, d[2].array());
        const Tensors averages = buffers(first);
        const Tensors w = buffers(first), more = buffers(first);
        const auto taken_along = [&](std::size_t k) { return WeightAverage{averages[k].array(), 0.9}; };
        const WeightAverage sgd_average = taken_along(0), adam_average = taken_along(1),
                            rmsprop_average = taken_along(2), adagrad_average = taken_along(3);
        ops.sgd(sgd.data(), count, w[0].array(), g.array(), &more[1].array(), &sgd_average);
        ops.adam(adam.data(), count, w[1].array(), g.array(), more[2].array(), more[3].array(), &adam_average);
        ops.rmsprop(rmsprop.data(), count, w[2].array(), g.array(), more[3].array(), &more[2].array(), &more[1].array(),
                    &rmsprop_average);
        ops.adagrad(adagrad.data(), count, w[3].array(), g.array(), more[3].array(), &adagrad_average);
      }
    }
    return results;
  };
  expect_equal_devices(step, 1e-5);
}

// Moments of weights whose gradients stay 0.
TEST_F(CudaSizes, WhatOptimizersLetDecayEndsAtZero) {
  for (const DType dtype : {f32, f64}) {
    const double smallest = dtype == f32 ? 0x1p-126 : 0x1p-1022;
    const Tensor zero = zeros({1003}, {.dtype = dtype, .device = Device::cuda()});
    const auto moments = [&] { return full({1003}, 3 * smallest, {.dtype = dtype, .device = Device::cuda()}); };
    const Tensor w = zero + 1, nothing = zero + 0, velocity = moments(), mean = moments(), square = moments(),
                 average = moments(), taken_along = moments();
    const Tensors rmsprop{moments(), moments(), moments()};
    const SgdRange sgd{.begin = 0, .end = 1003, .rate = 0.1, .momentum = 0.5};
    const AdamRange adam{.begin = 0, .end = 1003, .rate = 0.1, .beta1 = 0.5, .beta2 = 0.5};
    const RmspropRange centered{
        .begin = 0, .end = 1003, .rate = 0.1, .alpha = 0.5, .epsilon = 1e-8, .momentum = 0.5, .centered = true};
    const WeightAverage ema{taken_along.array(), 0.5};
    Ops& ops = backend(Device::cuda());
    for (int step = 0; step < 3; ++step) {
      ops.sgd(&sgd, 1, nothing.array(), zero.array(), &velocity.array(), &ema);
      ops.adam(&adam, 1, w.array(), zero.array(), mean.array(), square.array());
      ops.rmsprop(&centered, 1, w.array(), zero.array(), rmsprop[0].array(), &rmsprop[1].array(), &rmsprop[2].array());
      ops.ema(zero.array(), 0.5, average.array());
    }
    for (const Tensor& x : {velocity, mean, square, average, taken_along, rmsprop[0], rmsprop[1], rmsprop[2]})
      for (const double number : x.to_vector<double>()) ASSERT_EQ(number, 0);
  }
}

// Ranges that begin anywhere, more of them than one launch takes, empty ones and some of several blocks.
TEST_F(CudaSizes, SumsOfSquaresOfRangesOfAnySize) {
  std::vector<FlatRange> ranges;
  std::int64_t end = 1;
  const auto add = [&](std::int64_t size) {
    ranges.push_back({end, end + size});
    end += size + size % 3;
  };
  for (std::int64_t i = 0; i < 70; ++i) add(i % 20);
  for (const std::int64_t size : {8191, 8192, 8193, 0, 30000, 1, 0}) add(size);
  const auto sum = [&](Device device) {
    Tensors results;
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const Tensor x = normal({end}, dtype, device);
      std::vector<double> sums(ranges.size(), -1);
      backend(device).sums_of_squares(ranges.data(), std::ssize(ranges), x.array(), sums.data());
      results.push_back(to(from_vector(sums), device));
      // A range that lies elsewhere: the same bits.
      const FlatRange last{0, 30000};
      const Tensor moved = empty({30000}, {.dtype = dtype, .device = device});
      backend(device).copy(slice(x, 0, ranges[74].begin, ranges[74].end).array(), moved.array());
      double alone = -1;
      backend(device).sums_of_squares(&last, 1, moved.array(), &alone);
      EXPECT_EQ(alone, sums[74]);
      backend(device).sums_of_squares(nullptr, 0, x.array(), nullptr);
    }
    return results;
  };
  expect_equal_devices(sum, 1e-14);
}

TEST_F(CudaSizes, FindsWhatAMaskSets) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 100000})
    for (const double level : {-9.0, 0.0, 2.5, 9.0}) {
      SCOPED_TRACE(n);
      const auto select = [&](Device device) {
        const Tensor x = normal({n + 1}, f64, device), mask = x > level;
        // The second mask does not begin at a boundary.
        return Tensors{masked_select(x, mask), masked_select(slice(x, 0, 1, n + 1), slice(mask, 0, 1, n + 1))};
      };
      expect_equal_devices(select, 0, n <= 4097);
    }
}

// Every table row of a few receives thousands; of many, few; and one receives nearly all.
TEST_F(CudaSizes, AddsToRowsOfShortAndLongRuns) {
  for (const std::int64_t rows : {1, 7, 40, 5000})
    for (const std::int64_t n : {1, 128, 129, 5000}) {
      SCOPED_TRACE(std::to_string(n) + " to " + std::to_string(rows));
      const auto add = [&](Device device) {
        const Tensor spread = normal({n}, f64, device, 9);
        const Tensor index = indices(spread, rows);
        const Tensor table = normal({rows, 3}, f64, device), line = normal({rows}, f64, device);
        Tape tape;
        tape.watch(table);
        const Tensor taken = embedding(table, index);
        const Tensor gradient = tape.gradient(taken, normal({n, 3}, f64, device, 8), {table})[0];
        return Tensors{gradient, scatter_add(line, 0, index, spread)};
      };
      expect_equal_devices(add, 1e-13, n == 129);
    }
}

TEST_F(CudaSizes, AddsAlongAnAxis) {
  for (const auto& [shape, axis] :
       {std::pair{Shape{3, 200}, 1}, std::pair{Shape{200, 3}, 0}, std::pair{Shape{3000, 40}, 1},
        std::pair{Shape{20, 90, 30}, 1}, std::pair{Shape{4, 8}, 1}}) {
    SCOPED_TRACE(shape.str());
    const auto add = [&, shape = shape, axis = axis](Device device) {
      const Tensor x = normal(shape, f64, device), source = normal(shape, f64, device, 4);
      const Tensor index = indices(source, shape[axis]);
      return Tensors{scatter_add(x, axis, index, source), gather(x, axis, index)};
    };
    expect_equal_devices(add, 1e-13);
  }
}

TEST_F(CudaSizes, SparseRowsOfAnyLength) {
  for (const std::int64_t width : {1, 33, 600}) {
    const auto bags = [&](Device device) {
      const std::vector<std::int64_t> lengths = {0, 1, 700, 0, 33};
      const Tensor table = normal({50, width}, f64, device), spread = normal({734}, f64, device, 9);
      const Ragged index = Ragged::from_lengths(indices(spread, 50), lengths);
      Tape tape;
      tape.watch(table);
      tape.watch(spread);
      const Ragged weights = Ragged::from_lengths(spread, lengths);
      const Tensor y = embedding_bag(table, index, weights, Bag::mean);
      const Tensors gradients = tape.gradient(y, normal({5, width}, f64, device, 8), {table, spread});
      return Tensors{y, gradients[0], gradients[1]};
    };
    expect_equal_devices(bags, 1e-12);
  }
}

TEST_F(CudaSizes, WindowsAcrossManySegments) {
  for (const std::int64_t width : {1, 4, 64}) {
    const auto windows = [&](Device device) {
      const Tensor x = normal({2000, width}, f32, device);
      std::vector<std::int64_t> lengths;
      for (std::int64_t total = 0, i = 0; total < 2000; ++i) {
        lengths.push_back(std::min<std::int64_t>(i * i % 37, 2000 - total));
        total += lengths.back();
      }
      Tape tape;
      tape.watch(x);
      const Tensor y = seq2col(Ragged::from_lengths(x, lengths), 2).values();
      return Tensors{y, tape.gradient(y, normal(y.shape(), f32, device, 8), {x})[0]};
    };
    expect_equal_devices(windows, 1e-6);
  }
}

}  // namespace
}  // namespace reel
