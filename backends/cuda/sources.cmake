# The CUDA backend's sources, which two compilers take: nvcc for GPUs (backends/cuda), and g++ for the executor that tests
# them on the CPU (tests/cuda_on_cpu).
set(REEL_CUDA_KERNELS
  attention.cu
  attention_backward.cu
  attention_narrow.cu
  attention_narrow_backward.cu
  binary.cu
  cell.cu
  channels.cu
  cholesky.cu
  choose.cu
  conv.cu
  conv_gathered.cu
  conv_tiled.cu
  conv_weight.cu
  conv_weight_plan.cu
  conv_weight_tiles.cu
  copy.cu
  cross_entropy.cu
  fill.cu
  gated.cu
  gather.cu
  gemm.cu
  indices.cu
  murmur3.cu
  nonzero.cu
  lu.cu
  normalize.cu
  normalize_channels.cu
  normalize_held.cu
  optimizers.cu
  pad.cu
  parametric.cu
  pool.cu
  radix_sort.cu
  random.cu
  random_rejection.cu
  recurrent.cu
  reduce.cu
  rows.cu
  scan.cu
  segment_softmax.cu
  segment_window.cu
  segments.cu
  softmax.cu
  softmax_tiles.cu
  sort.cu
  sparse.cu
  sums_of_squares.cu
  triangular_solve.cu
  unary.cu
)
set(REEL_CUDA_HOST
  context.cpp
  kernel_cache.cpp
  kernel_source.cpp
  library.cpp
  limits.cpp
  memory.cpp
  nvrtc.cpp
  status.cpp
)

# The entries of Ops that CUDA does not have yet throw. They are found here, so that who writes the kernels of one adds it to
# CudaOps and no more: a header is made with every entry of core/ops.h that cuda_ops.h does not name.
set(REEL_CUDA_GENERATED ${PROJECT_BINARY_DIR}/cuda_generated)
function(reel_write_missing_ops)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/core/ops.h ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_ops.h)
  file(READ ${PROJECT_SOURCE_DIR}/core/ops.h contract)
  file(READ ${PROJECT_SOURCE_DIR}/backends/cuda/cuda_ops.h present)
  string(REGEX MATCHALL "\n  virtual [^;]* = 0" entries "${contract}")
  set(overrides "")
  foreach(entry ${entries})
    string(REGEX REPLACE "^\n  virtual (.*) = 0$" "\\1" signature "${entry}")
    string(REGEX MATCH "([a-z0-9_]+)\\(" _ "${signature}")
    set(name ${CMAKE_MATCH_1})
    string(FIND "${present}" " ${name}(" place)
    if(place EQUAL -1)
      string(APPEND overrides "  ${signature} override { missing(\"${name}\"); }\n")
    endif()
  endforeach()
  set(missing_ops "${overrides}")
  configure_file(${PROJECT_SOURCE_DIR}/backends/cuda/missing.h.in ${REEL_CUDA_GENERATED}/reel_cuda_missing.h @ONLY)
endfunction()
reel_write_missing_ops()

list(TRANSFORM REEL_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM REEL_CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
