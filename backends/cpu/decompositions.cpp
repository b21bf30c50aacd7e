// Cholesky, LU and triangular solves of batches of row-major matrices. A matrix is cut into blocks of kBlock rows: plain loops
// inside a block, gemm between them. Threads work on the matrices of a batch, or inside gemm and on the rows or columns of a
// single one. No element depends on how the work was cut.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/log.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kBlock = 16;

/// to += factor from. Not inlined, for the library's size.
template <class T>
[[gnu::noinline]] void add_scaled(T factor, const T* from, T* to, int64_t n) {
  const Vec<T> times = Vec<T>::broadcast(factor);
  for_each_vector<T>(
      0, n, [=](auto lanes, int64_t i) { lanes.store(to + i, fma(times, lanes.load(from + i), lanes.load(to + i))); });
}

/// -x, without gaps between its rows: the products below subtract.
template <class T>
struct Negated {
  Scratch scratch;
  T* data;
  int64_t leading;

  [[gnu::noinline]] Negated(const T* x, int64_t ldx, int64_t rows, int64_t cols)
      : scratch(static_cast<std::size_t>(rows * cols) * sizeof(T)), data(scratch.as<T>()), leading(cols) {
    for (int64_t i = 0; i < rows; ++i) {
      const T* from = x + i * ldx;
      T* to = data + i * cols;
      for_each_vector<T>(0, cols, [=](auto lanes, int64_t j) { lanes.store(to + j, -lanes.load(from + j)); });
    }
  }
};

/// c += op(a) op(b); everything but pointers and leading sizes is set.
template <class T>
void add_product(CpuOps& ops, Gemm gemm, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc) {
  gemm.dtype = dtype_of<T>;
  gemm.a = a;
  gemm.b = b;
  gemm.c = c;
  gemm.lda = lda;
  gemm.ldb = ldb;
  gemm.ldc = ldc;
  gemm.accumulate = true;
  ops.gemm(gemm);
}

/// A triangular matrix and the form in which it is used.
template <class T>
struct Triangle {
  const T* data;
  int64_t leading;
  bool upper, transposed, unit;

  bool forward() const { return upper == transposed; }  // op(a) is lower triangular: solved from the first row on
  REEL_INLINE T at(int64_t i, int64_t j) const { return transposed ? data[j * leading + i] : data[i * leading + j]; }
  Triangle from(int64_t i) const { return {data + i * leading + i, leading, upper, transposed, unit}; }
};

/// Solves op(a) x = x for the first `rows` rows of a; x [rows, k]. Each row is added up in registers, a few vectors at a time.
template <class T>
[[gnu::noinline]] void solve_block(const Triangle<T>& a, int64_t rows, T* x, int64_t ldx, int64_t k) {
  parallel_for(k, max<int64_t>(64, kGrain / (rows * rows)), [&](int64_t begin, int64_t end) {
    for_each_column_block<T>(
        begin, end, [&]<int K>(auto lanes, int64_t j) __attribute__((always_inline)) {
          for (int64_t step = 0; step < rows; ++step) {
            const int64_t r = a.forward() ? step : rows - 1 - step;
            auto sum = Pack<T, K>::load(lanes, x + r * ldx + j);
            for (int64_t done = 0; done < step; ++done) {
              const int64_t s = a.forward() ? done : rows - 1 - done;
              const auto from = Pack<T, K>::load(lanes, x + s * ldx + j);
              const Vec<T> factor = Vec<T>::broadcast(-a.at(r, s));
              for (int i = 0; i < K; ++i) sum.v[i] = fma(factor, from.v[i], sum.v[i]);
            }
            if (!a.unit) {
              const Vec<T> pivot = Vec<T>::broadcast(a.at(r, r));
              for (int i = 0; i < K; ++i) sum.v[i] = sum.v[i] / pivot;
            }
            sum.store(lanes, x + r * ldx + j);
          }
        });
  });
}

/// Solves op(a) x = x; a [n, n], x [n, k].
template <class T>
[[gnu::noinline]] void solve(CpuOps& ops, const Triangle<T>& a, int64_t n, T* x, int64_t k) {
  const int64_t blocks = ceil_div(n, kBlock);
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t first = (a.forward() ? step : blocks - 1 - step) * kBlock, rows = min(kBlock, n - first);
    // The rows that are known already: those before this block, or those behind it.
    const int64_t known = a.forward() ? 0 : first + rows, count = a.forward() ? first : n - known;
    if (count > 0) {
      const T* panel = a.transposed ? a.data + known * a.leading + first : a.data + first * a.leading + known;
      const Negated<T> left(panel, a.leading, a.transposed ? count : rows, a.transposed ? rows : count);
      add_product(ops, {.m = rows, .n = k, .k = count, .trans_a = a.transposed}, left.data, left.leading, x + known * k,
                  k, x + first * k, k);
    }
    solve_block(a.from(first), rows, x + first * k, k, k);
  }
}

