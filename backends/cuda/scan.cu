// Running sums and products, and s = factor s + x, down lines of elements. A thread takes a run of neighbouring elements of a
// line, row lanes of the block the runs that follow each other, and the block walks on from tile to tile. What a run does to
// the state is joined over the row lanes; then each thread goes through its run once more, from registers: one read, one
// write. Where there are too few lines to fill the GPU they are cut into pieces: a first pass finds what each piece does to
// the state. The state of floats is in f64, and joined in an order that the sizes decide. Where the factors' product over a
// run leaves the range of f64, or the state is infinite and their product 0, NaN may come out where a single chain has none.
// Gradients are a scan the other way, of the gradient of the state after each element, beside the states before them in f64.

#include "reel/backends/cuda/scan.h"

#include "reel/backends/cuda/group.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kRun = 8;

template <class T>
using State = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

// Each kind of scan: what a run does to the state (Step), how two such are joined, the state after all from the start, and
// the next state. Y: what results are written as.

template <class S>
struct Sums {
  using Step = S;
  static constexpr bool kGradients = false;
  static constexpr bool kFactors = false;
  REEL_DEVICE static Step identity() { return 0; }
  REEL_DEVICE static Step of(S x, S) { return x; }
  REEL_DEVICE static Step join(Step a, Step b) { return a + b; }
  REEL_DEVICE static S state(Step a) { return a; }
  REEL_DEVICE static S next(S state, S x, S) { return state + x; }
};

template <class S>
struct Products {
  using Step = S;
  static constexpr bool kGradients = false;
  static constexpr bool kFactors = false;
  REEL_DEVICE static Step identity() { return 1; }
  REEL_DEVICE static Step of(S x, S) { return x; }
  REEL_DEVICE static Step join(Step a, Step b) { return a * b; }
  REEL_DEVICE static S state(Step a) { return a; }
  REEL_DEVICE static S next(S state, S x, S) { return state * x; }
};

struct Affine {
  double factor, offset;
};
struct Recurrences {
  using Step = Affine;
  static constexpr bool kGradients = false;
  static constexpr bool kFactors = true;
  REEL_DEVICE static Step identity() { return {1, 0}; }
  REEL_DEVICE static Step of(double x, double factor) { return {factor, x}; }
  REEL_DEVICE static Step join(Step a, Step b) {
    return {a.factor * b.factor, scalar::fma(b.factor, a.offset, b.offset)};
  }
  REEL_DEVICE static double state(Step a) { return a.offset; }
  REEL_DEVICE static double next(double state, double x, double factor) { return scalar::fma(factor, state, x); }
};

/// Of the scan that is walked the other way, from the gradients of its results: the state is what comes of those behind.
template <bool exclusive>
struct StateGradients : Recurrences {
  static constexpr bool kGradients = true;
  REEL_DEVICE static double own(double dy, double factor) { return exclusive ? dy : factor * dy; }
  REEL_DEVICE static Step of(double dy, double factor) { return {factor, own(dy, factor)}; }
  REEL_DEVICE static double next(double state, double dy, double factor) {
    return scalar::fma(factor, state, own(dy, factor));
  }
  /// Of the state after an element.
  REEL_DEVICE static double after(double state, double dy) { return exclusive ? state : state + dy; }
};

/// The same where the last state alone has a gradient: a product of the factors, which are in x's place.
struct LastGradients : Products<double> {
  static constexpr bool kGradients = true;
  REEL_DEVICE static double after(double state, double) { return state; }
};

/// What is scanned, and how lines are walked. `packed`: a line's elements are neighbours and made of whole packs.
template <class T, class Y = T>
struct Scan {
  const T* x;
  const T* factor;
  Y* y;
  Lines lines;
  int64_t piece, pieces;
  bool reverse, exclusive, packed;
  // Of gradients alone, where y may be null.
  const double* before = nullptr;  // the states before each element
  Y* dfactor = nullptr;            // or null
  const Y* dlast = nullptr;        // of LastGradients alone: what a line's states are times
};

