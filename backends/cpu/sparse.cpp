// Products with sparse rows: segment s of (index, weight) is row s of a matrix whose columns are the rows of a table. Sums run
// over a segment in ascending order, so that a segment alone gives the same bits as in a batch.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/row_sum.h"
#include "reel/backends/cpu/segments.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// Indices of either type as i64: in their own memory, or copied.
class Wide {
 public:
  explicit Wide(const Array& index)
      : copy_(index.dtype == DType::i64 ? 1 : static_cast<std::size_t>(index.size) * sizeof(int64_t) + 1),
        data_(index.dtype == DType::i64 ? index.as<int64_t>() : copy_.as<int64_t>()) {
    if (index.dtype == DType::i64) return;
    int64_t* const to = copy_.as<int64_t>();
    const auto* from = index.as<std::int32_t>();
    for (int64_t i = 0; i < index.size; ++i) to[i] = from[i];
  }
  operator const int64_t*() const { return data_; }

 private:
  Scratch copy_;
  const int64_t* data_;
};

/// What a segment's sum is divided by; 1 if it is empty.
template <class T>
REEL_INLINE T divisor(const Segments& segments, int64_t s, bool mean) {
  return mean ? static_cast<T>(max<int64_t>(segments.offsets[s + 1] - segments.offsets[s], 1)) : T(1);
}

/// Columns to vector lanes, four vectors at a time, rows of the table in the order of the indices.
template <class T>
void weighted_sums(const T* table, const int64_t* index, const T* weight, const Segments& segments, int64_t width,
                   bool mean, T* y) {
  for_each_segment(segments, width, kGrain, [=](int64_t s, int64_t begin, int64_t end) {
    const Vec<T> by = Vec<T>::broadcast(divisor<T>(segments, s, mean));
    for_each_column_block<T>(begin, end, [=]<int K>(auto lanes, int64_t j) {
      Pack<T, K> sum = Pack<T, K>::broadcast(0);
      for (int64_t i = segments.offsets[s]; i < segments.offsets[s + 1]; ++i) {
        const auto row = Pack<T, K>::load(lanes, table + index[i] * width + j);
        const Vec<T> factor = Vec<T>::broadcast(weight != nullptr ? weight[i] : T(1));
#pragma GCC unroll 4
        for (int k = 0; k < K; ++k) sum.v[k] = fma(factor, row.v[k], sum.v[k]);
      }
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k) sum.v[k] = sum.v[k] / by;
      sum.store(lanes, y + s * width + j);
    });
  });
}

/// Out of line: the compiler would unfold the sum's recursion in every loop around it.
template <class T>
__attribute__((noinline)) T dot(const T* a, const T* b, int64_t n) {
  return sum_row<T>(
      n, [=](Vec<T> acc, auto lanes, int64_t i)
             __attribute__((always_inline)) { return fma(lanes.load(a + i), lanes.load(b + i), acc); });
}

template <class T>
void weight_gradient(const T* table, const int64_t* index, const T* dy, const Segments& segments, int64_t width,
                     bool mean, T* dweight) {
  for_each_row_run(segments, width, kGrain, [=](int64_t s, int64_t begin, int64_t end) {
    const T by = divisor<T>(segments, s, mean);
    for (int64_t i = begin; i < end; ++i) dweight[i] = dot(table + index[i] * width, dy + s * width, width) / by;
  });
}

}  // namespace

void CpuOps::segment_gather(const Array& table, const Array& index, const Array* weight, const Segments& segments,
                            bool mean, const Array& y) {
  if (y.size == 0) return;
  const Wide at(index);
  dispatch_floating(table.dtype, [&]<class T>() {
    weighted_sums(table.as<T>(), at, weight != nullptr ? weight->as<T>() : nullptr, segments, y.shape[1], mean,
                  y.as<T>());
  });
}

void CpuOps::segment_gather_backward_weight(const Array& table, const Array& index, const Array& dy,
                                            const Segments& segments, bool mean, const Array& dweight) {
  if (dweight.size == 0) return;
  const Wide at(index);
  dispatch_floating(table.dtype, [&]<class T>() {
    weight_gradient(table.as<T>(), at, dy.as<T>(), segments, dy.shape[1], mean, dweight.as<T>());
  });
}

void CpuOps::segment_gather_backward_table(const Array& dy, const Array& index, const Array* weight,
                                           const Segments& segments, bool mean, const Array& dtable) {
  if (index.size == 0 || dtable.size == 0) return;
  const std::size_t n = static_cast<std::size_t>(index.size);
  const Scratch sources(n * sizeof(int64_t)), factors(n * size_of(dy.dtype));
  dispatch_floating(dy.dtype, [&]<class T>() {
    int64_t* const source = sources.as<int64_t>();
    T* const factor = factors.as<T>();
    const T* const from = weight != nullptr ? weight->as<T>() : nullptr;
    for_each_row_run(segments, 1, kGrain, [=](int64_t s, int64_t begin, int64_t end) {
      const T by = divisor<T>(segments, s, mean);
      for (int64_t i = begin; i < end; ++i) {
        source[i] = s;
        factor[i] = (from != nullptr ? from[i] : T(1)) / by;
      }
    });
  });
  cpu::REEL_CPU_ISA::add_rows(
      {.y = dy, .index = index, .table = dtable, .source = sources.as<int64_t>(), .factor = factors.as<char>()});
}

}  // namespace reel::cpu::REEL_CPU_ISA