// --- Cholesky ---------------------------------------------------------------------------------------------------------

/// x[c] = (x[c] - sum over b < c of x[b] l[c, b]) / l[c, c] for c < count; l by columns, kBlock apart.
template <class T>
REEL_INLINE void solve_row(const T* columns, T* x, int64_t count) {
  for (int64_t c = 0; c < count; ++c) {
    x[c] /= columns[c * kBlock + c];
    add_scaled(-x[c], columns + c * kBlock + c + 1, x + c + 1, count - c - 1);
  }
}

/// l l^T = l, whose upper triangle is 0. From the first leading minor on that is not positive, the diagonal becomes NaN.
template <class T>
void factor(CpuOps& ops, T* l, int64_t n) {
  T columns[kBlock * kBlock];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t width = min(kBlock, n - first), behind = first + width;
    if (first > 0) {
      const Negated<T> left(l + first * n, n, width, first);
      add_product(ops, {.m = n - first, .n = width, .k = first, .trans_b = true}, l + first * n, n, left.data,
                  left.leading, l + first * n + first, n);
    }
    for (int64_t i = 0; i < width; ++i) {
      T* x = l + (first + i) * n + first;
      solve_row(columns, x, i);
      for (int64_t c = 0; c < i; ++c) {
        x[i] = fma(-x[c], x[c], x[i]);
        columns[c * kBlock + i] = x[c];
      }
      x[i] = columns[i * kBlock + i] = x[i] > 0 ? T(__builtin_sqrt(x[i])) : T(__builtin_nan(""));
      for (int64_t c = i + 1; c < width; ++c) x[c] = 0;
    }
    parallel_for(n - behind, max<int64_t>(1, kGrain / (width * width)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) solve_row(columns, l + (behind + i) * n + first, width);
    });
  }
}

// --- LU ---------------------------------------------------------------------------------------------------------------

template <class T>
REEL_INLINE T magnitude(T x) {
  return x < 0 ? -x : x;
}

/// The place of the largest magnitude, the first of equals; of NaN only that in the first place counts.
template <class T>
int64_t largest_magnitude(const T* x, int64_t n) {
  const T largest = reduce_larger(fold_vectors<T>(
      0, n, Vec<T>::zero(),
      [x](Vec<T> most, auto lanes, int64_t i) {
        const Vec<T> value = lanes.load(x + i);
        return larger(-value, larger(value, most));
      },
      [](Vec<T> a, Vec<T> b) { return larger(a, b); }));
  int64_t place = 0;
  if (x[0] != x[0] || largest == 0) return 0;
  while (magnitude(x[place]) != largest) ++place;
  return place;
}

/// Swaps a[i * step] and b[i * step] for i < count.
template <class T>
void swap(T* a, T* b, int64_t count, int64_t step) {
  for (int64_t i = 0; i < count; ++i) {
    const T kept = a[i * step];
    a[i * step] = b[i * step];
    b[i * step] = kept;
  }
}
template <class T>
[[gnu::noinline]] void swap_rows(T* a, T* b, int64_t n) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) {
    const Vec<T> kept = lanes.load(a + i);
    lanes.store(a + i, lanes.load(b + i));
    lanes.store(b + i, kept);
  });
}