/// Hands a run to `pass` with the address of each element or pack: places begin .. begin + kRun - 1, as far as they are before
/// `end`, of a line of `count` elements that begins at `first`.
template <class T, class Y, class Pass>
REEL_DEVICE void each_of_run(const Scan<T, Y>& scan, int64_t first, int64_t count, int64_t begin, int64_t end,
                             Pass pass) {
  if (scan.packed) {
    REEL_UNROLL
    for (int k = 0; k < kRun; k += kPack<T>) {
      if (begin + k < end)
        pass.pack(k, first + (scan.reverse ? count - begin - k - kPack<T> : begin + k), scan.reverse);
    }
    return;
  }
  REEL_UNROLL
  for (int k = 0; k < kRun; ++k)
    if (begin + k < end) pass.element(k, first + (scan.reverse ? count - 1 - begin - k : begin + k) * scan.lines.width);
}

/// Elements to registers, and back: E beside packs of T.
template <class T, class E = T>
struct Load {
  const E* from;
  E (&v)[kRun];
  REEL_DEVICE void element(int k, int64_t at) const { v[k] = from[at]; }
  REEL_DEVICE void pack(int k, int64_t at, bool reversed) const {
    constexpr int count = kPack<T>;
    if constexpr (sizeof(E) == sizeof(T)) {
      const Pack<E, count> loaded = load_pack<E, count>(from + at);
      REEL_UNROLL
      for (int i = 0; i < count; ++i) v[k + i] = reversed ? loaded.v[count - 1 - i] : loaded.v[i];
    } else {
      REEL_UNROLL
      for (int i = 0; i < count; ++i) element(k + i, at + (reversed ? count - 1 - i : i));
    }
  }
};
template <class T, class E = T>
struct Store {
  E* to;
  E (&v)[kRun];
  REEL_DEVICE void element(int k, int64_t at) const { to[at] = v[k]; }
  REEL_DEVICE void pack(int k, int64_t at, bool reversed) const {
    constexpr int count = kPack<T>;
    if constexpr (sizeof(E) == sizeof(T)) {
      Pack<E, count> stored;
      REEL_UNROLL
      for (int i = 0; i < count; ++i) stored.v[i] = v[k + (reversed ? count - 1 - i : i)];
      store_pack(to + at, stored);
    } else {
      REEL_UNROLL
      for (int i = 0; i < count; ++i) element(k + i, at + (reversed ? count - 1 - i : i));
    }
  }
};

/// A block takes lanes.columns lines at a time, and a piece of them. `steps` [lines, pieces]: with `only_steps` what each
/// piece does to the state is written there, else what all pieces before it do is read (null: there is but one piece).
template <class Kind, class T, class Y>
__global__ void scan(const Scan<T, Y> scan, typename Kind::Step* steps, bool only_steps, Lanes lanes) {
  using Step = typename Kind::Step;
  using S = State<T>;
  REEL_DYNAMIC_SHARED(Step, scratch);
  const int64_t total = scan.lines.size(), tiles = (total + lanes.columns - 1) / lanes.columns;
  const int64_t tile_rows = static_cast<int64_t>(lanes.rows()) * kRun;
  for (int64_t unit = blockIdx.x; unit < tiles * scan.pieces; unit += gridDim.x) {
    const int64_t line = unit / scan.pieces * lanes.columns + lanes.column(), piece = unit % scan.pieces;
    const bool exists = line < total;
    const int64_t count = exists ? scan.lines.count(line) : 0, first = exists ? scan.lines.first(line) : 0;
    const int64_t start = piece * scan.piece, end = smaller(start + scan.piece, count);
    const int64_t longest = join_block(larger<int64_t>(end - start, 0), reinterpret_cast<int64_t*>(scratch),
                                       [](int64_t a, int64_t b) { return larger(a, b); });
    Step carry = exists && steps != nullptr && !only_steps ? steps[line * scan.pieces + piece] : Kind::identity();
    for (int64_t tile = 0; tile < longest; tile += tile_rows) {
      const int64_t begin = start + tile + lanes.row() * kRun;
      T x[kRun], factor[kRun];
      each_of_run(scan, first, count, begin, end, Load<T>{scan.x, x});
      if constexpr (Kind::kFactors) each_of_run(scan, first, count, begin, end, Load<T>{scan.factor, factor});
      Step own = Kind::identity();
      REEL_UNROLL
      for (int k = 0; k < kRun; ++k) {
        if constexpr (!Kind::kFactors) factor[k] = 1;
        if (begin + k < end) own = Kind::join(own, Kind::of(static_cast<S>(x[k]), static_cast<S>(factor[k])));
      }
      const auto join = [](Step a, Step b) { return Kind::join(a, b); };
      Step all;
      const Step before = lanes.before(own, scratch, Kind::identity(), all, join);
      if (!only_steps) {
        S state = Kind::state(Kind::join(carry, before));
        Y y[kRun];
        if constexpr (Kind::kGradients) {
          if (scan.dlast != nullptr && exists) state *= static_cast<double>(scan.dlast[line]);
          double states[kRun];
          if (scan.dfactor != nullptr)
            each_of_run(scan, first, count, begin, end, Load<T, double>{scan.before, states});
          Y dfactor[kRun];
          REEL_UNROLL
          for (int k = 0; k < kRun; ++k) {
            if (begin + k < end) {
              const double dy = static_cast<double>(x[k]), after = Kind::after(state, dy);
              state = Kind::next(state, dy, static_cast<double>(factor[k]));
              y[k] = static_cast<Y>(after);
              if (scan.dfactor != nullptr) dfactor[k] = static_cast<Y>(after * states[k]);
            }
          }
          if (scan.dfactor != nullptr) each_of_run(scan, first, count, begin, end, Store<T, Y>{scan.dfactor, dfactor});
        } else {
          REEL_UNROLL
          for (int k = 0; k < kRun; ++k) {
            if (begin + k < end) {
              const S previous = state;
              state = Kind::next(state, static_cast<S>(x[k]), static_cast<S>(factor[k]));
              y[k] = static_cast<Y>(scan.exclusive ? previous : state);
            }
          }
        }
        if (scan.y != nullptr) each_of_run(scan, first, count, begin, end, Store<T, Y>{scan.y, y});
      }
      carry = Kind::join(carry, all);
    }
    if (only_steps && exists && lanes.row() == 0) steps[line * scan.pieces + piece] = carry;
  }
}

