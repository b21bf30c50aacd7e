#pragma once

#include "reel/backends/cuda/conv.h"
#include "reel/backends/cuda/nest.h"

// How blocks share the work of a convolution's gradients by weight and bias: see conv_weight_tiles.cu.

namespace reel::cuda {

/// The weights of which one thread keeps the sums: of `out` output and `in` input channels, `rows` x `cols` taps; and `out`
/// biases.
template <int out_, int in_, int rows_, int cols_>
struct Micro {
  static constexpr int out = out_, in = in_, rows = rows_, cols = cols_, taps = rows * cols;
  static constexpr int weights = out * in * taps, sums = weights + out;
};

/// A block keeps a tile of the weights: out_threads x in_threads threads' micro-tiles, `lanes` times, of which each takes
/// every lanes-th run of four neighbouring pixels. It walks over chunks of rows x cols output pixels, with what they see of x.
struct WeightTiling {
  static constexpr int kThreadsLog = 7, kThreads = 1 << kThreadsLog;
  static constexpr int kRun = 4;  // pixels that a thread takes at a time
  static constexpr int kProcessors =
      132;  // to fill with blocks: of a large GPU, as the sums' order is to depend on sizes only
  static constexpr int kChain = 1024;               // pixels added in one chain, at most
  static constexpr std::size_t kShared = 48 << 10;  // bytes

  Geometry g;
  bool bias, dense, packs, direct;
  int out_threads, in_threads, lanes;
  int micro_out, micro_in, micro_rows, micro_cols;
  int out_tiles, in_tiles, row_slices, col_slices;  // of the weights
  int rows, cols, col_shift, pixel_shift;           // a chunk: powers of two
  int row_tiles, col_tiles;                         // of an output plane
  int chunks, splits, flush;                        // chunks from sum to sum of a chain
  int chunks_of_split, chunks_left;                 // the first `left` splits have one more
  int first_tile = 0;                               // of a launch: a grid does not have more than 65,535 across
  int x_rows, x_cols, x_pitch, x_plane, z_pitch;    // in shared memory
  int x_shift;                                      // 2^x_shift threads load a channel
  Divisor x_row;
  int inputs, outputs;  // elements of a channel

  explicit WeightTiling(const Geometry& geometry)
      : g(geometry), inputs(geometry.inputs()), outputs(geometry.outputs()) {}
  __host__ __device__ int out_channels() const { return micro_out * out_threads; }
  __host__ __device__ int in_channels() const { return micro_in * in_threads; }
  __host__ __device__ int threads_of_tile() const { return out_threads * in_threads; }
  __host__ __device__ int slices() const { return g.kernel[0] * row_slices * col_slices; }
  __host__ __device__ int tiles() const { return g.groups * slices() * out_tiles * in_tiles; }
  __host__ __device__ int pixels() const { return rows * cols; }
  __host__ __device__ int sums() const { return micro_out * (micro_in * micro_rows * micro_cols + 1); }
  /// Of a tile's results.
  __host__ __device__ int results() const { return sums() * threads_of_tile(); }
  /// From one sum of all threads to the next where lanes are joined: neighbouring results lie in different banks.
  __host__ __device__ int join_pitch() const { return kThreads + threads_of_tile() % device::kWarp; }
  std::size_t shared_bytes(std::size_t element_bytes) const;

  /// Chooses all that a micro-tile leaves open; false where no chunk fits into shared memory.
  bool plan(std::size_t element_bytes, int wanted_blocks);

 private:
  void cut(int wanted_pixels);
};

/// dweight and dbias (or null) of any convolution of which a chunk fits into shared memory; false, with nothing done, otherwise.
bool conv_backward_weight_tiles(const Context& context, const Geometry& g, const Array& x, const Array& dy,
                                const Array* relu_output, const Array& dweight, const Array* dbias);

}  // namespace reel::cuda
