// Products by cuBLASLt. f32 is computed in f32, or in TF32 where the product says so; bf16 and f16 are added up in f32.
// Algorithms are chosen once per shape; their workspace is bounded, and none adds up in an order that timing decides: the same
// product gives the same bits on one GPU.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

#include "reel/backends/cuda/product.h"
#include "reel/backends/cuda/status.h"

namespace reel::cuda {

namespace {

constexpr std::size_t kMostWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw_failed(call, cublasLtGetStatusName(status));
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  if (dtype == DType::f16) return CUDA_R_16F;
  return dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F;
}

cublasLtMatmulDescOpaque_t operation_of(const Product& p) {
  const bool f64 = p.dtype == DType::f64;
  const cublasComputeType_t type = f64      ? CUBLAS_COMPUTE_64F
                                   : p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDescOpaque_t operation;
  check(cublasLtMatmulDescInit(&operation, type, f64 ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescInit");
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  return operation;
}

cublasLtMatrixLayoutOpaque_t layout_of(const Product& p, std::int64_t rows, std::int64_t cols, std::int64_t leading,
                                       std::int64_t stride) {
  cublasLtMatrixLayoutOpaque_t layout;
  check(cublasLtMatrixLayoutInit(&layout, type_of(p.dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(cols), leading > rows ? leading : rows),
        "cublasLtMatrixLayoutInit");
  if (p.batch == 1) return layout;
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(p.batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return layout;
}

struct PreferenceOwner {
  cublasLtMatmulPreference_t preference = nullptr;
  PreferenceOwner() {
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspaceBytes);
  }
  ~PreferenceOwner() { cublasLtMatmulPreferenceDestroy(preference); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  void set_for(const Product& p) {
    // Where k is cut, bf16 and f16 are rounded before the bias is added (cuBLASLt of CUDA 13.0, seen on an H200).
    const bool whole = p.bias != nullptr && is_half(p.dtype);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{whole ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    // Pointers as they are: what they are aligned to is part of the key under which the algorithm is kept.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
    // No attribute is about the bias, which epilogues read in packs as wide as those of the result that they write.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::min(alignment_of(p.c), alignment_of(p.bias)));
  }
  /// At most 256, which is that of null too.
  static std::uint32_t alignment_of(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
    return static_cast<std::uint32_t>(bits & -bits);
  }
};

using Key = std::array<std::int64_t, 18>;
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::int64_t part : key)
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u + (hash >> 32);
    return hash;
  }
};

Key key_of(const Product& p) {
  return {p.m,
          p.n,
          p.k,
          p.batch,
          static_cast<std::int64_t>(p.dtype),
          p.trans_a,
          p.trans_b,
          p.lda,
          p.ldb,
          p.ldc,
          p.stride_a,
          p.stride_b,
          p.stride_c,
          p.bias != nullptr ? PreferenceOwner::alignment_of(p.bias) : 0,
          p.tf32,
          PreferenceOwner::alignment_of(p.a),
          PreferenceOwner::alignment_of(p.b),
          PreferenceOwner::alignment_of(p.c)};
}

/// All that a product needs but for its addresses.
struct Plan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace_bytes = 0;

  Plan(cublasLtHandle_t handle, const Product& p)
      : operation(operation_of(p)),
        a(layout_of(p, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.lda, p.stride_a)),
        b(layout_of(p, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.ldb, p.stride_b)),
        c(layout_of(p, p.m, p.n, p.ldc, p.stride_c)) {
    PreferenceOwner preference;
    preference.set_for(p);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &c, &c, preference.preference, 1, &found, &count),
          "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
    algorithm = found.algo;
    workspace_bytes = found.workspaceSize;
  }
};

/// The library's handle and the plans made so far, of one GPU; never destroyed.
class Library {
 public:
  Library() { check(cublasLtCreate(&handle), "cublasLtCreate"); }

  /// A copy, which this call alone uses.
  Plan plan(const Product& p) {
    const Key key = key_of(p);
    const std::lock_guard lock(mutex_);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kMostPlans) plans_.clear();  // sizes that change all the time do not come back
    return plans_.emplace(key, Plan(handle, p)).first->second;
  }

  cublasLtHandle_t handle = nullptr;

 private:
  static constexpr std::size_t kMostPlans = 4096;
  std::mutex mutex_;
  std::unordered_map<Key, Plan, KeyHash> plans_;
};

Library& library_of(int index) {
  static std::mutex mutex;
  static auto* const libraries = new std::map<int, Library>;
  const std::lock_guard lock(mutex);
  return (*libraries)[index];
}

}  // namespace

bool fuses_bias(DType dtype) { return dtype != DType::f64; }

void multiply(const Context& context, const Product& p) {
  context.use();
  Library& library = library_of(context.index());
  Plan plan = library.plan(p);
  if (p.bias != nullptr) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const Workspace workspace(context.memory(), plan.workspace_bytes);
  const bool f64 = p.dtype == DType::f64;
  const double one64 = 1, beta64 = p.accumulate ? 1 : 0;
  const float one32 = 1, beta32 = p.accumulate ? 1 : 0;
  check(cublasLtMatmul(library.handle, &plan.operation, f64 ? static_cast<const void*>(&one64) : &one32, p.a, &plan.a,
                       p.b, &plan.b, f64 ? static_cast<const void*>(&beta64) : &beta32, p.c, &plan.c, p.c, &plan.c,
                       &plan.algorithm, workspace.as<void>(), plan.workspace_bytes, context.stream()),
        "cublasLtMatmul");
}

}  // namespace reel::cuda
