// Images brought to mean 0 and variance 1 over groups of their channels, or each channel over all images (batch norm). What has
// one mean is a unit: runs of `length` neighbours, equally far apart, which count as one row of n elements. A warp or a block
// takes a unit and walks over its runs, 16 bytes per access where they allow it; it reads them again from the caches. Few large
// units are cut into pieces, a block each, whose sums are made by kernels of their own before. The variance: see normalize.cu.
//
// Backward needs the sums of each channel of a unit: one kernel makes them, the next one finds the unit's sums from them, and
// dx. A unit of one channel that is not cut needs but the second.

#include "reel/backends/cuda/normalize.h"

namespace reel::cuda {

namespace device {
namespace {

/// How far apart in memory images, an image's units, and a unit's runs are.
struct Steps {
  int64_t image, unit, run;
};

/// Unit r is number r % groups of image r / groups; where units reach over all images, these count as one.
struct Units {
  int64_t count, n;       // units, elements of each
  int64_t groups, width;  // units of an image, channels of a unit
  int64_t length;         // elements of a run; a channel of a unit has one or, in units over all images, all
  Steps x, y;             // y: without gaps

  /// The channels of all units, and the elements of each.
  __host__ __device__ int64_t rows() const { return count * width; }
  __host__ __device__ int64_t row_length() const { return n / width; }
  REEL_DEVICE int64_t first_channel(int64_t r) const { return r % groups * width; }
  REEL_DEVICE int64_t place(const Steps& steps, int64_t r) const {
    return r / groups * steps.image + r % groups * steps.unit;
  }
};

/// The elements from begin to end of unit r that are this thread's, `count` neighbours at a time.
template <int count>
struct Places {
  const Units& units;
  int64_t x, y, begin, end, step;  // x, y: where the unit begins
  int64_t run, offset, step_runs, step_rest;

  template <class Group>
  REEL_DEVICE Places(const Units& units, Group group, int64_t r, int64_t first, int64_t end)
      : units(units),
        x(units.place(units.x, r)),
        y(units.place(units.y, r)),
        begin(first + static_cast<int64_t>(group.lane()) * count),
        end(end),
        step(static_cast<int64_t>(group.width()) * count),
        run(begin / units.length),
        offset(begin - run * units.length),
        step_runs(step / units.length),
        step_rest(step - step_runs * units.length) {}

