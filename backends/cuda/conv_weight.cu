// Gradients of a correlation's weight and bias: by tiles in shared memory (conv_weight_tiles.cu) wherever a stride or
// dilation is not so large that they do not fit. Here is what remains for those. A block sums one pair of channels over
// images and positions, a few taps at a time; the sum is cut into pieces by size where there are few pairs, and the pieces'
// results are summed. No atomics.

#include "reel/backends/cuda/conv_weight_tiles.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kTaps = 4;

/// dweight [pieces, out, in / groups, taps]; blockIdx.x: channel pair and group of taps, blockIdx.y: piece. The sum runs over
/// image * outputs + position.
template <class T>
__global__ void conv_backward_weight(const __grid_constant__ Geometry g, const T* x, const T* dy, const T* relu_output,
                                     T* dweight, int64_t piece) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int taps = g.taps(), tap_groups = (taps + kTaps - 1) / kTaps, in = g.in_group();
  const int first_tap = blockIdx.x % tap_groups * kTaps, some = smaller(kTaps, taps - first_tap);
  const int64_t pair = blockIdx.x / tap_groups;
  const int oc = static_cast<int>(pair / in), ic = static_cast<int>(pair % in);
  const int plane = oc / g.out_group() * in + ic;  // of all input channels
  const int outputs = g.outputs();
  const int64_t total = static_cast<int64_t>(g.batch) * outputs;
  const int64_t begin = blockIdx.y * piece, end = smaller(begin + piece, total);
  T sum[kTaps] = {};
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const int64_t image = i / outputs;
    const int position = static_cast<int>(i - image * outputs);
    const T dz = masked(g, dy, relu_output, image, static_cast<int64_t>(oc) * outputs + position);
    const T* const from = x + image * g.x_image + static_cast<int64_t>(plane) * g.inputs();
    const Reach own = reach_of_output(g, Position(position, g.output));
    REEL_UNROLL
    for (int k = 0; k < kTaps; ++k) {
      if (k >= some) continue;
      const int at = input_of(g, own, reach_of_tap(g, Position(first_tap + k, g.kernel)));
      if (at >= 0) sum[k] = scalar::fma(dz, from[at], sum[k]);
    }
  }
  REEL_UNROLL
  for (int k = 0; k < kTaps; ++k) {
    const T total_sum = join_block(sum[k], scratch, [](T a, T b) { return a + b; });
    if (threadIdx.x == 0 && k < some)
      dweight[((static_cast<int64_t>(blockIdx.y) * g.out + oc) * in + ic) * taps + first_tap + k] = total_sum;
  }
}

/// dbias [pieces, out]; blockIdx.x: channel, blockIdx.y: piece.
template <class T>
__global__ void conv_backward_bias(const __grid_constant__ Geometry g, const T* dy, const T* relu_output, T* dbias,
                                   int64_t piece) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int outputs = g.outputs();
  const int64_t total = static_cast<int64_t>(g.batch) * outputs;
  const int64_t begin = blockIdx.y * piece, end = smaller(begin + piece, total);
  T sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const int64_t image = i / outputs;
    sum += masked(g, dy, relu_output, image, static_cast<int64_t>(blockIdx.x) * outputs + (i - image * outputs));
  }
  sum = join_block(sum, scratch, [](T a, T b) { return a + b; });
  if (threadIdx.x == 0) dbias[static_cast<int64_t>(blockIdx.y) * g.out + blockIdx.x] = sum;
}

}  // namespace
}  // namespace device

void CudaOps::conv_backward_weight(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                                   const Array& dweight, const Array* dbias) {
  const Geometry g(conv, x, dy, relu_output);
  if (conv_backward_weight_tiles(context_, g, x, dy, relu_output, dweight, dbias)) return;
  const int64_t total = int64_t{g.batch} * g.outputs();
  // Sums `make(target, grid, piece)` over its pieces into y.
  const auto in_pieces = [&]<class T>(const Array& y, int64_t blocks, auto make) {
    if (y.size == 0) return;
    const int64_t wanted = ceil_div(int64_t{context_.processors()} * 8, blocks), room = ceil_div(total, 2048);
    const int64_t most = wanted < room ? wanted : room;
    const int64_t piece = most > 1 ? ceil_div(total, most) : (total > 0 ? total : 1);
    const int64_t pieces = total > 0 ? ceil_div(total, piece) : 1;
    const Grid grid{.blocks = blocks, .y = pieces, .shared_bytes = sizeof(T) * kThreads / device::kWarp};
    if (pieces == 1) return make(y.as<T>(), grid, piece);
    const Workspace partial(context_.memory(), sizeof(T) * static_cast<std::size_t>(pieces * y.size));
    make(partial.as<T>(), grid, piece);
    reduce(ReduceOp::sum, matrix_of(partial.as<T>(), pieces, y.size, y.size, y),
           matrix_of(y.data, 1, y.size, y.size, y), nullptr);
  };
  dispatch_floating(dweight.dtype, [&]<class T>() {
    const T* const y = data_of<T>(relu_output);
    const int64_t blocks = int64_t{g.out} * g.in_group() * ceil_div(g.taps(), device::kTaps);
    in_pieces.template operator()<T>(dweight, blocks, [&](T* to, const Grid& grid, int64_t piece) {
      launch(context_, "conv_backward_weight", grid, &device::conv_backward_weight<T>, g, x.as<T>(), dy.as<T>(), y, to,
             piece);
    });
    if (dbias == nullptr) return;
    in_pieces.template operator()<T>(*dbias, g.out, [&](T* to, const Grid& grid, int64_t piece) {
      launch(context_, "conv_backward_weight", grid, &device::conv_backward_bias<T>, g, dy.as<T>(), y, to, piece);
    });
  });
}

}  // namespace reel::cuda
