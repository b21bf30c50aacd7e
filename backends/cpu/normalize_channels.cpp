// Images of which groups of channels, or a channel of all images, are brought to mean 0 and variance 1, then scaled and shifted by
// numbers of their channels. What is normalised together stays in the cache for its passes, if it fits: sums, then output.
// Backward sums up each channel alone in its first pass: from these numbers it has the gradients of scale and shift, and, times
// scale, the sums that dx needs.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/normalize.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// What is normalised together: channels of one image, or a channel of all images.
struct Group {
  int64_t image, images, channel, channels;
};

/// x [n, channels, length]; `groups` of an image, 0: a channel of all images.
template <class T>
struct Images {
  const T* x;
  int64_t n, channels, length, image_stride, channel_stride, groups;
  RunPieces<T> pieces;

  Images(const Array& x, int64_t groups)
      : x(x.as<T>()),
        n(x.shape[0]),
        channels(x.shape[1]),
        length(x.shape[2]),
        image_stride(x.strides[0]),
        channel_stride(x.strides[1]),
        groups(groups),
        pieces(length) {}

  int64_t count() const { return groups == 0 ? channels : n * groups; }
  Group group(int64_t r) const {
    if (groups == 0) return {0, n, r, 1};
    const int64_t size = channels / groups;
    return {r / groups, 1, r % groups * size, size};
  }
  const T* run(int64_t image, int64_t channel) const { return x + image * image_stride + channel * channel_stride; }
  /// Where a run begins in what has no gaps.
  int64_t place(int64_t image, int64_t channel) const { return (image * channels + channel) * length; }
  /// A group's elements: an image's channels follow each other without gaps.
  Runs<T> runs(const Group& g) const { return {run(g.image, g.channel), length * g.channels, g.images, image_stride}; }
  /// f(r, group), in parallel.
  template <class F>
  void each_group(F f) const {
    const int64_t size = n * channels * length / count();
    parallel_for(count(), max<int64_t>(1, kNormalizeGrain / size), [=, this](int64_t begin, int64_t end) {
      Group g = group(begin);
      for (int64_t r = begin; r < end; ++r) {
        f(r, g);
        g.channel += g.channels;
        if (g.channel < channels) continue;
        g.channel = 0;
        ++g.image;
      }
    });
  }
  /// f(image, channel) for a group's runs.
  template <class F>
  REEL_INLINE void each_run(const Group& g, F f) const {
    for (int64_t image = g.image; image < g.image + g.images; ++image)
      for (int64_t channel = g.channel; channel < g.channel + g.channels; ++channel) f(image, channel);
  }
};

template <class T>
T number(const T* of_channels, int64_t channel, T neutral) {
  return of_channels != nullptr ? of_channels[channel] : neutral;
}

/// y = standard(x) factor + term, over a run. (Of its own: among the loops around it g++ keeps numbers and pointers in memory.)
template <class T>
__attribute__((noinline)) void write_run(const T* x, int64_t n, Standardize<T> standard, T factor, T term, T* y) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) {
    lanes.store(y + i, standard(lanes.load(x + i)) * Vec<T>::broadcast(factor) + Vec<T>::broadcast(term));
  });
}

/// dx, or dx + what is there, of a run whose scale is `factor`.
template <class T>
__attribute__((noinline)) void write_gradient(const T* x, const T* dy, int64_t n, Standardize<T> standard,
                                              RowGradient<T> gradient, T factor, bool add, T* dx) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) {
    const Vec<T> dx_i = gradient(standard(lanes.load(x + i)), lanes.load(dy + i) * Vec<T>::broadcast(factor));
    lanes.store(dx + i, add ? lanes.load(dx + i) + dx_i : dx_i);
  });
}

/// What backward reads and writes; null: not there, not wanted. sums [rows, 2, channels]: a row for each image or for all: of
/// dy xhat and of dy.
template <class T>
struct Backward {
  Images<T> in;
  const T *scale, *mean, *rstd, *dy;
  T* dx;
  bool add;  // to dx
  T* sums;

