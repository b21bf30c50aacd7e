// Elementwise functions of two operands, by their layout once axes are in the order in which they lie in y and joined:
//   no gaps         packs, a kernel per formula and type
//   transposition   y is without gaps along one axis and an operand along another: tiles through shared memory
//   rows            the inner axis is without gaps or one value (a bias, a column): packs that look for their places
//   general         elements that look for their places
// The kernels of the last three hold all formulas: the op is the same for all threads.

#include <type_traits>

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/map.h"
#include "reel/backends/cuda/tile.h"
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

/// Integers are of no use to some formulas.
template <class Op, class T>
inline constexpr bool kTakes = !(scalar::kOfFractions<Op> && std::is_integral_v<T>);

/// f.template operator()<Op>() for the formula of an op.
#define REEL_CASE(name, Struct) \
  case BinaryOp::name:          \
    return f.template operator()<scalar::Struct>();
template <class F>
REEL_DEVICE void dispatch(BinaryOp op, F f) {
  switch (op) { REEL_BINARY_OPS(REEL_CASE) }
}
#undef REEL_CASE

template <class Op, class T>
using ResultOf = decltype(Op::forward(T(), T()));

/// An operand: elements, or a plain number where `data` is null.
template <class T>
struct Side {
  const T* data;
  T number;

  /// Elements i to i + n, or n times element i if not `along`.
  template <int n>
  REEL_DEVICE Pack<T, n> at(int64_t i, bool along = true) const {
    if (data != nullptr && along) return load_pack<T, n>(data + i);
    return splat<n>(data != nullptr ? data[i] : number);
  }
};

template <class Op, class T, int n>
REEL_DEVICE void write_result(void* y, int64_t i, const TwoPacks<T, n>& from) {
  Pack<ResultOf<Op, T>, n> result;
  REEL_UNROLL
  for (int k = 0; k < n; ++k) result.v[k] = apply<Op>(from.a.v[k], from.b.v[k]);
  write_pack(static_cast<ResultOf<Op, T>*>(y) + i, result);
}

/// All without gaps.
template <class Op, class T>
__global__ void binary_packed(Side<T> a, Side<T> b, void* y, Units<T> units) {
  const auto load = [=]<int n>(int64_t i) { return TwoPacks<T, n>{a.template at<n>(i), b.template at<n>(i)}; };
  for_each_unit<kMapSteps>(units, load,
                           [=]<int n>(int64_t i, const TwoPacks<T, n>& from) { write_result<Op>(y, i, from); });
}

template <class T, int n>
struct ThreePacks {
  Pack<T, n> a, b, dy;
};

/// da = dy f_a(a, b), db = dy f_b(a, b), each null if not wanted; all without gaps.
template <class Op, class T>
__global__ void binary_backward(Side<T> a, Side<T> b, const T* dy, T* da, T* db, Units<T> units) {
  const auto load = [=]<int n>(int64_t i) {
    return ThreePacks<T, n>{a.template at<n>(i), b.template at<n>(i), load_pack<T, n>(dy + i)};
  };
  for_each_unit<kMapSteps>(units, load, [=]<int n>(int64_t i, const ThreePacks<T, n>& from) {
    Pack<T, n> left, right;
    REEL_UNROLL
    for (int k = 0; k < n; ++k) {
      left.v[k] = from.dy.v[k] * Op::left(from.a.v[k], from.b.v[k]);
      right.v[k] = from.dy.v[k] * Op::right(from.a.v[k], from.b.v[k]);
    }
    if (da != nullptr) write_pack(da + i, left);
    if (db != nullptr) write_pack(db + i, right);
  });
}

