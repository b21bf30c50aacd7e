// Gated units: each row of x is a | b, the row of y is a f(b). A thread takes packs of 16 bytes where rows are made of such,
// else elements.

#include <algorithm>

#include "reel/backends/cuda/map.h"
#include "reel/core/scalar/gates.h"

namespace reel::cuda {

namespace device {
namespace {

/// f.template operator()<Gate>() for the function of the second half.
template <class F>
REEL_DEVICE void dispatch(GateOp op, F f) {
  switch (op) {
    case GateOp::sigmoid:
      return f.template operator()<scalar::SigmoidGate>();
    case GateOp::gelu:
      return f.template operator()<scalar::GeluGate>();
    case GateOp::silu:
      return f.template operator()<scalar::SiluGate>();
  }
}

/// The rows [count, n] of y in packs of `width` elements, fewer than 2^31.
struct GatedRows {
  Divisor packs_per_row;
  uint32_t packs;
  int64_t n;

  /// Where the pack's elements of a are in x.
  REEL_DEVICE int64_t place(uint32_t pack, int width) const {
    return (int64_t{pack} + int64_t{packs_per_row.quotient(pack)} * packs_per_row.size) * width;
  }
};

REEL_DEVICE uint32_t first_pack() { return blockIdx.x * (kMapThreads * kMapSteps) + threadIdx.x; }

template <class T, int width>
__global__ void gated(GateOp op, const T* x, T* y, GatedRows rows) {
  TwoPacks<T, width> from[kMapSteps];
  REEL_UNROLL
  for (int s = 0; s < kMapSteps; ++s) {
    const uint32_t pack = first_pack() + s * kMapThreads;
    if (pack >= rows.packs) break;
    const T* const a = x + rows.place(pack, width);
    from[s] = {load_pack<T, width>(a), load_pack<T, width>(a + rows.n)};
  }
  dispatch(op, [&]<class Gate>() {
    REEL_UNROLL
    for (int s = 0; s < kMapSteps; ++s) {
      const uint32_t pack = first_pack() + s * kMapThreads;
      if (pack >= rows.packs) break;
      Pack<T, width> result;
      REEL_UNROLL
      for (int k = 0; k < width; ++k) result.v[k] = Gate::forward(from[s].a.v[k], from[s].b.v[k]);
      write_pack(y + int64_t{pack} * width, result);
    }
  });
}

template <class T, int width>
__global__ void gated_backward(GateOp op, const T* x, const T* dy, T* dx, GatedRows rows) {
  TwoPacks<T, width> from[kMapSteps];
  Pack<T, width> grad[kMapSteps];
  REEL_UNROLL
  for (int s = 0; s < kMapSteps; ++s) {
    const uint32_t pack = first_pack() + s * kMapThreads;
    if (pack >= rows.packs) break;
    const T* const a = x + rows.place(pack, width);
    from[s] = {load_pack<T, width>(a), load_pack<T, width>(a + rows.n)};
    grad[s] = load_pack<T, width>(dy + int64_t{pack} * width);
  }
  dispatch(op, [&]<class Gate>() {
    using F = typename Gate::Function;
    REEL_UNROLL
    for (int s = 0; s < kMapSteps; ++s) {
      const uint32_t pack = first_pack() + s * kMapThreads;
      if (pack >= rows.packs) break;
      Pack<T, width> da, db;
      REEL_UNROLL
      for (int k = 0; k < width; ++k) {
        const T a = from[s].a.v[k], b = from[s].b.v[k], dy_k = grad[s].v[k], value = F::forward(b);
        da.v[k] = dy_k * value;
        db.v[k] = dy_k * a * F::derivative(F::saved == scalar::Saved::output ? value : b);
      }
      T* const to = dx + rows.place(pack, width);
      write_pack(to, da);
      write_pack(to + rows.n, db);
    }
  });
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<T, width>(first row, first column, rows, grid) for packs in which rows of n elements at these addresses
/// can be moved: some rows at a time, or a part of one that has 2^31 packs and more.
template <class F>
void for_row_packs(DType dtype, int64_t rows, int64_t n, std::initializer_list<const void*> addresses, F&& f) {
  if (rows == 0 || n == 0) return;
  dispatch_floating(dtype, [&]<class T>() {
    const auto run = [&]<int width>() {
      constexpr int64_t most = (int64_t{1} << 31) - 1;
      const int64_t packs = n / width, span = std::min(packs, most), together = most / span;
      for (int64_t row = 0; row < rows; row += together)
        for (int64_t first = 0; first < packs; first += span) {
          const int64_t count = std::min(rows - row, together) * std::min(packs - first, span);
          const Grid grid{.blocks = ceil_div(count, kMapThreads * device::kMapSteps), .threads = kMapThreads};
          const device::GatedRows part{Divisor(span), static_cast<uint32_t>(count), n};
          f.template operator()<T, width>(row, first * width, part, grid);
        }
    };
    in_packs<T>(addresses, {n}) ? run.template operator()<kPack<T>>() : run.template operator()<1>();
  });
}

}  // namespace

void CudaOps::gated(GateOp op, const Array& x, const Array& y) {
  const int64_t n = y.shape.back();
  for_row_packs(x.dtype, y.shape[0], n, {x.data, y.data},
                [&]<class T, int width>(int64_t row, int64_t column, const device::GatedRows& rows, const Grid& grid) {
                  launch(context_, "gated", grid, &device::gated<T, width>, op, x.as<T>() + row * 2 * n + column,
                         y.as<T>() + row * n + column, rows);
                });
}

void CudaOps::gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) {
  const int64_t n = dy.shape.back();
  for_row_packs(x.dtype, dy.shape[0], n, {x.data, dy.data, dx.data},
                [&]<class T, int width>(int64_t row, int64_t column, const device::GatedRows& rows, const Grid& grid) {
                  launch(context_, "gated_backward", grid, &device::gated_backward<T, width>, op,
                         x.as<T>() + row * 2 * n + column, dy.as<T>() + row * n + column,
                         dx.as<T>() + row * 2 * n + column, rows);
                });
}

}  // namespace reel::cuda