/// LU of the columns [first, first + width) of w, whose rows from `first` on are swapped whole. They are worked on as columns
/// without gaps: what a step adds goes down them in long runs. Returns whether the swaps are odd.
template <class T>
bool factor_columns(T* w, int64_t n, int64_t first, int64_t width, int64_t* order) {
  const int64_t rows = n - first;
  const Scratch scratch(static_cast<std::size_t>(rows * width) * sizeof(T));
  T* const columns = scratch.as<T>();
  for (int64_t r = 0; r < rows; ++r) move_run(w + (first + r) * n + first, 1, columns + r, rows, width, sizeof(T));
  bool odd = false;
  for (int64_t c = 0; c < width; ++c) {
    T* const column = columns + c * rows;
    const int64_t best = c + largest_magnitude(column + c, rows - c);
    if (best != c) {
      odd = !odd;
      swap(columns + best, columns + c, width, rows);
      swap(order + first + best, order + first + c, 1, 1);
      swap_rows(w + (first + best) * n, w + (first + c) * n, n);
    }
    if (column[c] == 0) continue;  // singular: the column is 0 from here on
    const Vec<T> pivot = Vec<T>::broadcast(column[c]);
    for_each_vector<T>(c + 1, rows,
                       [=](auto lanes, int64_t r) { lanes.store(column + r, lanes.load(column + r) / pivot); });
    for (int64_t j = c + 1; j < width; ++j)
      add_scaled(-columns[j * rows + c], column + c + 1, columns + j * rows + c + 1, rows - c - 1);
  }
  for (int64_t r = 0; r < rows; ++r) move_run(columns + r, rows, w + (first + r) * n + first, 1, width, sizeof(T));
  return odd;
}

/// p w = l u in place, l with ones on the diagonal; row i of p w is row order[i] of w. Returns whether p is odd.
template <class T>
bool factor_lu(CpuOps& ops, T* w, int64_t n, int64_t* order) {
  bool odd = false;
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t width = min(kBlock, n - first), behind = first + width, right = n - behind;
    odd ^= factor_columns(w, n, first, width, order);
    if (right == 0) continue;
    T* upper = w + first * n + behind;
    solve_block(Triangle<T>{w + first * n + first, n, false, false, true}, width, upper, n, right);
    const Negated<T> u(upper, n, width, right);
    add_product(ops, {.m = right, .n = right, .k = width}, w + behind * n + first, n, u.data, u.leading,
                w + behind * n + behind, n);
  }
  return odd;
}

/// f(i) for the matrices of a batch of which each takes about `work` operations.
template <class F>
REEL_INLINE void for_each_matrix(int64_t batch, int64_t work, F f) {
  parallel_for(batch, max<int64_t>(1, kGrain / (work + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace

std::int64_t CpuOps::cholesky(const Array& a, const Array& l) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  if (n == 0) return -1;
  return dispatch_floating(a.dtype, [&]<class T>() -> int64_t {
    const T* from = a.as<T>();
    T* to = l.as<T>();
    for_each_matrix(batch, n * n * n / 3, [=, this](int64_t matrix) {
      const int64_t offset = matrix * n * n;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) to[offset + i * n + j] = j <= i ? from[offset + i * n + j] : T(0);
      factor(*this, to + offset, n);
    });
    for (int64_t matrix = 0; matrix < batch; ++matrix) {
      const T last = to[matrix * n * n + n * n - 1];
      if (last != last) return matrix;
    }
    return -1;
  });
}

void CpuOps::triangular_solve(const Array& a, const Array& b, bool upper, bool transposed, bool unit, const Array& x) {
  const int64_t batch = b.shape[0], n = b.shape[1], k = b.shape[2];
  if (b.size == 0) return;
  dispatch_floating(a.dtype, [&]<class T>() {
    const T *matrices = a.as<T>(), *from = b.as<T>();
    T* to = x.as<T>();
    for_each_matrix(batch, n * n * k, [=, this](int64_t i) {
      if (to != from) copy_bytes(from + i * n * k, to + i * n * k, n * k * int64_t{sizeof(T)});
      solve(*this, Triangle<T>{matrices + i * n * n, n, upper, transposed, unit}, n, to + i * n * k, k);
    });
  });
}

void CpuOps::lu(const Array& a, const Array& lu, const Array& rows, const Array& sign, const Array& logdet) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  dispatch_floating(a.dtype, [&]<class T>() {
    const T* from = a.as<T>();
    T *to = lu.as<T>(), *signs = sign.as<T>(), *logs = logdet.as<T>();
    int64_t* order = rows.as<int64_t>();
    for_each_matrix(batch, n * n * n, [=, this](int64_t matrix) {
      T* w = to + matrix * n * n;
      copy_bytes(from + matrix * n * n, w, n * n * int64_t{sizeof(T)});
      T product = factor_lu(*this, w, n, order + matrix * n) ? T(-1) : T(1);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T u = w[i * n + i];
        product *= u < 0 ? T(-1) : u > 0 ? T(1) : u;  // 0 and NaN as they are
        sum += scalar::log(static_cast<double>(magnitude(u)));
      }
      signs[matrix] = product;
      logs[matrix] = static_cast<T>(sum);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