/// A few packs of n elements per thread, at the places of `walk`.
template <class T, int n>
__global__ void binary_strided(BinaryOp op, Side<T> a, Side<T> b, void* y, const __grid_constant__ Walk<3> walk) {
  TwoPacks<T, n> from[kMapSteps];
  int64_t to[kMapSteps];
  for_each_place<kMapSteps>(walk, [&](int s, const int64_t(&at)[3]) {
    from[s] = {a.template at<n>(at[0], walk.strides[0][0] != 0), b.template at<n>(at[1], walk.strides[1][0] != 0)};
    to[s] = at[2];
  });
  dispatch(op, [&]<class Op>() {
    if constexpr (kTakes<Op, T>) for_each_step<kMapSteps>(walk, [&](int s) { write_result<Op>(y, to[s], from[s]); });
  });
}

template <class T>
REEL_DEVICE TilePart<T> read_tile(const Side<T>& side, const Tiling<3>& tiling, int k, int64_t at, int64_t row,
                                  int64_t col) {
  TilePart<T> part = {};
  if (side.data == nullptr) {
    REEL_UNROLL
    for (int s = 0; s < TilePart<T>::kSteps; ++s) part.v[s] = side.number;
    return part;
  }
  for_each_of_tile<T>(tiling, k, tiling.turned[k], row, col,
                      [&](int s, int64_t offset) { part.v[s] = side.data[at + offset]; });
  return part;
}

/// Long formulas need too many registers to be unrolled over a tile.
template <class Op>
inline constexpr bool kTurns = !std::is_same_v<Op, scalar::Pow> && !scalar::kOfFractions<Op>;
#define REEL_TURNS(name, Struct) kTurns<scalar::Struct>,
inline constexpr bool kCanTurn[] = {REEL_BINARY_OPS(REEL_TURNS)};
#undef REEL_TURNS

/// A tile per block.
template <class T>
__global__ void __launch_bounds__(kTileThreads, resident_blocks(kTileThreads, sizeof(T) <= 4 ? 3 : 2))
    binary_turned(BinaryOp op, Side<T> a, Side<T> b, void* y, const __grid_constant__ Tiling<3> tiling) {
  REEL_DYNAMIC_SHARED(Cell<T>, tile);
  const TileCorner corner = tile_corner<T>(tiling);
  for (uint32_t other = blockIdx.y; other < tiling.other_count; other += gridDim.y) {
    int64_t at[3];
    find(tiling.others, other, at);
    TilePart<T> from_a = read_tile(a, tiling, 0, at[0], corner.row, corner.col),
                from_b = read_tile(b, tiling, 1, at[1], corner.row, corner.col);
    if (tiling.turned[0]) turn(from_a, tile);
    if (tiling.turned[1]) turn(from_b, tile);
    dispatch(op, [&]<class Op>() {
      if constexpr (kTurns<Op>) {
        auto* const to = static_cast<ResultOf<Op, T>*>(y);
        for_each_of_tile<T>(tiling, 2, false, corner.row, corner.col,
                            [&](int s, int64_t offset) { to[at[2] + offset] = apply<Op>(from_a.v[s], from_b.v[s]); });
      }
    });
  }
}

}  // namespace
}  // namespace device

