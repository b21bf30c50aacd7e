#include <type_traits>

#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/long_formula.h"
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

/// Powers, and formulas of fractions alone, take tens of instructions.
template <class Op, class T>
inline constexpr bool kIsLong = std::is_floating_point_v<T> &&
                                (std::is_same_v<Op, scalar::Pow> || scalar::kOfFractions<Op>);

/// (Not inlined: the loop of an op with its operands exchanged calls that of the other op.)
template <class Op, class T, bool fixed_a, bool fixed_b>
__attribute__((noinline)) void run(const void* a, const void* b, void* y, int64_t count) {
  using Result = decltype(Op::forward(T(), T()));
  const T* from_a = static_cast<const T*>(a);
  const T* from_b = static_cast<const T*>(b);
  Result* to = static_cast<Result*>(y);
  const T number = fixed_a ? *from_a : fixed_b ? *from_b : T();
  const auto op = [=](T a_i, T b_i) __attribute__((always_inline)) {
    return apply<Op>(fixed_a ? number : a_i, fixed_b ? number : b_i);
  };
  if (fixed_a) from_a = from_b;  // from here on any array
  if (fixed_b) from_b = from_a;
  if constexpr (kIsLong<Op, T>) {
    long_formula(count, from_a, from_b, to, op);
  } else if constexpr (std::is_integral_v<T> && std::is_same_v<Op, scalar::Div>) {
    for (int64_t i = 0; i < count; ++i) to[i] = op(from_a[i], from_b[i]);  // no vectors divide integers
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = op(from_a[i], from_b[i]);
  }
}

/// The loop of an op that is another one with its operands exchanged.
template <Run run>
void exchanged(const void* a, const void* b, void* y, int64_t count) {
  run(b, a, y, count);
}

/// y = run(number, array), or run(array, number) if not `first`: the loop over two arrays, one of copies of the number.
__attribute__((noinline)) void run_copies(Run run, const void* number, bool first, const void* array, void* y,
                                          int64_t count, int64_t size, int64_t size_y) {
  alignas(64) char copies[2048];
  const int64_t piece = min(count, static_cast<int64_t>(sizeof copies) / size);
  fill_copies(copies, number, size, piece * size);
  for (int64_t i = 0; i < count; i += piece) {
    const char* const part = static_cast<const char*>(array) + i * size;
    run(first ? copies : part, first ? part : copies, static_cast<char*>(y) + i * size_y, min(piece, count - i));
  }
}

/// Where a loop of its own for a plain number would not pay. (For a power it would even cost: what depends on the exponent alone
/// is made into branches, and the loop is not vectorised.)
template <class Op, class T>
inline constexpr bool kSeldomWithNumber =
    is_one_of<Op, scalar::Pow, scalar::ReluMask> || scalar::kOfFractions<Op> ||
    (std::is_integral_v<T> && (sizeof(T) == 1 || is_one_of<Op, scalar::Maximum, scalar::Minimum, scalar::Div>));

/// The loop for a plain number there.
template <class Op, class T, bool fixed_a>
void with_copies(const void* a, const void* b, void* y, int64_t count) {
  run_copies(run<Op, T, false, false>, fixed_a ? a : b, fixed_a, fixed_a ? b : a, y, count, sizeof(T),
             sizeof(Op::forward(T(), T())));
}

/// None for integers where the formula takes none. Those of bool8 are those of its bytes, where 0 and 1 give 0 or 1 and it pays:
/// g++ makes no vectors of `bool`.
template <class Op, class T>
constexpr Runs runs_of() {
  if constexpr (scalar::kOfFractions<Op> && std::is_integral_v<T>) {
    return {};
  } else if constexpr (std::is_same_v<T, bool> &&
                       (std::is_same_v<decltype(Op::forward(0, 0)), bool> ||
                        is_one_of<Op, scalar::Maximum, scalar::Minimum, scalar::Mul, scalar::ReluMask>)) {
    return runs_of<Op, std::uint8_t>();
  } else if constexpr (is_one_of<Op, scalar::Greater, scalar::GreaterEqual>) {
    using Other = std::conditional_t<std::is_same_v<Op, scalar::Greater>, scalar::Less, scalar::LessEqual>;
    constexpr Runs other = runs_of<Other, T>();
    return {exchanged<other.arrays>, exchanged<other.fixed_a>, exchanged<other.fixed_b>};
  } else if constexpr (kSeldomWithNumber<Op, T>) {
    return {run<Op, T, false, false>, with_copies<Op, T, false>, with_copies<Op, T, true>};
  } else if constexpr (is_one_of<Op, scalar::Equal, scalar::NotEqual> ||
                       (std::is_integral_v<T> && is_one_of<Op, scalar::Add, scalar::Mul>)) {  // commute
    return {run<Op, T, false, false>, run<Op, T, false, true>, exchanged<run<Op, T, false, true>>};
  } else {
    return {run<Op, T, false, false>, run<Op, T, false, true>, run<Op, T, true, false>};
  }
}

