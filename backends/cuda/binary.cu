// Elementwise functions of two operands. One kernel per element type holds all formulas: they are bound by memory, and the
// op is the same for all threads.

#include <type_traits>

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/binary.h"

namespace reel::cuda {

namespace device {
namespace {

template <class Op>
inline constexpr bool kWraps =
    std::is_same_v<Op, scalar::Add> || std::is_same_v<Op, scalar::Sub> || std::is_same_v<Op, scalar::Mul>;

/// Op on elements. Integers wrap around; an integer divided by 0 gives 0; bool8 gives result != 0.
template <class Op, class T>
REEL_DEVICE auto apply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    using Result = decltype(Op::forward(a, b));
    return static_cast<Result>(apply<Op>(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)) != 0);
  } else if constexpr (std::is_integral_v<T> && kWraps<Op>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(Op::forward(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  } else if constexpr (std::is_integral_v<T> && std::is_same_v<Op, scalar::Div>) {
    if (b == 0) return T(0);
    if (b == static_cast<T>(-1) && std::is_signed_v<T>) return apply<scalar::Sub>(T(0), a);  // -lowest wraps
    return static_cast<T>(a / b);
  } else {
    return Op::forward(a, b);
  }
}

/// f.template operator()<Op>() for the formula of an op.
#define REEL_CASE(name, Struct) \
  case BinaryOp::name:          \
    return f.template operator()<scalar::Struct>();
template <class F>
REEL_DEVICE void dispatch(BinaryOp op, F f) {
  switch (op) { REEL_BINARY_OPS(REEL_CASE) }
}
#undef REEL_CASE

/// An operand: elements, or a plain number where `data` is null.
template <class T>
struct Side {
  const T* data;
  T number;

  REEL_DEVICE T at(int64_t i) const { return data != nullptr ? data[i] : number; }
  REEL_DEVICE Pack<T> pack_at(int64_t i) const {
    if (data != nullptr) return load_pack<T, kPack<T>>(data + i);
    Pack<T> pack;
    REEL_UNROLL
    for (int k = 0; k < kPack<T>; ++k) pack.v[k] = number;
    return pack;
  }
};

/// y [count] from operands without gaps at 16-byte boundaries; a pack per thread and step, the last elements one by one.
template <class T>
__global__ void binary_packed(BinaryOp op, Side<T> a, Side<T> b, void* y, int64_t count) {
  dispatch(op, [&]<class Op>() {
    using Result = decltype(Op::forward(T(), T()));
    Result* const to = static_cast<Result*>(y);
    const int64_t packs = count / kPack<T>;
    for (int64_t i = first_unit(); i < packs; i += unit_step()) {
      const Pack<T> from_a = a.pack_at(i * kPack<T>), from_b = b.pack_at(i * kPack<T>);
      Pack<Result, kPack<T>> result;
      REEL_UNROLL
      for (int k = 0; k < kPack<T>; ++k) result.v[k] = apply<Op>(from_a.v[k], from_b.v[k]);
      store_pack(to + i * kPack<T>, result);
    }
    const int64_t last = packs * kPack<T> + first_unit();
    if (last < count) to[last] = apply<Op>(a.at(last), b.at(last));
  });
}

/// One element per thread and step.
template <class T>
__global__ void binary_strided(BinaryOp op, Side<T> a, Side<T> b, void* y, const __grid_constant__ Nest<3> nest,
                               uint32_t count) {
  dispatch(op, [&]<class Op>() {
    auto* const to = static_cast<decltype(Op::forward(T(), T()))*>(y);
    for (int64_t i = first_unit(); i < count; i += unit_step()) {
      int64_t at[3];
      find(nest, static_cast<uint32_t>(i), at);
      to[at[2]] = apply<Op>(a.at(at[0]), b.at(at[1]));
    }
  });
}

}  // namespace
}  // namespace device

namespace {

template <class T>
device::Side<T> side_of(const Operand& operand) {
  return operand.array != nullptr ? device::Side<T>{operand.array->as<T>(), T()}
                                  : device::Side<T>{nullptr, convert_scalar<T>(operand.scalar)};
}

bool packs(const Operand& operand) {
  return operand.array == nullptr || (operand.array->contiguous && is_aligned(operand.array->data, 1, kPackBytes));
}

const int64_t* strides_of(const Operand& operand) {
  return operand.array != nullptr ? operand.array->strides : nullptr;
}

}  // namespace

void CudaOps::binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) {
  if (y.size == 0) return;
  const DType dtype = a.array != nullptr ? a.array->dtype : b.array->dtype;
  dispatch_all(dtype, [&]<class T>() {
    const device::Side<T> left = side_of<T>(a), right = side_of<T>(b);
    if (packs(a) && packs(b) && y.contiguous && is_aligned(y.data, 1, kPackBytes)) {
      launch(context_, "binary", grid_for(context_, ceil_div(y.size, kPack<T>)), &device::binary_packed<T>, op, left,
             right, y.data, y.size);
      return;
    }
    const auto part = [&](const Nest<3>& nest, const int64_t(&at)[3]) {
      device::Side<T> from_a = left, from_b = right;
      if (from_a.data != nullptr) from_a.data += at[0];
      if (from_b.data != nullptr) from_b.data += at[1];
      launch(context_, "binary", grid_for(context_, nest.size()), &device::binary_strided<T>, op, from_a, from_b,
             y.as<char>() + at[2] * static_cast<int64_t>(size_of(y.dtype)), nest, static_cast<uint32_t>(nest.size()));
    };
    for_each_part(nest_in_order_of<3>(y, y.shape, {strides_of(a), strides_of(b), y.strides}), part, {0, 0, 0});
  });
}

void CudaOps::accumulate(const Array& x, const Array& y) {
  binary(BinaryOp::add, {.array = &y, .scalar = {}}, {.array = &x, .scalar = {}}, y);
}

}  // namespace reel::cuda