namespace {

template <class T>
device::Side<T> side_of(const Operand& operand) {
  return operand.array != nullptr ? device::Side<T>{operand.array->as<T>(), T()}
                                  : device::Side<T>{nullptr, convert_scalar<T>(operand.scalar)};
}

template <class T>
using PackedKernel = void (*)(device::Side<T>, device::Side<T>, void*, Units<T>);

template <class Op, class T>
constexpr PackedKernel<T> packed_kernel() {
  if constexpr (device::kTakes<Op, T>) {
    return &device::binary_packed<Op, T>;
  } else {
    return nullptr;
  }
}
#define REEL_KERNEL(name, Struct) packed_kernel<scalar::Struct, T>(),
template <class T>
constexpr PackedKernel<T> kPacked[] = {REEL_BINARY_OPS(REEL_KERNEL)};
#undef REEL_KERNEL

template <class T>
using BackwardKernel = void (*)(device::Side<T>, device::Side<T>, const T*, T*, T*, Units<T>);

template <class Op, class T>
constexpr BackwardKernel<T> backward_kernel() {
  if constexpr (scalar::HasSlopes<Op>) {
    return &device::binary_backward<Op, T>;
  } else {
    return nullptr;
  }
}
#define REEL_KERNEL(name, Struct) backward_kernel<scalar::Struct, T>(),
template <class T>
constexpr BackwardKernel<T> kBackward[] = {REEL_BINARY_OPS(REEL_KERNEL)};
#undef REEL_KERNEL

bool has_gaps(const Operand& operand) { return operand.array != nullptr && !operand.array->contiguous; }

const int64_t* strides_of(const Operand& operand) {
  return operand.array != nullptr ? operand.array->strides : nullptr;
}

/// y from operands of fewer than 2^31 elements that are walked together.
template <class T>
void strided(const Context& context, BinaryOp op, const device::Side<T>& a, const device::Side<T>& b, void* y,
             std::size_t result_size, const Nest<3>& nest) {
  if (const int axis = turned_axis(nest); axis >= 0 && device::kCanTurn[static_cast<int>(op)]) {
    const Tiling<3> tiling = tiling_of(nest, axis, kTile<T>);
    launch(context, "binary", tile_grid<T>(tiling), &device::binary_turned<T>, op, a, b, y, tiling);
    return;
  }
  const auto run = [&]<int n>() {
    const Walk<3> walk(nest, n);
    launch(context, "binary", walk_grid(walk, device::kMapSteps), &device::binary_strided<T, n>, op, a, b, y, walk);
  };
  moves_in_packs(nest, kPack<T>, {a.data, b.data, y}, {sizeof(T), sizeof(T), result_size})
      ? run.template operator()<kPack<T>>()
      : run.template operator()<1>();
}

}  // namespace

void CudaOps::binary(BinaryOp op, const Operand& a, const Operand& b, const Array& y) {
  if (y.size == 0) return;
  const DType dtype = a.array != nullptr ? a.array->dtype : b.array->dtype;
  dispatch_all(dtype, [&]<class T>() {
    const device::Side<T> left = side_of<T>(a), right = side_of<T>(b);
    if (!has_gaps(a) && !has_gaps(b) && y.contiguous) {
      const Units<T> units = map_units<T>(left.data, right.data, y);
      launch(context_, "binary", units.grid(device::kMapSteps), kPacked<T>[static_cast<int>(op)], left, right, y.data,
             units);
      return;
    }
    const auto part = [&](const Nest<3>& nest, const int64_t(&at)[3]) {
      device::Side<T> from_a = left, from_b = right;
      if (from_a.data != nullptr) from_a.data += at[0];
      if (from_b.data != nullptr) from_b.data += at[1];
      const std::size_t size = size_of(y.dtype);
      strided<T>(context_, op, from_a, from_b, y.as<char>() + at[2] * static_cast<int64_t>(size), size, nest);
    };
    for_each_part(nest_in_order_of<3>(y, y.shape, {strides_of(a), strides_of(b), y.strides}), part, {0, 0, 0});
  });
}

void CudaOps::binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Array& dy, const Array* da,
                              const Array* db) {
  if (dy.size == 0) return;
  dispatch_floating(dy.dtype, [&]<class T>() {
    const device::Side<T> left = side_of<T>(a), right = side_of<T>(b);
    T *const to_a = data_of<T>(da), *const to_b = data_of<T>(db);
    const Units<T> units = units_of<T>(0, dy.size, in_packs<T>({left.data, right.data, dy.data, to_a, to_b}));
    launch(context_, "binary_backward", units.grid(device::kMapSteps), kBackward<T>[static_cast<int>(op)], left, right,
           dy.as<T>(), to_a, to_b, units);
  });
}

void CudaOps::accumulate(const Array& x, const Array& y) {
  binary(BinaryOp::add, {.array = &y, .scalar = {}}, {.array = &x, .scalar = {}}, y);
}

}  // namespace reel::cuda
