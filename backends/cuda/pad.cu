// Padding and its gradient: an element of y takes the one that stands there, an element of x adds up those for which it stands.
// Axes behind each other of which none is padded count as one.

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/kernel.h"
#include "reel/backends/cuda/nest.h"
#include "reel/core/scalar/padding.h"

namespace reel::cuda {

namespace {

/// Innermost first. The threads walk over `sizes`, by divisors if there are fewer than 2^31 places.
struct PaddedAxes {
  PaddingMode mode;
  int rank = 0;
  int64_t sizes[kMaxRank], n[kMaxRank], before[kMaxRank], after[kMaxRank], strides[kMaxRank];
  Divisor divisors[kMaxRank];

  /// How far position `rest` lies along an axis; what is left of it tells that of the next ones.
  template <bool wide>
  REEL_DEVICE int64_t take(int64_t& rest, int axis) const {
    const int64_t outer = wide ? rest / sizes[axis] : int64_t{divisors[axis].quotient(static_cast<uint32_t>(rest))};
    const int64_t at = rest - outer * sizes[axis];
    rest = outer;
    return at;
  }
};

constexpr int64_t kNarrow = int64_t{1} << 31;

/// To walk over the `count` elements of y, padded, and find the places in x, or over those of x and find the places in y.
PaddedAxes axes_of(const Array& x, const Padding& padding, bool over_padded, int64_t count) {
  PaddedAxes axes;
  axes.mode = padding.mode;
  int64_t padded_stride = 1;
  bool joins = false;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    const int64_t n = x.shape[axis], before = padding.before[axis], after = padding.after[axis],
                  all = before + n + after;
    if (n == 1 && all == 1) continue;
    const int64_t stride = over_padded ? x.strides[axis] : padded_stride;
    padded_stride *= all;
    const bool padded = before + after > 0;
    const int last = axes.rank - 1;
    if (joins && !padded && stride == axes.strides[last] * axes.n[last]) {
      axes.n[last] *= n;
      axes.sizes[last] *= n;
    } else {
      const int k = axes.rank++;
      axes.n[k] = n;
      axes.before[k] = before;
      axes.after[k] = after;
      axes.strides[k] = stride;
      axes.sizes[k] = over_padded ? all : n;
    }
    joins = !padded;
  }
  for (int k = 0; k < axes.rank && count < kNarrow; ++k) axes.divisors[k] = Divisor(axes.sizes[k]);
  return axes;
}

}  // namespace

namespace device {
namespace {

inline constexpr int kPadSteps = 4;

/// A few elements of y per thread, of which all are read before the first is written.
template <class T, bool wide>
__global__ void pad(const T* x, T value, T* y, const __grid_constant__ PaddedAxes axes, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kPadSteps * blockDim.x + threadIdx.x;
  T elements[kPadSteps];
  REEL_UNROLL
  for (int s = 0; s < kPadSteps; ++s) {
    int64_t rest = first + static_cast<int64_t>(s) * blockDim.x, from = 0;
    if (rest >= count) break;
    bool outside = false;
    for (int k = 0; k < axes.rank; ++k) {
      const int64_t source = scalar::padding_source(axes.take<wide>(rest, k) - axes.before[k], axes.n[k], axes.mode);
      outside = outside || source < 0;
      from += source * axes.strides[k];
    }
    elements[s] = outside ? value : x[from];
  }
  REEL_UNROLL
  for (int s = 0; s < kPadSteps; ++s) {
    const int64_t i = first + static_cast<int64_t>(s) * blockDim.x;
    if (i < count) y[i] = elements[s];
  }
}

/// The `which`th place in dy of element i of dx; `all`: how many there are.
template <bool wide>
REEL_DEVICE int64_t place_of(const PaddedAxes& axes, int64_t i, int64_t which, int64_t& all) {
  int64_t place = 0;
  all = 1;
  for (int k = 0; k < axes.rank; ++k) {
    const int64_t at = axes.take<wide>(i, k);
    const scalar::PaddingPlaces places(at, axes.n[k], axes.before[k], axes.after[k], axes.mode);
    const int64_t along = which == 0 ? 0 : which % places.count;
    which = which == 0 ? 0 : which / places.count;
    place += (places.at(along) + axes.before[k]) * axes.strides[k];
    all *= places.count;
  }
  return place;
}

/// An element of dx per thread and step, added up in f64.
template <class T, bool wide>
__global__ void pad_backward(const T* dy, T* dx, const __grid_constant__ PaddedAxes axes, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t all;
    double sum = dy[place_of<wide>(axes, i, 0, all)];
    for (int64_t which = 1; which < all; ++which) sum += dy[place_of<wide>(axes, i, which, all)];
    dx[i] = static_cast<T>(sum);
  }
}

}  // namespace
}  // namespace device

void CudaOps::pad(const Array& x, const Padding& padding, const Array& y) {
  if (y.size == 0) return;
  const PaddedAxes axes = axes_of(x, padding, true, y.size);
  const std::uint64_t bits = element_bits(y.dtype, padding.value);
  const Grid grid{.blocks = ceil_div(y.size, int64_t{kThreads} * device::kPadSteps)};
  dispatch_bytes(size_of(y.dtype), [&]<class T>() {
    launch(context_, "pad", grid, y.size < kNarrow ? &device::pad<T, false> : &device::pad<T, true>, x.as<T>(),
           static_cast<T>(bits), y.as<T>(), axes, y.size);
  });
}

void CudaOps::pad_backward(const Array& dy, const Padding& padding, const Array& dx) {
  if (dx.size == 0) return;
  const PaddedAxes axes = axes_of(dx, padding, false, dx.size);
  dispatch_floating(dx.dtype, [&]<class T>() {
    launch(context_, "pad_backward", grid_for(context_, dx.size),
           dx.size < kNarrow ? &device::pad_backward<T, false> : &device::pad_backward<T, true>, dy.as<T>(), dx.as<T>(),
           axes, dx.size);
  });
}

}  // namespace reel::cuda