/// steps [lines, pieces] to what all pieces before each do, a block per line.
template <class Kind>
__global__ void join_pieces(typename Kind::Step* steps, int64_t lines, int64_t pieces) {
  using Step = typename Kind::Step;
  REEL_DYNAMIC_SHARED(Step, scratch);
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    Step carry = Kind::identity();
    for (int64_t tile = 0; tile < pieces; tile += blockDim.x) {
      const int64_t piece = tile + threadIdx.x;
      Step* const place = steps + line * pieces + piece;
      const auto join = [](Step a, Step b) { return Kind::join(a, b); };
      Step all;
      const Step before =
          Lanes{1}.before(piece < pieces ? *place : Kind::identity(), scratch, Kind::identity(), all, join);
      if (piece < pieces) *place = Kind::join(carry, before);
      carry = Kind::join(carry, all);
    }
  }
}

}  // namespace
}  // namespace device

namespace {

template <class Kind, class T, class Y>
void run(const Context& context, device::Scan<T, Y> scan, int64_t longest) {
  using Step = typename Kind::Step;
  constexpr int64_t kLeast = 8192;  // elements of a piece, at least
  const int64_t lines = scan.lines.segments * scan.lines.width;
  // Neighbouring columns are neighbours in memory.
  const int rows = power_of_two_from(ceil_div(longest, device::kRun), 1,
                                     kThreads / power_of_two_from(scan.lines.width, 1, device::kWarp));
  const device::Lanes lanes{kThreads / rows};
  const int64_t units = ceil_div(lines, lanes.columns);
  const int64_t wanted = ceil_div(int64_t{context.processors()} * 8, units), room = longest / kLeast;
  scan.pieces = wanted < room ? wanted : room;
  if (scan.pieces < 1) scan.pieces = 1;
  scan.piece = ceil_div(ceil_div(longest, scan.pieces), device::kRun) * device::kRun;
  scan.pieces = ceil_div(longest, scan.piece);
  const Workspace memory(context.memory(),
                         scan.pieces > 1 ? sizeof(Step) * static_cast<std::size_t>(lines * scan.pieces) : 0);
  Grid grid = grid_for(context, units * scan.pieces * kThreads);
  grid.shared_bytes = kThreads * sizeof(Step);
  if (scan.pieces > 1) {
    launch(context, "scan", grid, &device::scan<Kind, T, Y>, scan, memory.as<Step>(), true, lanes);
    Grid joining = grid_for(context, lines * kThreads);
    joining.shared_bytes = grid.shared_bytes;
    launch(context, "scan", joining, &device::join_pieces<Kind>, memory.as<Step>(), lines, scan.pieces);
  }
  launch(context, "scan", grid, &device::scan<Kind, T, Y>, scan, memory.as<Step>(), false, lanes);
}

void scan_lines(const Context& context, ScanOp op, const Array& x, const Array* factor, const device::Lines& lines,
                int64_t longest, bool reverse, bool exclusive, const Array& y) {
  if (y.size == 0) return;
  const auto of = [&]<class T>() {
    using S = device::State<T>;
    const T* const factors = data_of<T>(factor);
    const bool packed =
        lines.width == 1 && lines.rows.offsets == nullptr && in_packs<T>({x.data, factors, y.data}, {longest});
    const device::Scan<T> scan{x.as<T>(), factors, y.as<T>(), lines, 0, 0, reverse, exclusive, packed};
    if (op == ScanOp::prod) return run<device::Products<S>>(context, scan, longest);
    if constexpr (std::is_floating_point_v<T>)
      if (factors != nullptr) return run<device::Recurrences>(context, scan, longest);
    run<device::Sums<S>>(context, scan, longest);
  };
  if (x.dtype == DType::i64) return of.template operator()<int64_t>();
  dispatch_floating(x.dtype, of);
}

// Products where `factor` is null.
void scan_lines_backward(const Context& context, const Array& x, const Array* factor, const device::Lines& lines,
                         int64_t longest, bool reverse, bool exclusive, const ScanGradients& gradients) {
  if (x.size == 0) return;
  const bool products = factor == nullptr;
  const float *const from = x.as<float>(), *const by = products ? from : factor->as<float>(),
                     *const dy = data_of<float>(gradients.dy);
  float* const to_factor = data_of<float>(products ? gradients.dx : gradients.dfactor);
  float* const to_x = products ? nullptr : data_of<float>(gradients.dx);
  const bool packed =
      lines.width == 1 && lines.rows.offsets == nullptr && in_packs<float>({from, by, dy, to_x, to_factor}, {longest});
  const Workspace states(context.memory(),
                         to_factor == nullptr ? 0 : sizeof(double) * static_cast<std::size_t>(x.size));
  if (to_factor != nullptr) {
    const device::Scan<float, double> scan{from, by, states.as<double>(), lines, 0, 0, reverse, true, packed};
    products ? run<device::Products<double>>(context, scan, longest) : run<device::Recurrences>(context, scan, longest);
  }
  device::Scan<float> scan{dy, by, to_x, lines, 0, 0, !reverse, false, packed, states.as<double>(), to_factor};
  if (dy == nullptr) {
    scan.x = by;
    scan.dlast = data_of<float>(gradients.dlast);
    run<device::LastGradients>(context, scan, longest);
  } else if (exclusive) {
    run<device::StateGradients<true>>(context, scan, longest);
  } else {
    run<device::StateGradients<false>>(context, scan, longest);
  }
}

}  // namespace

