# The CUDA backend's sources, which two compilers take: nvcc for GPUs (backends/cuda), and g++ for the executor that tests
# them on the CPU (tests/cuda_on_cpu).
set(REEL_CUDA_KERNELS
  binary.cu
  conv.cu
  conv_weight.cu
  copy.cu
  fill.cu
  gemm.cu
  indices.cu
  optimizers.cu
  random.cu
  reduce.cu
  rows.cu
  segment_softmax.cu
  segments.cu
  softmax.cu
  sort.cu
  unary.cu
)
set(REEL_CUDA_HOST
  context.cpp
  library.cpp
  memory.cpp
  status.cpp
)
list(TRANSFORM REEL_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM REEL_CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
