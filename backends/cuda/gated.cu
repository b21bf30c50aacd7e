// Gated units: each row of x is a | b, the row of y is a f(b). A thread takes 16 bytes of a row where rows are made of such,
// else an element.

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/unary.h"

namespace reel::cuda {

namespace device {
namespace {

/// f.template operator()<Gate>() for the function of the second half.
template <class F>
REEL_DEVICE void dispatch(GateOp op, F f) {
  switch (op) {
    case GateOp::sigmoid:
      return f.template operator()<scalar::Sigmoid>();
    case GateOp::gelu:
      return f.template operator()<scalar::Gelu>();
    case GateOp::silu:
      return f.template operator()<scalar::Silu>();
  }
}

/// f(first element of a in x, first element of y) for the packs of `count` elements of [rows, n].
template <int count, class F>
REEL_DEVICE void for_each_pack(int64_t rows, int64_t n, F f) {
  const int64_t packs = n / count;
  for (int64_t i = first_unit(); i < rows * packs; i += unit_step()) f((i + i / packs * packs) * count, i * count);
}

template <class T, int count>
__global__ void gated(GateOp op, const T* x, T* y, int64_t rows, int64_t n) {
  dispatch(op, [&]<class Gate>() {
    for_each_pack<count>(rows, n, [&](int64_t from, int64_t to) {
      const Pack<T, count> a = load_pack<T, count>(x + from), b = load_pack<T, count>(x + from + n);
      Pack<T, count> result;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) result.v[k] = a.v[k] * Gate::forward(b.v[k]);
      store_pack(y + to, result);
    });
  });
}

template <class T, int count>
__global__ void gated_backward(GateOp op, const T* x, const T* dy, T* dx, int64_t rows, int64_t n) {
  dispatch(op, [&]<class Gate>() {
    for_each_pack<count>(rows, n, [&](int64_t from, int64_t to) {
      const Pack<T, count> a = load_pack<T, count>(x + from), b = load_pack<T, count>(x + from + n);
      const Pack<T, count> grad = load_pack<T, count>(dy + to);
      Pack<T, count> da, db;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        const T value = Gate::forward(b.v[k]);
        da.v[k] = grad.v[k] * value;
        db.v[k] = grad.v[k] * a.v[k] * Gate::derivative(Gate::saved == scalar::Saved::output ? value : b.v[k]);
      }
      store_pack(dx + from, da);
      store_pack(dx + from + n, db);
    });
  });
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<T, count>() for the packs in which rows of n elements at these addresses can be moved.
template <class F>
void dispatch_pack(DType dtype, int64_t n, std::initializer_list<const void*> addresses, F&& f) {
  dispatch_floating(dtype, [&]<class T>() {
    bool packed = n % kPack<T> == 0;
    for (const void* address : addresses) packed = packed && is_aligned(address, 1, kPackBytes);
    packed ? f.template operator()<T, kPack<T>>() : f.template operator()<T, 1>();
  });
}

}  // namespace

void CudaOps::gated(GateOp op, const Array& x, const Array& y) {
  const int64_t rows = y.shape[0], n = y.shape.back();
  dispatch_pack(x.dtype, n, {x.data, y.data}, [&]<class T, int count>() {
    launch(context_, "gated", grid_for(context_, y.size / count), &device::gated<T, count>, op, x.as<T>(), y.as<T>(),
           rows, n);
  });
}

void CudaOps::gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) {
  const int64_t rows = dy.shape[0], n = dy.shape.back();
  dispatch_pack(x.dtype, n, {x.data, dy.data, dx.data}, [&]<class T, int count>() {
    launch(context_, "gated_backward", grid_for(context_, dy.size / count), &device::gated_backward<T, count>, op,
           x.as<T>(), dy.as<T>(), dx.as<T>(), rows, n);
  });
}

}  // namespace reel::cuda