void exclusive_sums(const Context& context, int64_t* values, int64_t n) {
  if (n == 0) return;
  const device::Scan<int64_t> scan{values, nullptr, values, {{nullptr, n}, 1, 1},   0,
                                   0,      false,   true,   n % kPack<int64_t> == 0};
  run<device::Sums<std::uint64_t>>(context, scan, n);
}

void CudaOps::scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                   const Array& y) {
  const Blocks blocks(x.shape, axis);
  scan_lines(context_, op, x, factor, {{nullptr, blocks.n}, blocks.outer, blocks.inner}, blocks.n, reverse, exclusive,
             y);
}

void CudaOps::segment_scan(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                           bool exclusive, const Array& y) {
  scan_lines(context_, op, x, factor, {{segments.offsets, 0}, segments.count, x.shape.back()}, segments.max_length,
             reverse, exclusive, y);
}

void CudaOps::scan_backward(ScanOp, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                            const ScanGradients& gradients) {
  const Blocks blocks(x.shape, axis);
  scan_lines_backward(context_, x, factor, {{nullptr, blocks.n}, blocks.outer, blocks.inner}, blocks.n, reverse,
                      exclusive, gradients);
}

void CudaOps::segment_scan_backward(ScanOp, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                                    bool exclusive, const ScanGradients& gradients) {
  scan_lines_backward(context_, x, factor, {{segments.offsets, 0}, segments.count, x.shape.back()}, segments.max_length,
                      reverse, exclusive, gradients);
}

}  // namespace reel::cuda
