// Products by cuBLASLt. f32 is computed in f32, not TF32. Algorithms are chosen once per shape; the workspace has a fixed
// size, and no algorithm adds up in an order that timing decides: the same product gives the same bits on one GPU.

#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "reel/backends/cuda/product.h"
#include "reel/backends/cuda/status.h"
#include "reel/core/error.h"

namespace reel::cuda {

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw DeviceError("cuda: " + std::string(call) + " must succeed, got " + cublasLtGetStatusName(status));
}

struct OperationOwner {
  cublasLtMatmulDesc_t desc = nullptr;
  explicit OperationOwner(bool f64) {
    check(cublasLtMatmulDescCreate(&desc, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, f64 ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
  }
  ~OperationOwner() { cublasLtMatmulDescDestroy(desc); }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
};

struct LayoutOwner {
  cublasLtMatrixLayout_t layout = nullptr;
  LayoutOwner(bool f64, std::int64_t rows, std::int64_t cols, std::int64_t leading, std::int64_t batch,
              std::int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout, f64 ? CUDA_R_64F : CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), leading > rows ? leading : rows),
          "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto count = static_cast<std::int32_t>(batch);
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  }
  ~LayoutOwner() { cublasLtMatrixLayoutDestroy(layout); }
};

struct PreferenceOwner {
  cublasLtMatmulPreference_t preference = nullptr;
  PreferenceOwner() {
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  }
  ~PreferenceOwner() { cublasLtMatmulPreferenceDestroy(preference); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  // Pointers as they are: what they are aligned to is part of the key under which the algorithm is kept.
  void set_alignment(const Product& p) {
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  }
  static std::uint32_t alignment_of(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
    return static_cast<std::uint32_t>(bits & -bits);
  }
};

/// The library's handle and the algorithms chosen so far, of one GPU; never destroyed.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;
  std::map<std::array<std::int64_t, 17>, cublasLtMatmulAlgo_t> algorithms;

  Library() { check(cublasLtCreate(&handle), "cublasLtCreate"); }
};

Library& library_of(int index) {
  static std::mutex mutex;
  static auto* const libraries = new std::map<int, Library>;
  const std::lock_guard lock(mutex);
  return (*libraries)[index];
}

std::array<std::int64_t, 17> key_of(const Product& p) {
  return {p.m,
          p.n,
          p.k,
          p.batch,
          p.dtype == DType::f64,
          p.trans_a,
          p.trans_b,
          p.lda,
          p.ldb,
          p.ldc,
          p.stride_a,
          p.stride_b,
          p.stride_c,
          p.bias != nullptr,
          PreferenceOwner::alignment_of(p.a),
          PreferenceOwner::alignment_of(p.b),
          PreferenceOwner::alignment_of(p.c)};
}

}  // namespace

bool fuses_bias(DType dtype) { return dtype == DType::f32; }

void multiply(const Context& context, const Product& p) {
  context.use();
  Library& library = library_of(context.index());
  const bool f64 = p.dtype == DType::f64;
  OperationOwner operation(f64);
  operation.set(CUBLASLT_MATMUL_DESC_TRANSA, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  operation.set(CUBLASLT_MATMUL_DESC_TRANSB, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) {
    operation.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    operation.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const LayoutOwner a(f64, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.lda, p.batch, p.stride_a);
  const LayoutOwner b(f64, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.ldb, p.batch, p.stride_b);
  const LayoutOwner c(f64, p.m, p.n, p.ldc, p.batch, p.stride_c);

  const auto key = key_of(p);
  cublasLtMatmulAlgo_t algorithm;
  {
    const std::lock_guard lock(library.mutex);
    const auto known = library.algorithms.find(key);
    if (known != library.algorithms.end()) {
      algorithm = known->second;
    } else {
      PreferenceOwner preference;
      preference.set_alignment(p);
      cublasLtMatmulHeuristicResult_t found;
      int count = 0;
      check(cublasLtMatmulAlgoGetHeuristic(library.handle, operation.desc, a.layout, b.layout, c.layout, c.layout,
                                           preference.preference, 1, &found, &count),
            "cublasLtMatmulAlgoGetHeuristic");
      if (count == 0) check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
      algorithm = found.algo;
      library.algorithms.emplace(key, algorithm);
    }
  }
  const Workspace workspace(context.memory(), kWorkspaceBytes);
  const double one64 = 1, beta64 = p.accumulate ? 1 : 0;
  const float one32 = 1, beta32 = p.accumulate ? 1 : 0;
  check(cublasLtMatmul(library.handle, operation.desc, f64 ? static_cast<const void*>(&one64) : &one32, p.a, a.layout,
                       p.b, b.layout, f64 ? static_cast<const void*>(&beta64) : &beta32, p.c, c.layout, p.c, c.layout,
                       &algorithm, workspace.as<void>(), kWorkspaceBytes, context.stream()),
        "cublasLtMatmul");
}

}  // namespace reel::cuda
