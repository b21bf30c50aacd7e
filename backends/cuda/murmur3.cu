// Hashes of rows of integers: a thread per row. Results begin at a 16-byte boundary, as all memory that is allocated.

#include "reel/core/scalar/murmur3.h"

#include "reel/backends/cuda/kernel.h"

namespace reel::cuda {

namespace device {
namespace {

__global__ void murmur3(const int64_t* keys, uint32_t seed, int64_t* y, int64_t rows, int64_t words) {
  for (int64_t i = first_unit(); i < rows; i += unit_step()) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(keys + i * words);
    const scalar::Murmur3Hash hash = scalar::murmur3(bytes, words * 8, seed);
    REEL_UNROLL
    for (int k = 0; k < 4; k += 2)
      store_pack(y + 4 * i + k, Pack<int64_t>{{int64_t{hash.lane(k)}, int64_t{hash.lane(k + 1)}}});
  }
}

}  // namespace
}  // namespace device

void CudaOps::murmur3(const Array& keys, std::uint32_t seed, const Array& y) {
  launch(context_, "murmur3", grid_for(context_, y.shape[0]), &device::murmur3, keys.as<int64_t>(), seed,
         y.as<int64_t>(), y.shape[0], keys.shape[1]);
}

}  // namespace reel::cuda
