#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/scalar/philox.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kBlocks =
    64;                        // Philox blocks at a time, at most: lane by lane, so that loops over them are vectorised
constexpr int64_t kStep = 16;  // blocks are made in multiples of this

struct Lanes {
  std::uint32_t lane[4][kBlocks];
};

void generate(const PhiloxState& state, std::uint64_t first, int64_t blocks, Lanes& lanes) {
  const std::uint64_t seed = state.seed, stream = state.stream, counter = state.counter + first;
#pragma omp simd
  for (int64_t j = 0; j < blocks; ++j) {
    const scalar::PhiloxBlock block = scalar::philox(seed, stream, counter + static_cast<std::uint64_t>(j));
    lanes.lane[0][j] = block.lane[0];
    lanes.lane[1][j] = block.lane[1];
    lanes.lane[2][j] = block.lane[2];
    lanes.lane[3][j] = block.lane[3];
  }
}

// The numbers of `blocks` blocks, for each kind.

struct UniformFloat {
  using Element = float;
  static constexpr int64_t kPerBlock = 4;
  REEL_INLINE static void write(const Lanes& lanes, int64_t blocks, float* y) {
#pragma omp simd
    for (int64_t j = 0; j < blocks; ++j) {
      for (int k = 0; k < 4; ++k) y[4 * j + k] = scalar::uniform_float(lanes.lane[k][j]);
    }
  }
};

struct UniformDouble {
  using Element = double;
  static constexpr int64_t kPerBlock = 2;
  REEL_INLINE static void write(const Lanes& lanes, int64_t blocks, double* y) {
#pragma omp simd
    for (int64_t j = 0; j < blocks; ++j) {
      y[2 * j] = scalar::uniform_double(lanes.lane[0][j], lanes.lane[1][j]);
      y[2 * j + 1] = scalar::uniform_double(lanes.lane[2][j], lanes.lane[3][j]);
    }
  }
};

struct NormalFloat {
  using Element = float;
  static constexpr int64_t kPerBlock = 4;
  REEL_INLINE static void write(const Lanes& lanes, int64_t blocks, float* y) {
    for (int half = 0; half < 2; ++half) {
#pragma omp simd
      for (int64_t j = 0; j < blocks; ++j) {
        const auto pair = scalar::normal_pair(lanes.lane[2 * half][j], lanes.lane[2 * half + 1][j]);
        y[4 * j + 2 * half] = pair.first;
        y[4 * j + 2 * half + 1] = pair.second;
      }
    }
  }
};

struct NormalDouble {
  using Element = double;
  static constexpr int64_t kPerBlock = 2;
  REEL_INLINE static void write(const Lanes& lanes, int64_t blocks, double* y) {
#pragma omp simd
    for (int64_t j = 0; j < blocks; ++j) {
      const scalar::PhiloxBlock block = {{lanes.lane[0][j], lanes.lane[1][j], lanes.lane[2][j], lanes.lane[3][j]}};
      const auto pair = scalar::normal_pair(block);
      y[2 * j] = pair.first;
      y[2 * j + 1] = pair.second;
    }
  }
};

template <class Kind>
void fill_random(const Array& y, const PhiloxState& state) {
  using Element = typename Kind::Element;
  constexpr int64_t kBatch = kBlocks * Kind::kPerBlock;
  Element* data = y.as<Element>();
  parallel_for(ceil_div(y.size, kBatch), max<int64_t>(1, kGrain / (8 * kBatch)), [&](int64_t begin, int64_t end) {
    Lanes lanes;
    for (int64_t batch = begin; batch < end; ++batch) {
      const int64_t first = batch * kBatch, count = min(kBatch, y.size - first);
      const int64_t blocks = ceil_div(ceil_div(count, Kind::kPerBlock), kStep) * kStep;
      generate(state, static_cast<std::uint64_t>(batch * kBlocks), blocks, lanes);
      if (count == kBatch) {
        Kind::write(lanes, kBlocks, data + first);
      } else {
        Element last[kBatch];
        Kind::write(lanes, blocks, last);
        __builtin_memcpy(data + first, last, static_cast<std::size_t>(count) * sizeof(Element));
      }
    }
  });
}

}  // namespace

void CpuOps::random(RandomOp op, const Array& y, const PhiloxState& state) {
  const bool f64 = y.dtype == DType::f64;
  switch (op) {
    case RandomOp::uniform:
      return f64 ? fill_random<UniformDouble>(y, state) : fill_random<UniformFloat>(y, state);
    case RandomOp::normal:
      return f64 ? fill_random<NormalDouble>(y, state) : fill_random<NormalFloat>(y, state);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
