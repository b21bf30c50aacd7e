#include <type_traits>

#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/run_elements.h"
#include "reel/core/scalar/binary.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class Op>
inline constexpr bool kWraps =
    std::is_same_v<Op, scalar::Add> || std::is_same_v<Op, scalar::Sub> || std::is_same_v<Op, scalar::Mul>;

/// Op on elements. Integers wrap around; an integer divided by 0 gives 0 rather than a signal; bool8 gives result != 0.
template <class Op, class T>
REEL_INLINE auto apply(T a, T b) {
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

template <class Op, class T, class F>
REEL_INLINE void for_each_element(int64_t count, F f) {
  if constexpr (std::is_integral_v<T> && std::is_same_v<Op, scalar::Div>) {
    for (int64_t i = 0; i < count; ++i) f(i);  // no vectors divide integers
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) f(i);
  }
}

template <class Op, class T, bool fixed_a, bool fixed_b>
void run(const void* a, const void* b, void* y, int64_t count) {
  using Result = decltype(Op::forward(T(), T()));
  const T* from_a = static_cast<const T*>(a);
  const T* from_b = static_cast<const T*>(b);
  Result* to = static_cast<Result*>(y);
  if constexpr (fixed_a) {
    for_each_element<Op, T>(count, [=, first = *from_a](int64_t i) { to[i] = apply<Op>(first, from_b[i]); });
  } else if constexpr (fixed_b) {
    for_each_element<Op, T>(count, [=, second = *from_b](int64_t i) { to[i] = apply<Op>(from_a[i], second); });
  } else {
    for_each_element<Op, T>(count, [=](int64_t i) { to[i] = apply<Op>(from_a[i], from_b[i]); });
  }
}

template <class Op, class T>
constexpr Runs runs_of() {
  return {run<Op, T, false, false>, run<Op, T, false, true>, run<Op, T, true, false>};
}

// By dtype and op.
#define REEL_RUNS(name, Struct) runs_of<scalar::Struct, T>(),
template <class T>
struct Table {
  static constexpr Runs runs[] = {REEL_BINARY_OPS(REEL_RUNS)};
};
#undef REEL_RUNS
constexpr const Runs* kRuns[] = {Table<float>::runs,
                                 Table<double>::runs,
                                 nullptr,  // bf16
                                 nullptr,  // f16
                                 Table<std::int32_t>::runs,
                                 Table<int64_t>::runs,
                                 Table<std::uint8_t>::runs,
                                 Table<bool>::runs};

/// A plain number as an input of the other side's dtype, in `bytes`.
Input number(const Scalar& value, DType dtype, std::uint64_t& bytes) {
  dispatch_all(dtype, [&]<class T>() {
    const T element = convert_scalar<T>(value);
    __builtin_memcpy(&bytes, &element, sizeof element);
  });
  return {&bytes, nullptr, dtype, false};
}

/// Whether x has gaps along y's last axis, where a copy that knows tiles is faster than element by element.
bool is_transposed(const Array& x, const Array& y) {
  if (x.contiguous || y.rank() < 2 || y.size < 4096) return false;
  const int64_t inner = x.strides[y.rank() - 1];
  return inner != 0 && inner != 1;
}

}  // namespace

void CpuOps::binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) {
  const DType dtype = a.array ? a.array->dtype : b.array->dtype;
  if (is_half(dtype)) [[unlikely]]
    detail::refuse_half(dtype);
  const Runs& runs = kRuns[static_cast<int>(dtype)][static_cast<int>(op)];
  const auto size = static_cast<int64_t>(size_of(dtype)), size_y = static_cast<int64_t>(size_of(y.dtype));
  if (a.array && b.array) {
    if (a.array->contiguous && b.array->contiguous && y.contiguous) {
      run_contiguous(runs.arrays, a.array->data, size, b.array->data, size, y.data, size_y, y.size);
      return;
    }
    Input input_a = input_of(*a.array), input_b = input_of(*b.array);
    if (y.contiguous && y.dtype == dtype) {
      if (is_transposed(*a.array, y) && y.data != a.array->data && y.data != b.array->data) {
        copy(*a.array, y);
        input_a = input_of(y);
      } else if (is_transposed(*b.array, y) && y.data != a.array->data && y.data != b.array->data) {
        copy(*b.array, y);
        input_b = input_of(y);
      }
    }
    run_elements(runs, input_a, input_b, y);
    return;
  }
  std::uint64_t bytes = 0;
  const Array& array = a.array ? *a.array : *b.array;
  const Input fixed = number(a.array ? b.scalar : a.scalar, dtype, bytes);
  if (array.contiguous && y.contiguous) {
    if (a.array) {
      run_contiguous(runs.fixed_b, array.data, size, fixed.data, 0, y.data, size_y, y.size);
    } else {
      run_contiguous(runs.fixed_a, fixed.data, 0, array.data, size, y.data, size_y, y.size);
    }
  } else if (a.array) {
    run_elements(runs, input_of(array), fixed, y);
  } else {
    run_elements(runs, fixed, input_of(array), y);
  }
}

void CpuOps::accumulate(const Array& x, const Array& y) {
  binary(BinaryOp::add, {.array = &y, .scalar = {}}, {.array = &x, .scalar = {}}, y);
}

}  // namespace reel::cpu::REEL_CPU_ISA