  /// f(place in x, place in y, channel of the unit)
  template <class F>
  REEL_DEVICE void each(F f) const {
    int64_t k = run, at = offset;
    for (int64_t i = begin; i < end; i += step) {
      f(x + k * units.x.run + at, y + k * units.y.run + at, units.width > 1 ? k : 0);
      k += step_runs;
      at += step_rest;
      if (at >= units.length) {
        at -= units.length;
        ++k;
      }
    }
  }
};

/// The sums of x - origin and of its square.
template <class T, int count>
REEL_DEVICE Sums<T, 2> sums_of(RowGroup group, const T* x, const Places<count>& places, T origin, Sums<T, 2>* scratch) {
  Sums<T, 2> sums{};
  places.each([&](int64_t from, int64_t, int64_t) { add_moments(sums, load_pack<T, count>(x + from), origin); });
  return join_sums(group, sums, scratch);
}

/// One pass over pieces of units, a block each: the first, or the second where its sums are given. to [units, pieces].
template <class T, int count>
__global__ void channel_piece_sums(const __grid_constant__ Units units, const T* x, const Sums<T, 2>* before,
                                   Sums<T, 2>* to, RowPieces pieces) {
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const RowGroup group{true};
  for (int64_t piece = group.first(); piece < units.count * pieces.count; piece += group.step()) {
    const int64_t r = pieces.row(piece);
    const Places<count> places(units, group, r, pieces.begin(piece), pieces.end(piece, units.n));
    T origin = x[places.x];
    if (before != nullptr)
      origin += join_pieces(group, before + r * pieces.count, pieces.count, scratch).of[0] / static_cast<T>(units.n);
    const Scratch sums = sums_of(group, x, places, origin, scratch);
    if (group.lane() == 0) to[piece] = sums;
  }
}

/// scale, shift [channels]; null: there is none.
template <class T>
struct Normalized {
  const T *x, *scale, *shift;
  T *y, *mean, *rstd, *variance;
};

/// of_pieces [2, units, pieces]: the sums of both passes where units are cut.
template <class T, int count>
__global__ void normalize_channels(const __grid_constant__ Units units, const __grid_constant__ Normalized<T> io,
                                   T epsilon, const Sums<T, 2>* of_pieces, RowPieces pieces, RowGroup group) {
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  for (int64_t piece = group.first(); piece < units.count * pieces.count; piece += group.step()) {
    const int64_t r = pieces.row(piece), begin = pieces.begin(piece), channel = units.first_channel(r);
    const Places<count> places(units, group, r, begin, pieces.end(piece, units.n));
    const auto pass = [&](int which, T origin) {
      if (pieces.count == 1) return sums_of(group, io.x, places, origin, scratch);
      return join_pieces(group, of_pieces + (which * units.count + r) * pieces.count, pieces.count, scratch);
    };
    const RowStatistics<T> s = statistics_of(
        io.x[places.x], units.n, true, epsilon, [&](T origin) { return pass(0, origin).of[0]; },
        [&](T origin) { return pass(1, origin); });
    places.each([&](int64_t from, int64_t to, int64_t k) {
      const T scale = io.scale != nullptr ? io.scale[channel + k] : T(1);
      const T shift = io.shift != nullptr ? io.shift[channel + k] : T(-0.0);
      Pack<T, count> value = load_pack<T, count>(io.x + from);
      REEL_UNROLL
      for (int j = 0; j < count; ++j) value.v[j] = s.standardize(value.v[j]) * scale + shift;
      store_pack(io.y + to, value);
    });
    if (group.lane() != 0 || begin != 0) continue;
    io.mean[r] = s.mean + s.rest;
    io.rstd[r] = s.rstd;
    if (io.variance != nullptr) io.variance[r] = s.variance;
  }
}

/// What backward reads and writes; null: not there, not wanted. dscale, dshift [images, channels].
template <class T>
struct ChannelGradient {
  Units units;
  const T *x, *scale, *mean, *rstd, *dy;
  T *dx, *dscale, *dshift;
  bool add;  // to dx
};

/// This thread's sums of dy, dy (x - mean) rstd and x - mean, which add_gradient makes of a channel.
template <class T, int count>
REEL_DEVICE Sums<T, 3> gradient_sums(const ChannelGradient<T>& g, const Places<count>& places, int64_t r) {
  const T center = g.mean[r], rate = g.rstd[r];
  Sums<T, 3> sums{};
  places.each([&](int64_t from, int64_t to, int64_t) {
    add_gradient(sums, load_pack<T, count>(g.x + from), load_pack<T, count>(g.dy + to), center, rate);
  });
  return sums;
}

/// These for each channel of each unit, or pieces of them: `holders` each. to [units, width, pieces].
template <class T, int count>
__global__ void channel_gradient_sums(const __grid_constant__ ChannelGradient<T> g, Sums<T, 3>* to, RowPieces pieces,
                                      Holders holders) {
  using Scratch = Sums<T, 3>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const Units& units = g.units;
  const int64_t piece = holders.row();
  const bool there = piece < units.rows() * pieces.count;
  const int64_t row = there ? pieces.row(piece) : 0, r = row / units.width, length = units.row_length();
  const int64_t first = row % units.width * length, begin = first + pieces.begin(piece);
  const Places<count> places(units, holders, r, begin, there ? first + pieces.end(piece, length) : begin);
  const Scratch sums = join_sums(holders, gradient_sums(g, places, r), scratch);
  if (there && holders.lane() == 0) to[piece] = sums;
}

/// dx = (g - mean(g) - xhat mean(g xhat)) rstd with g = dy scale. of_rows [units, width, row_pieces]: the sums of the units'
/// channels; null: the group makes them, of units of one channel that are not cut.
template <class T, int count>
__global__ void normalize_channels_backward(const __grid_constant__ ChannelGradient<T> g, const Sums<T, 3>* of_rows,
                                            int64_t row_pieces, RowPieces pieces, RowGroup group) {
  using Scratch = Sums<T, 3>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const Units& units = g.units;
  const int64_t width = units.width;
  for (int64_t piece = group.first(); piece < units.count * pieces.count; piece += group.step()) {
    const int64_t r = pieces.row(piece), begin = pieces.begin(piece);
    const T* const scale = g.scale != nullptr ? g.scale + units.first_channel(r) : nullptr;
    const Places<count> places(units, group, r, begin, pieces.end(piece, units.n));
    Scratch own{};
    if (of_rows == nullptr) own = gradient_sums(g, places, r);
    for (int64_t p = group.lane(); of_rows != nullptr && p < width * row_pieces; p += group.width()) {
      const Scratch& part = of_rows[r * width * row_pieces + p];
      const T factor = scale != nullptr && width > 1 ? scale[p / row_pieces] : T(1);
      own.of[0] = scalar::fma(part.of[0], factor, own.of[0]);
      own.of[1] = scalar::fma(part.of[1], factor, own.of[1]);
      own.of[2] += part.of[2];
    }
    Scratch total = join_sums(group, own, scratch);
    const T only[2] = {total.of[0], total.of[1]};  // of the only channel of a unit
    if (scale != nullptr && width == 1) {
      total.of[0] *= scale[0];
      total.of[1] *= scale[0];
    }
    const RowGradient<T> gradient(total, g.mean[r], g.rstd[r], true, units.n);
    for (int64_t k = group.lane(); begin == 0 && k < width; k += group.width()) {
      T of_dy = only[0], of_product = only[1];
      if (width > 1) {
        of_dy = of_product = 0;
        for (int64_t p = k * row_pieces; p < (k + 1) * row_pieces; ++p) {
          of_dy += of_rows[r * width * row_pieces + p].of[0];
          of_product += of_rows[r * width * row_pieces + p].of[1];
        }
      }
      if (g.dscale != nullptr) g.dscale[r * width + k] = gradient.statistics.standardize_sum(of_dy, of_product);
      if (g.dshift != nullptr) g.dshift[r * width + k] = of_dy;
    }
    if (g.dx == nullptr) continue;
    places.each([&](int64_t from, int64_t to, int64_t k) {
      const auto value = load_pack<T, count>(g.x + from), grad = load_pack<T, count>(g.dy + to);
      const T factor = scale != nullptr ? scale[k] : T(1);
      Pack<T, count> result;
      if (g.add) result = load_pack<T, count>(g.dx + to);
      REEL_UNROLL
      for (int j = 0; j < count; ++j) {
        const T dx = gradient.at(gradient.statistics.standardize(value.v[j]), grad.v[j] * factor);
        result.v[j] = g.add ? result.v[j] + dx : dx;
      }
      store_pack(g.dx + to, result);
    });
  }
}

}  // namespace
}  // namespace device

namespace {

/// x [images, channels, length], of which the last axis has no gaps.
device::Units units_of(const Array& x, int64_t groups) {
  const int64_t images = x.shape[0], channels = x.shape[1], length = x.shape[2];
  if (groups == 0)
    return {channels,
            images * length,
            channels,
            1,
            length,
            {0, x.strides[1], x.strides[0]},
            {0, length, channels * length}};
  const int64_t width = channels / groups;
  return {images * groups,
          width * length,
          groups,
          width,
          length,
          {x.strides[0], width * x.strides[1], x.strides[1]},
          {channels * length, width * length, length}};
}

/// The threads for each piece of a row, `count` elements per access, and their launch.
device::Holders holders_of(int64_t pieces, int64_t length, int count, Grid& grid) {
  constexpr int64_t kEach = 4;  // accesses of a thread
  const int64_t accesses = ceil_div(length, count);
  const int lanes = power_of_two_from(ceil_div(accesses, kEach), accesses < 4 ? 1 : 4, kMostThreads);
  if (lanes > device::kWarp) grid.threads = lanes;
  grid.blocks = ceil_div(pieces, grid.threads / lanes);
  return {lanes};
}

}  // namespace

void CudaOps::normalize_channels(const Array& x, std::int64_t groups, double epsilon, const Array* scale,
                                 const Array* shift, const Array& y, const Array& mean, const Array& rstd,
                                 const Array* variance) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    using Sums = device::Sums<T, 2>;
    const device::Units units = units_of(x, groups);
    device::RowGroup group{};
    Grid grid = row_grid(context_, units.count, units.n, group.whole_block);
    const device::RowPieces pieces = pieces_for(context_, units.count, units.n, grid);
    grid.shared_bytes = sizeof(Sums) * device::kWarp;
    const bool cut = pieces.count > 1,
               packed = in_packs<T>({x.data, y.data}, {units.length, x.strides[0], x.strides[1]});
    const int64_t count = units.count * pieces.count;
    const Workspace of_pieces(context_.memory(), cut ? sizeof(Sums) * 2 * static_cast<std::size_t>(count) : 0);
    const auto pass = [&](const Sums* before, Sums* to) {
      launch(context_, "normalize_channels", grid,
             packed ? &device::channel_piece_sums<T, kPack<T>> : &device::channel_piece_sums<T, 1>, units, x.as<T>(),
             before, to, pieces);
    };
    if (cut) {
      pass(nullptr, of_pieces.as<Sums>());
      pass(of_pieces.as<Sums>(), of_pieces.as<Sums>() + count);
    }
    const device::Normalized<T> io{x.as<T>(),    data_of<T>(scale), data_of<T>(shift),   y.as<T>(),
                                   mean.as<T>(), rstd.as<T>(),      data_of<T>(variance)};
    launch(context_, "normalize_channels", grid,
           packed ? &device::normalize_channels<T, kPack<T>> : &device::normalize_channels<T, 1>, units, io,
           static_cast<T>(epsilon), of_pieces.as<Sums>(), pieces, group);
  });
}

