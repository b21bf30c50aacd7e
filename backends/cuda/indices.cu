// Bad indices are found on the device, without making the host wait: the first fault is kept in the device word and thrown
// when the host next waits for the GPU. Kernels that use indices leave out the bad ones. A fault goes along with what is copied
// to another GPU.

#include "reel/backends/cuda/kernel.h"

namespace reel::cuda {

namespace device {
namespace {

/// Keeps the earliest fault: of the lowest check, there at the lowest position.
__device__ void report(Fault* fault, std::uint64_t serial, int64_t position, int64_t value) {
  while (atomicCAS(&fault->lock, 0u, 1u) != 0) {
  }
  __threadfence();
  volatile Fault* word = fault;
  if (word->serial == 0 || (word->serial == serial && position < word->position)) {
    word->serial = serial;
    word->position = position;
    word->value = value;
  }
  __threadfence();
  atomicExch(&fault->lock, 0u);
}

/// One index per thread and step; a block reports the first bad one of all that it saw.
template <class Index>
__global__ void check_indices(const Index* index, int64_t count, int64_t limit, bool some, int64_t exempt,
                              std::uint64_t serial, Fault* fault) {
  REEL_DYNAMIC_SHARED(int64_t, scratch);
  int64_t first = count;
  for (int64_t i = first_unit(); i < count && first == count; i += unit_step()) {
    if ((index[i] < 0 || index[i] >= limit) && !(some && index[i] == exempt)) first = i;
  }
  if (!__syncthreads_or(first < count)) return;
  first = join_block(first, scratch, [](int64_t a, int64_t b) { return smaller(a, b); });
  if (threadIdx.x == 0) report(fault, serial, first, index[first]);
}

/// The grid's first thread.
__global__ void join_fault(const Fault* incoming, Fault* fault) {
  if (threadIdx.x == 0 && incoming->serial != 0) report(fault, incoming->serial, incoming->position, incoming->value);
}

/// The grid's first thread.
__global__ void forget_fault(std::uint64_t serial, Fault* fault) {
  if (threadIdx.x == 0 && fault->serial == serial) fault->serial = 0;
}

}  // namespace
}  // namespace device

void join_fault(const Context& context, const Fault* incoming) {
  launch(context, "join_fault", {.threads = device::kWarp}, &device::join_fault, incoming, context.fault());
}

void forget_fault(const Context& context, std::uint64_t serial) {
  launch(context, "forget_fault", {.threads = device::kWarp}, &device::forget_fault, serial, context.fault());
}

void CudaOps::check_indices(const Array& index, std::int64_t limit, const std::int64_t* exempt, const char* op,
                            SourceLocation where) {
  if (index.size == 0) return;
  const std::uint64_t serial = begin_check(op, limit, where);
  Grid grid = grid_for(context_, index.size);
  grid.shared_bytes = kThreads / device::kWarp * sizeof(int64_t);
  dispatch_index(index.dtype, [&]<class Index>() {
    launch(context_, "check_indices", grid, &device::check_indices<Index>, index.as<Index>(), index.size, limit,
           exempt != nullptr, exempt != nullptr ? *exempt : 0, serial, context_.fault());
  });
}

}  // namespace reel::cuda
