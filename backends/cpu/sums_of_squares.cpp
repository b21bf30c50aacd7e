// The sums of squares of a flat buffer's ranges: one pass over memory. It is written for little code: what the types differ in
// is a function that is called for a piece.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/flat_ranges.h"
#include "reel/core/half.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kLeaf = 1024;  // elements that are added up on their own, whose sums are added in order

/// As many elements as a vector has doubles. Intrinsics: g++ 12 converts a vector of 64 bytes by halves.
REEL_INLINE Vec<double> load_wide(AllLanes<double>, const float* x) {
#if defined(REEL_SIMD_AVX512)
  return {_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(x))};
#elif defined(__AVX2__)
  return {_mm256_cvtps_pd(_mm_loadu_ps(x))};
#else
  return {_mm_cvtps_pd(_mm_loadl_pi(_mm_setzero_ps(), reinterpret_cast<const __m64*>(x)))};
#endif
}
REEL_INLINE Vec<double> load_wide(FirstLanes<double> lanes, const float* x) {
  alignas(kVectorBytes) float all[Vec<double>::width] = {};
  for (int64_t i = 0; i < lanes.n; ++i) all[i] = x[i];
  return load_wide(AllLanes<double>{}, all);
}
template <class Lanes>
REEL_INLINE Vec<double> load_wide(Lanes lanes, const double* x) {
  return lanes.load(x);
}

/// The sum of elements [begin, end), at most a leaf.
template <class T>
REEL_INLINE double squares_of_leaf(const T* x, int64_t begin, int64_t end) {
  if constexpr (is_half_type<T>) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
  } else {
    const auto add = [x](Vec<double> sum, auto lanes, int64_t i) {
      const Vec<double> wide = load_wide(lanes, x + i);
      return fma(wide, wide, sum);
    };
    const auto join = [](Vec<double> a, Vec<double> b) { return a + b; };
    return reduce_add(fold_vectors<double>(begin, end, Vec<double>::zero(), add, join));
  }
}

template <class T>
double squares_of(const void* x, int64_t begin, int64_t end) {
  double sum = 0;
  for (; begin < end; begin += kLeaf) sum += squares_of_leaf(static_cast<const T*>(x), begin, min(begin + kLeaf, end));
  return sum;
}

auto squares_of(DType dtype) {
  if (dtype == DType::bf16) return squares_of<bfloat16>;
  if (dtype == DType::f16) return squares_of<float16>;
  return dtype == DType::f32 ? squares_of<float> : squares_of<double>;
}

int64_t pieces_of(const FlatRange& range) { return ceil_div(range.end - range.begin, kPiece); }

}  // namespace

/// A range is cut into pieces from its own start, so that its sum does not depend on the other ranges.
void CpuOps::sums_of_squares(const FlatRange* ranges, int64_t count, const Array& x, double* sums) {
  int64_t elements = 0, pieces = 0;
  for (int64_t i = 0; i < count; ++i) {
    elements += ranges[i].end - ranges[i].begin;
    pieces += pieces_of(ranges[i]);
  }
  const Scratch scratch(static_cast<std::size_t>(pieces) * sizeof(double));
  double* const parts = scratch.as<double>();
  const auto squares = squares_of(x.dtype);
  // As many pieces to a chunk as make about one whole one.
  const int64_t chunk = elements <= kPiece ? max<int64_t>(1, pieces) : ceil_div(pieces * kPiece, elements);
  parallel_for(pieces, chunk, [=, data = x.data](int64_t first, int64_t last) {
    int64_t before = 0;  // pieces of earlier ranges
    for (int64_t i = 0; i < count && before < last; ++i) {
      const int64_t own = pieces_of(ranges[i]);
      for (int64_t k = max<int64_t>(0, first - before); k < min(own, last - before); ++k) {
        const int64_t begin = ranges[i].begin + k * kPiece;
        parts[before + k] = squares(data, begin, min(begin + kPiece, ranges[i].end));
      }
      before += own;
    }
  });
  const double* part = parts;
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = 0;
    for (int64_t own = pieces_of(ranges[i]); own > 0; --own) sums[i] += *part++;
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