void CudaOps::normalize_channels_backward(const Array& x, std::int64_t groups, const Array* scale, const Array& mean,
                                          const Array& rstd, const Array& dy, const GradientSink& dx,
                                          const Array* dscale, const Array* dshift) {
  if (x.size == 0) {
    if (dscale != nullptr) fill(*dscale, 0);
    if (dshift != nullptr) fill(*dshift, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    using Sums = device::Sums<T, 3>;
    const device::Units units = units_of(x, groups);
    const int64_t images = units.count / units.groups, channels = x.shape[1];
    // The channels' gradients of each image, to be added up. Of one image, or of units over all, they are the results.
    const bool many = images > 1;
    const auto room = [&](const Array* to) {
      return many && to != nullptr ? sizeof(T) * static_cast<std::size_t>(images * channels) : 0;
    };
    const Workspace scales(context_.memory(), room(dscale)), shifts(context_.memory(), room(dshift));
    const device::ChannelGradient<T> g{units,
                                       x.as<T>(),
                                       data_of<T>(scale),
                                       mean.as<T>(),
                                       rstd.as<T>(),
                                       dy.as<T>(),
                                       dx.to.as<T>(),
                                       many ? scales.as<T>() : data_of<T>(dscale),
                                       many ? shifts.as<T>() : data_of<T>(dshift),
                                       dx.add};
    const bool packed = in_packs<T>({g.x, g.dy, g.dx}, {units.length, x.strides[0], x.strides[1]});
    const device::RowPieces of_row = pieces_for(context_, units.rows(), units.row_length());
    const int64_t parts = units.rows() * of_row.count;
    const bool apart = units.width > 1 || of_row.count > 1;
    const Workspace of_rows(context_.memory(), apart ? sizeof(Sums) * static_cast<std::size_t>(parts) : 0);
    if (apart) {
      Grid grid{.shared_bytes = sizeof(Sums) * device::kWarp};
      const device::Holders holders = holders_of(parts, of_row.length, packed ? kPack<T> : 1, grid);
      launch(context_, "normalize_channels_backward", grid,
             packed ? &device::channel_gradient_sums<T, kPack<T>> : &device::channel_gradient_sums<T, 1>, g,
             of_rows.as<Sums>(), of_row, holders);
    }
    device::RowGroup group{};
    Grid grid = row_grid(context_, units.count, units.n, group.whole_block);
    const device::RowPieces pieces =
        g.dx != nullptr ? pieces_for(context_, units.count, units.n, grid) : device::RowPieces{1, units.n};
    grid.shared_bytes = sizeof(Sums) * device::kWarp;
    launch(context_, "normalize_channels_backward", grid,
           packed ? &device::normalize_channels_backward<T, kPack<T>> : &device::normalize_channels_backward<T, 1>, g,
           of_rows.as<Sums>(), of_row.count, pieces, group);
    const auto add_up = [&](const Array* to, const Workspace& from) {
      if (to == nullptr || !many) return;
      reduce(ReduceOp::sum, matrix_of(from.as<T>(), images, channels, channels, *to),
             matrix_of(to->data, 1, channels, channels, *to), nullptr);
    };
    add_up(dscale, scales);
    add_up(dshift, shifts);
  });
}

}  // namespace reel::cuda
