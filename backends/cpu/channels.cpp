// Images scaled and shifted by numbers of their channels, as norms of channels do at last. The elements of a channel that lie side
// by side are a run, and those of a long run are shared out in pieces, whose parts of the channel's gradients are joined pairwise.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/normalize.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// Some elements of a run, and where they lie: in x, in what has no gaps, and in what is summed up: [images pieces, channels].
template <class T>
struct Piece {
  const T* x;
  int64_t dense, size, channel, row;
};

/// x [n, channels, length], of which the last axis has no gaps, in pieces; numbers of each channel, null: neutral.
template <class T>
class Channels {
 public:
  Channels(const Array& x, const Array* center, const Array* scale, const Array* shift)
      : x_(x),
        center_(numbers(center)),
        scale_(numbers(scale)),
        shift_(numbers(shift)),
        size_(even_chunk(x.shape[2])),
        pieces_(ceil_div(x.shape[2], size_)) {}

  /// Rows of what is summed up.
  int64_t rows() const { return x_.shape[0] * pieces_; }
  /// f(piece) for all pieces, in parallel.
  template <class F>
  REEL_INLINE void each(int64_t grain, F f) const {
    const int64_t channels = x_.shape[1], length = x_.shape[2];
    parallel_for(rows() * channels, max<int64_t>(1, grain / size_), [=, this](int64_t begin, int64_t end) {
      int64_t run = begin / pieces_, piece = begin % pieces_, image = run / channels, channel = run % channels;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = piece * size_;
        const T* const from = x_.as<T>() + image * x_.strides[0] + channel * x_.strides[1] + first;
        f(Piece<T>{from, run * length + first, min(size_, length - first), channel, image * pieces_ + piece});
        if (++piece < pieces_) continue;
        piece = 0;
        ++run;
        if (++channel < channels) continue;
        channel = 0;
        ++image;
      }
    });
  }

  REEL_INLINE Vec<T> center(int64_t channel) const { return Vec<T>::broadcast(center_ ? center_[channel] : T(0)); }
  REEL_INLINE Vec<T> scale(int64_t channel) const { return Vec<T>::broadcast(scale_ ? scale_[channel] : T(1)); }
  REEL_INLINE Vec<T> shift(int64_t channel) const { return Vec<T>::broadcast(shift_ ? shift_[channel] : T(-0.0)); }

 private:
  static const T* numbers(const Array* of_channels) { return of_channels ? of_channels->as<T>() : nullptr; }

  const Array& x_;
  const T *center_, *scale_, *shift_;
  int64_t size_, pieces_;  // of a piece, of a run
};

}  // namespace

void CpuOps::scale_channels(const Array& x, const Array* center, const Array* scale, const Array* shift,
                            const Array& y) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const Channels<T> in(x, center, scale, shift);
    in.each(kGrain, [&in, to = y.as<T>()](const Piece<T>& piece) {
      const Vec<T> middle = in.center(piece.channel), factor = in.scale(piece.channel), term = in.shift(piece.channel);
      for_each_vector<T>(0, piece.size, [=](auto lanes, int64_t i) {
        lanes.store(to + piece.dense + i, (lanes.load(piece.x + i) - middle) * factor + term);
      });
    });
  });
}

void CpuOps::scale_channels_backward(const Array& x, const Array* center, const Array* scale, const Array& dy,
                                     const Array* dx, const Array* dscale, const Array* dshift) {
  const int64_t channels = x.shape[1];
  if (x.size == 0) {
    for (const Array* sums : {dscale, dshift})
      if (sums != nullptr) fill(*sums, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    const Channels<T> in(x, center, scale, nullptr);
    const Scratch scratch(sizeof(T) * static_cast<std::size_t>(2 * in.rows() * channels));
    T *const parts = scratch.as<T>(), *const to = dx ? dx->as<T>() : nullptr;  // parts of dscale, dshift in turn
    in.each(kNormalizeGrain, [=, &in, &dy](const Piece<T>& piece) {
      const Vec<T> middle = in.center(piece.channel), factor = in.scale(piece.channel);
      const T *const run = piece.x, *const grad = dy.as<T>() + piece.dense;
      T* const gradient = to ? to + piece.dense : nullptr;
      const Sums<T, 2> sums = sum_terms<T, 2>(piece.size, [=](const Pack<T, 2>& acc, auto lanes, int64_t i) {
        const Vec<T> g = lanes.load(grad + i), d = existing(lanes, lanes.load(run + i) - middle);
        if (gradient != nullptr) lanes.store(gradient + i, g * factor);
        return Pack<T, 2>{{fma(g, d, acc.v[0]), acc.v[1] + g}};
      });
      T* const part = parts + piece.row * 2 * channels + piece.channel;
      part[0] = sums.of[0];
      part[channels] = sums.of[1];
    });
    add_parts(parts, in.rows(), 2 * channels);
    const auto give = [&](const Array* sums, const T* from) {
      if (sums != nullptr) __builtin_memcpy(sums->data, from, sizeof(T) * static_cast<std::size_t>(channels));
    };
    give(dscale, parts);
    give(dshift, parts + channels);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
