// What a GPU does at best, by CUDA's runtime alone: a copy within its memory, and the launch of a kernel that does nothing. A
// side of scripts/gpu-bench.

#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>

#include "rows.h"

namespace bench {

namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

struct Block {
  void* data = nullptr;
  explicit Block(std::size_t bytes) { check(cudaMalloc(&data, bytes)); }
  ~Block() { cudaFree(data); }
};

__global__ void nothing() {}

Work copy(std::size_t bytes) {
  auto from = std::make_shared<Block>(bytes), to = std::make_shared<Block>(bytes);
  check(cudaMemset(from->data, 1, bytes));
  Work work{[=](std::int64_t n) {
              for (std::int64_t i = 0; i < n; ++i)
                check(cudaMemcpyAsync(to->data, from->data, bytes, cudaMemcpyDeviceToDevice));
              check(cudaDeviceSynchronize());
            },
            [] { return Digest(); }};
  work.bytes = 2.0 * static_cast<double>(bytes);
  return work;
}

Work launch() {
  return {[](std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i) nothing<<<1, 32>>>();
            check(cudaGetLastError());
            check(cudaDeviceSynchronize());
          },
          [] { return Digest(); }};
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const std::vector<Row> rows = {{"limit_copy", 0, [] { return copy(4 * kLarge); }}, {"limit_launch", 0, launch}};
  return serve(argc, argv, rows, [](int) {});
}