// By dtype and op.
#define REEL_RUNS(name, Struct) runs_of<scalar::Struct, T>(),
template <class T>
struct Table {
  static constexpr Runs runs[] = {REEL_BINARY_OPS(REEL_RUNS)};
};
#undef REEL_RUNS
#define REEL_IS_LONG(name, Struct) kIsLong<scalar::Struct, double>,
constexpr bool kLong[] = {REEL_BINARY_OPS(REEL_IS_LONG)};
#undef REEL_IS_LONG
constexpr const Runs* kRuns[] = {Table<float>::runs,
                                 Table<double>::runs,
                                 nullptr,  // bf16
                                 nullptr,  // f16
                                 Table<std::int32_t>::runs,
                                 Table<int64_t>::runs,
                                 Table<std::uint8_t>::runs,
                                 Table<bool>::runs};

/// da = dy f_a(a, b), db = dy f_b(a, b).
using Slopes = void (*)(const void* a, const void* b, const void* dy, void* da, void* db, int64_t count);

template <class Op, class T>
__attribute__((noinline)) void slopes(const void* a, const void* b, const void* dy, void* da, void* db, int64_t count) {
  const T *const from_a = static_cast<const T*>(a), *const from_b = static_cast<const T*>(b);
  const T* const grads = static_cast<const T*>(dy);
  T *const to_a = static_cast<T*>(da), *const to_b = static_cast<T*>(db);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T x = from_a[i], z = from_b[i], grad = grads[i];
    to_a[i] = grad * Op::left(x, z);
    to_b[i] = grad * Op::right(x, z);
  }
}
template <class Op, class T>
constexpr Slopes slopes_of() {
  if constexpr (scalar::HasSlopes<Op>) {
    return slopes<Op, T>;
  } else {
    return nullptr;
  }
}
#define REEL_SLOPES(name, Struct) slopes_of<scalar::Struct, T>(),
template <class T>
constexpr Slopes kSlopes[] = {REEL_BINARY_OPS(REEL_SLOPES)};
#undef REEL_SLOPES

/// A plain number as an input of the other side's dtype, in `bytes`.
Input number(const Scalar& value, DType dtype, std::uint64_t& bytes) {
  dispatch_all(dtype, [&]<class T>() {
    const T element = convert_scalar<T>(value);
    __builtin_memcpy(&bytes, &element, sizeof element);
  });
  return {&bytes, nullptr, dtype, false};
}

}  // namespace

void CpuOps::binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) {
  const DType dtype = a.array ? a.array->dtype : b.array->dtype;
  if (is_half(dtype)) [[unlikely]]
    detail::refuse_half(dtype);
  const Runs& runs = kRuns[static_cast<int>(dtype)][static_cast<int>(op)];
  const auto size = static_cast<int64_t>(size_of(dtype)), size_y = static_cast<int64_t>(size_of(y.dtype));
  const int64_t alone = is_floating(dtype) && kLong[static_cast<int>(op)] ? alone_with_formula(dtype) : kAlone;
  if (a.array && b.array) {
    if (a.array->contiguous && b.array->contiguous && y.contiguous) {
      run_contiguous(runs.arrays, a.array->data, size, b.array->data, size, y.data, size_y, y.size, nullptr, alone);
      return;
    }
    run_elements(runs, input_of(*a.array), input_of(*b.array), y);
    return;
  }
  std::uint64_t bytes = 0;
  const Array& array = a.array ? *a.array : *b.array;
  const Input fixed = number(a.array ? b.scalar : a.scalar, dtype, bytes);
  if (array.contiguous && y.contiguous) {
    if (a.array) {
      run_contiguous(runs.fixed_b, array.data, size, fixed.data, 0, y.data, size_y, y.size, nullptr, alone);
    } else {
      run_contiguous(runs.fixed_a, fixed.data, 0, array.data, size, y.data, size_y, y.size, nullptr, alone);
    }
  } else if (a.array) {
    run_elements(runs, input_of(array), fixed, y);
  } else {
    run_elements(runs, fixed, input_of(array), y);
  }
}

void CpuOps::binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Array& dy, const Array* da,
                             const Array* db) {
  dispatch_floating(dy.dtype, [&]<class T>() {
    const Slopes run = kSlopes<T>[static_cast<int>(op)];
    parallel_for(dy.size, even_chunk(dy.size), [&](int64_t begin, int64_t end) {
      // What is a plain number or not wanted has one place, and all go a piece at a time.
      constexpr int64_t kPiece = 1024 / static_cast<int64_t>(sizeof(T));
      T numbers[kPiece], unwanted[kPiece];
      const auto filled = [&](const Operand& side) {
        if (side.array != nullptr) return;
        for (T& number : numbers) number = convert_scalar<T>(side.scalar);
      };
      filled(a);
      filled(b);
      const bool whole = a.array != nullptr && b.array != nullptr && da != nullptr && db != nullptr;
      const int64_t step = whole ? end - begin : kPiece;
      for (int64_t i = begin; i < end; i += step)
        run(a.array != nullptr ? a.array->as<T>() + i : numbers, b.array != nullptr ? b.array->as<T>() + i : numbers,
            dy.as<T>() + i, da != nullptr ? da->as<T>() + i : unwanted, db != nullptr ? db->as<T>() + i : unwanted,
            min(step, end - i));
    });
  });
}

void CpuOps::accumulate(const Array& x, const Array& y) {
  binary(BinaryOp::add, {.array = &y, .scalar = {}}, {.array = &x, .scalar = {}}, y);
}

}  // namespace reel::cpu::REEL_CPU_ISA