  void group(int64_t r, const Group& g) const {
    const T center = mean[r], rate = rstd[r];
    T *const of_scale = sums + g.image * 2 * in.channels, *const of_shift = of_scale + in.channels;
    const auto of_channel = [&](int64_t channel) {
      const T *const from = in.run(g.image, channel), *const grad = dy + in.place(g.image, channel);
      const int64_t step = in.image_stride, grad_step = in.channels * in.length;
      Sums<T, 3> own = sum_runs<T, 3>(
          in.pieces,
          g.images, [=](const auto& acc, auto lanes, int64_t image, int64_t i) __attribute__((always_inline)) {
            const Vec<T> dy_i = lanes.load(grad + image * grad_step + i);
            const Vec<T> d = existing(lanes, lanes.load(from + image * step + i) - Vec<T>::broadcast(center));
            return Pack<T, 3>{{acc.v[0] + dy_i, fma(dy_i, d * Vec<T>::broadcast(rate), acc.v[1]), acc.v[2] + d}};
          });
      of_scale[channel] = own.of[1];
      of_shift[channel] = own.of[0];
      const T factor = number(scale, channel, T(1));
      own.of[0] *= factor;
      own.of[1] *= factor;
      return own;
    };
    const Sums<T, 3> total = pairwise(g.channel, g.channel + g.channels, 8, [&](int64_t begin, int64_t end) {
      Sums<T, 3> sum = of_channel(begin);
      for (int64_t c = begin + 1; c < end; ++c) sum = sum + of_channel(c);
      return sum;
    });
    const RowGradient<T> gradient(total, rate, true, g.images * g.channels * in.length);
    for (int64_t c = g.channel; c < g.channel + g.channels; ++c) of_scale[c] -= gradient.of_rest(of_shift[c]);
    if (dx == nullptr) return;
    const Standardize<T> standard(center, gradient.rest, rate);
    in.each_run(g, [&](int64_t image, int64_t channel) {
      const int64_t place = in.place(image, channel);
      write_gradient(in.run(image, channel), dy + place, in.length, standard, gradient, number(scale, channel, T(1)),
                     add, dx + place);
    });
  }
};

}  // namespace

void CpuOps::normalize_channels(const Array& x, int64_t groups, double epsilon, const Array* scale, const Array* shift,
                                const Array& y, const Array& mean, const Array& rstd, const Array* variance) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const Images<T> in(x, groups);
    const T *const scales = scale ? scale->as<T>() : nullptr, *const shifts = shift ? shift->as<T>() : nullptr;
    in.each_group([&](int64_t r, const Group& g) {
      const RowStatistics<T> s = statistics_of(in.runs(g), static_cast<T>(epsilon));
      mean.as<T>()[r] = s.mean + s.rest;
      rstd.as<T>()[r] = s.rstd;
      if (variance != nullptr) variance->as<T>()[r] = s.variance;
      const Standardize<T> standard(s);
      in.each_run(g, [&, to = y.as<T>()](int64_t image, int64_t channel) {
        write_run(in.run(image, channel), in.length, standard, number(scales, channel, T(1)),
                  number(shifts, channel, T(-0.0)), to + in.place(image, channel));
      });
    });
  });
}

void CpuOps::normalize_channels_backward(const Array& x, int64_t groups, const Array* scale, const Array& mean,
                                         const Array& rstd, const Array& dy, const GradientSink& dx,
                                         const Array* dscale, const Array* dshift) {
  if (x.size == 0) {
    for (const Array* sums : {dscale, dshift})
      if (sums != nullptr) fill(*sums, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    const Images<T> in(x, groups);
    const int64_t rows = groups == 0 ? 1 : in.n, width = 2 * in.channels;
    const Scratch scratch(sizeof(T) * static_cast<std::size_t>(rows * width));
    const Backward<T> work{in,           scale ? scale->as<T>() : nullptr,
                           mean.as<T>(), rstd.as<T>(),
                           dy.as<T>(),   dx.to.as<T>(),
                           dx.add,       scratch.as<T>()};
    in.each_group([&](int64_t r, const Group& g) { work.group(r, g); });
    add_parts(scratch.as<T>(), rows, width);
    const auto give = [&](const Array* to, const T* sums) {
      if (to != nullptr) __builtin_memcpy(to->data, sums, sizeof(T) * static_cast<std::size_t>(in.channels));
    };
    give(dscale, scratch.as<T>());
    give(dshift, scratch.as<T>() + in.channels);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
