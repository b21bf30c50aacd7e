// Cholesky, triangular solves and the inverse of batches of row-major matrices. A matrix is cut into blocks of kBlock rows:
// plain loops inside a block, gemm between them. Threads work on the matrices of a batch, or inside gemm and on the rows or
// columns of a single one. No element depends on how the work was cut.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/log.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kBlock = 16;

/// to += factor from. The one inner loop of all of this: not inlined, for the library's size.
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

/// Solves op(a) x = x for the first `rows` rows of a; x [rows, k].
template <class T>
void solve_block(const Triangle<T>& a, int64_t rows, T* x, int64_t ldx, int64_t k) {
  parallel_for(k, max<int64_t>(64, kGrain / (rows * rows)), [&](int64_t begin, int64_t end) {
    for (int64_t step = 0; step < rows; ++step) {
      const int64_t r = a.forward() ? step : rows - 1 - step;
      T* to = x + r * ldx;
      for (int64_t done = 0; done < step; ++done) {
        const int64_t s = a.forward() ? done : rows - 1 - done;
        const T factor = -a.at(r, s), *from = x + s * ldx + begin;
        if (end - begin == 1) to[begin] = fma(factor, *from, to[begin]);
        else add_scaled(factor, from, to + begin, end - begin);
      }
      if (a.unit) continue;
      const T pivot = a.at(r, r);
      const Vec<T> divisor = Vec<T>::broadcast(pivot);
      for_each_vector<T>(begin, end, [=](auto lanes, int64_t j) { lanes.store(to + j, lanes.load(to + j) / divisor); });
    }
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

/// Brings the row of the largest |w[r, column]|, r >= column, to the top of these rows; the first of equals.
template <class T>
bool swap_pivot(T* w, int64_t n, int64_t column, int64_t* order) {
  int64_t best = column;
  for (int64_t r = column + 1; r < n; ++r)
    if (magnitude(w[r * n + column]) > magnitude(w[best * n + column])) best = r;
  if (best == column) return false;
  for (int64_t j = 0; j < n; ++j) {
    const T kept = w[best * n + j];
    w[best * n + j] = w[column * n + j];
    w[column * n + j] = kept;
  }
  const int64_t kept = order[best];
  order[best] = order[column];
  order[column] = kept;
  return true;
}

/// w = p^T l u in place, l with ones on the diagonal; row i of p w is row order[i] of w. Returns whether p is odd.
template <class T>
bool factor_lu(CpuOps& ops, T* w, int64_t n, int64_t* order) {
  bool odd = false;
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t width = min(kBlock, n - first), behind = first + width, right = n - behind;
    for (int64_t c = first; c < behind; ++c) {
      if (swap_pivot(w, n, c, order)) odd = !odd;
      const T* pivot = w + c * n + c;
      if (pivot[0] == 0) continue;  // singular: the column is 0 from here on
      for (int64_t r = c + 1; r < n; ++r) {
        T* row = w + r * n + c;
        row[0] /= pivot[0];
        add_scaled(-row[0], pivot + 1, row + 1, behind - c - 1);
      }
    }
    if (right == 0) continue;
    T* upper = w + first * n + behind;
    solve_block(Triangle<T>{w + first * n + first, n, false, false, true}, width, upper, n, right);
    const Negated<T> u(upper, n, width, right);
    add_product(ops, {.m = right, .n = right, .k = width}, w + behind * n + first, n, u.data, u.leading,
                w + behind * n + behind, n);
  }
  return odd;
}

template <class T>
void invert_one(CpuOps& ops, const T* a, int64_t n, T* inverse, T* sign, T* logdet) {
  const Scratch scratch(static_cast<std::size_t>(n * n) * sizeof(T)),
      rows(static_cast<std::size_t>(n) * sizeof(int64_t));
  T* w = scratch.as<T>();
  int64_t* order = rows.as<int64_t>();
  for (int64_t i = 0; i < n * n; ++i) w[i] = a[i];
  T negative = factor_lu(ops, w, n, order) ? T(-1) : T(1);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T u = w[i * n + i];
    negative *= u < 0 ? T(-1) : u > 0 ? T(1) : u;  // 0 and NaN as they are
    sum += scalar::log(static_cast<double>(magnitude(u)));
  }
  *sign = negative;
  *logdet = static_cast<T>(sum);
  if (inverse == nullptr) return;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) inverse[i * n + j] = T(order[i] == j);
  solve(ops, Triangle<T>{w, n, false, false, true}, n, inverse, n);
  solve(ops, Triangle<T>{w, n, true, false, false}, n, inverse, n);
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
      copy_bytes(from + i * n * k, to + i * n * k, n * k * int64_t{sizeof(T)});
      solve(*this, Triangle<T>{matrices + i * n * n, n, upper, transposed, unit}, n, to + i * n * k, k);
    });
  });
}

void CpuOps::invert(const Array& a, const Array* inverse, const Array& sign, const Array& logdet) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  dispatch_floating(a.dtype, [&]<class T>() {
    const T* from = a.as<T>();
    T *to = inverse != nullptr ? inverse->as<T>() : nullptr, *signs = sign.as<T>(), *logs = logdet.as<T>();
    for_each_matrix(batch, 2 * n * n * n, [=, this](int64_t i) {
      invert_one(*this, from + i * n * n, n, to != nullptr ? to + i * n * n : nullptr, signs + i, logs + i);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
