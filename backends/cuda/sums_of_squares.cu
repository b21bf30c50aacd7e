// The sums of squares of a flat buffer's ranges: blocks add up pieces in double, and the host, which waits for the results
// anyway, adds up these.

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/kernel.h"
#include "reel/core/scratch.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kSquares = 8192;     // of a piece
inline constexpr int kSquareRanges = 64;  // per launch
inline constexpr int kSquarePacks = 4;    // of a thread, on their way at a time

/// A range, whose pieces begin with number `piece` of the launch.
struct SquareRange {
  int64_t begin, end, piece;
};
struct SquareRanges {
  SquareRange range[kSquareRanges];
  int count;
};

/// A block takes a piece, its threads neighbouring packs. The order is the same where a piece begins at no boundary of packs.
template <class T>
__global__ void sums_of_squares(const T* x, const __grid_constant__ SquareRanges ranges, double* sums) {
  REEL_DYNAMIC_SHARED(double, scratch);
  constexpr int run = kPack<T>;
  int r = 0;
  while (r + 1 < ranges.count && ranges.range[r + 1].piece <= blockIdx.x) ++r;
  const int64_t begin = ranges.range[r].begin + (blockIdx.x - ranges.range[r].piece) * kSquares;
  const int n = static_cast<int>(smaller<int64_t>(kSquares, ranges.range[r].end - begin)), packs = n / run;
  x += begin;
  const bool packed = reinterpret_cast<std::uintptr_t>(x) % kPackBytes == 0;
  double sum[kSquarePacks] = {};
  const auto add = [](double& to, T element) {
    const auto wide = convert<double>(element);
    to += wide * wide;
  };
  for (int i = threadIdx.x; i < packs; i += kSquarePacks * kThreads) {
    Pack<T> v[kSquarePacks];
    REEL_UNROLL
    for (int k = 0; k < kSquarePacks; ++k) {
      const int at = (i + k * kThreads) * run;
      if (at + run > n) continue;
      if (packed) {
        v[k] = load_pack<T, run>(x + at);
      } else {
        REEL_UNROLL
        for (int j = 0; j < run; ++j) v[k].v[j] = x[at + j];
      }
    }
    REEL_UNROLL
    for (int k = 0; k < kSquarePacks; ++k) {
      if ((i + k * kThreads) * run + run > n) continue;
      REEL_UNROLL
      for (int j = 0; j < run; ++j) add(sum[k], v[k].v[j]);
    }
  }
  const int rest = packs * run + static_cast<int>(threadIdx.x);
  if (rest < n) add(sum[0], x[rest]);
  const double all =
      join_block((sum[0] + sum[1]) + (sum[2] + sum[3]), scratch, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

}  // namespace
}  // namespace device

namespace {

int64_t pieces_of(const FlatRange& range) { return ceil_div(range.end - range.begin, device::kSquares); }

/// The sums of the ranges' pieces, in their order.
template <class T>
void sums_of_pieces(const Context& context, const FlatRange* ranges, int64_t count, const T* x, double* sums) {
  for (int64_t first = 0; first < count; first += device::kSquareRanges) {
    device::SquareRanges some = {};
    Grid grid{.blocks = 0, .threads = kThreads, .shared_bytes = sizeof(double) * kThreads / device::kWarp};
    for (int64_t i = first; i < count && some.count < device::kSquareRanges; ++i) {
      some.range[some.count++] = {ranges[i].begin, ranges[i].end, grid.blocks};
      grid.blocks += pieces_of(ranges[i]);
    }
    launch(context, "sums_of_squares", grid, &device::sums_of_squares<T>, x, some, sums);
    sums += grid.blocks;
  }
}

}  // namespace

void CudaOps::sums_of_squares(const FlatRange* ranges, std::int64_t count, const Array& x, double* sums) {
  int64_t pieces = 0;
  for (int64_t i = 0; i < count; ++i) pieces += pieces_of(ranges[i]);
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(pieces);
  const Workspace memory(context_.memory(), bytes);
  const auto launch_for = [&]<class T>() { sums_of_pieces(context_, ranges, count, x.as<T>(), memory.as<double>()); };
  if (is_half(x.dtype)) dispatch_half(x.dtype, launch_for);
  else dispatch_floating(x.dtype, launch_for);
  const Scratch host(bytes);
  double* parts = host.as<double>();
  if (pieces > 0) context_.to_host(memory.as<double>(), parts, static_cast<int64_t>(bytes));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = pieces_of(ranges[i]);
    for (int64_t step = 1; step < own; step *= 2)
      for (int64_t k = 0; k + step < own; k += 2 * step) parts[k] += parts[k + step];
    sums[i] = own > 0 ? parts[0] : 0;
    parts += own;
  }
}

}  // namespace reel::cuda
