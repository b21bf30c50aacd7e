// Convolution forward, and the gradient of its input, as correlations over packed blocks.

#include "reel/backends/cpu/conv_correlate.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

REEL_INLINE int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// Sets the row-major steps of y [images, channels, sizes...].
template <class T>
REEL_INLINE void set_output(Correlation<T>& c, T* y, int64_t channels, const int64_t (&sizes)[3]) {
  c.y = y;
  c.y_channel = product(sizes);
  c.y_image = channels * c.y_channel;
  c.y_step[0] = sizes[1] * sizes[2];
  c.y_step[1] = sizes[2];
  c.y_step[2] = 1;
}

/// Where every tap is the position itself (1x1) and y is row-major, all positions are one long axis.
template <class T>
REEL_INLINE void join_axes(Correlation<T>& c) {
  for (const ConvAxis& axis : c.axis) {
    if (axis.kernel != 1 || axis.stride != 1 || axis.padding != 0 || axis.input != axis.output) return;
  }
  if (c.y_step[2] != 1 || c.y_step[1] != c.axis[2].output || c.y_step[0] != c.axis[1].output * c.axis[2].output) return;
  const int64_t positions = c.axis[0].input * c.axis[1].input * c.axis[2].input;
  c.axis[0] = c.axis[1] = c.axis[2] = ConvAxis{};
  c.axis[2].input = c.axis[2].output = positions;
}

template <class T>
void forward(const Conv& conv, const T* x, const T* weight, const T* bias, Epilogue epilogue, T* y) {
  Correlation<T> c;
  c.images = conv.batch;
  c.groups = conv.groups;
  c.in = conv.in / conv.groups;
  c.out = conv.out / conv.groups;
  c.mode = conv.mode;
  for (int a = 0; a < 3; ++a) {
    c.axis[a] = {conv.input[a], conv.output[a], conv.kernel[a], conv.stride[a], conv.dilation[a], conv.padding[a]};
  }
  c.x = x;
  c.weight = weight;
  c.weight_in = product(conv.kernel);
  c.weight_out = c.in * c.weight_in;
  c.weight_group = c.out * c.weight_out;
  c.weight_tap[0] = conv.kernel[1] * conv.kernel[2];
  c.weight_tap[1] = conv.kernel[2];
  c.weight_tap[2] = 1;
  c.bias = bias;
  c.relu = epilogue == Epilogue::relu;
  set_output(c, y, conv.out, conv.output);
  join_axes(c);
  correlate(c);
}

REEL_INLINE int64_t gcd(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// Along one axis, the inputs i = phase + m stride (m = 0, 1, ...) receive from the outputs (i + padding - k dilation) /
/// stride for those taps k that make this whole: every `step`-th one, the last of which is `last`. As a correlation over
/// the outputs the taps run backwards from there. No tap at all: `axis.kernel` is 0.
struct AxisPhase {
  ConvAxis axis;
  int64_t last = 0, step = 1;
};

REEL_INLINE AxisPhase axis_phase(const Conv& conv, int a, int64_t phase) {
  const int64_t stride = conv.stride[a], dilation = conv.dilation[a], reach = phase + conv.padding[a];
  AxisPhase p;
  p.step = stride / gcd(stride, dilation);
  p.axis.input = conv.output[a];
  p.axis.output = ceil_div(conv.input[a] - phase, stride);
  p.axis.kernel = 0;
  for (int64_t k = 0; k < conv.kernel[a]; ++k) {
    if ((reach - k * dilation) % stride != 0) continue;
    ++p.axis.kernel;
    p.last = k;
  }
  p.axis.dilation = p.step * dilation / stride;
  p.axis.padding = -((reach - p.last * dilation) / stride);
  return p;
}

/// One correlation for each remainder of the input's indices divided by the strides. Zero padding.
template <class T>
void backward_input(const Conv& conv, const T* dy, const T* relu_output, const T* weight, T* dx) {
  Correlation<T> c;
  c.images = conv.batch;
  c.groups = conv.groups;
  c.x = dy;
  c.mask = relu_output;
  const int64_t taps = product(conv.kernel);
  c.weight_in = conv.in / conv.groups * taps;
  c.weight_out = taps;
  c.weight_group = conv.out / conv.groups * c.weight_in;
  c.out = conv.in / conv.groups;
  const int64_t tap_steps[3] = {conv.kernel[1] * conv.kernel[2], conv.kernel[2], 1};
  set_output(c, dx, conv.in, conv.input);
  const int64_t steps[3] = {c.y_step[0], c.y_step[1], c.y_step[2]};
  for (int64_t phase = 0; phase < product(conv.stride); ++phase) {
    const int64_t phases[3] = {phase / (conv.stride[1] * conv.stride[2]), phase / conv.stride[2] % conv.stride[1],
                               phase % conv.stride[2]};
    Correlation<T> part = c;
    part.in = conv.out / conv.groups;
    part.weight = weight;
    bool empty = false;
    for (int a = 0; a < 3; ++a) {
      const AxisPhase p = axis_phase(conv, a, phases[a]);
      part.axis[a] = p.axis;
      part.weight += p.last * tap_steps[a];
      part.weight_tap[a] = -p.step * tap_steps[a];
      part.y += phases[a] * steps[a];
      part.y_step[a] = conv.stride[a] * steps[a];
      empty = empty || p.axis.kernel == 0;
    }
    if (empty) {  // no tap reaches these inputs: sums of nothing
      part.in = 0;
      for (ConvAxis& axis : part.axis) axis.kernel = 1;
    }
    bool outside = false;  // a stride larger than the input leaves phases without a position
    for (int a = 0; a < 3; ++a) outside = outside || phases[a] >= conv.input[a];
    if (outside) continue;
    join_axes(part);
    correlate(part);
  }
}

/// The positions along a padded axis that stand for element i of its n: itself and its mirror images. Returns how many.
REEL_INLINE int mirror_sources(int64_t i, int64_t n, int64_t padding, int64_t (&sources)[3]) {
  int count = 0;
  sources[count++] = padding + i;
  if (i < padding) sources[count++] = padding - 1 - i;
  if (n - 1 - i < padding) sources[count++] = padding + 2 * n - 1 - i;
  return count;
}

/// Row (i0, i1) of one channel's dx from its padded gradient: each element is added to the one of which it is an image.
/// `buffer` has room for a padded row.
template <class T>
void fold_row(const Conv& conv, const Conv& padded, const T* plane, int64_t i0, int64_t i1, T* buffer, T* dx) {
  const int64_t columns = padded.input[2], n = conv.input[2], padding = conv.padding[2];
  int64_t sources0[3], sources1[3], sources2[3];
  const int count0 = mirror_sources(i0, conv.input[0], conv.padding[0], sources0);
  const int count1 = mirror_sources(i1, conv.input[1], conv.padding[1], sources1);
  const T* row = plane + (sources0[0] * padded.input[1] + sources1[0]) * columns;
  for (int source = 1; source < count0 * count1; ++source) {
    const T* image = plane + (sources0[source / count1] * padded.input[1] + sources1[source % count1]) * columns;
    for (int64_t i = 0; i < columns; ++i) buffer[i] = row[i] + image[i];
    row = buffer;
  }
  for (int64_t i = 0; i < n; ++i) dx[i] = row[padding + i];
  if (padding == 0) return;
  for (int64_t i = 0; i < n; ++i) {
    if (i == padding && i < n - padding) i = n - padding;  // those between have no images
    const int count2 = mirror_sources(i, n, padding, sources2);
    for (int source = 1; source < count2; ++source) dx[i] += row[sources2[source]];
  }
}

/// Symmetric padding: the gradient of the padded input, a few images at a time, then folded back.
template <class T>
void backward_input_symmetric(const Conv& conv, const T* dy, const T* relu_output, const T* weight, T* dx) {
  constexpr int64_t kImagesBytes = 16 << 20;
  Conv padded = conv;
  padded.mode = PaddingMode::zero;
  for (int a = 0; a < 3; ++a) {
    padded.input[a] = conv.input[a] + 2 * conv.padding[a];
    padded.padding[a] = 0;
  }
  const int64_t plane = product(conv.input), padded_plane = product(padded.input);
  const int64_t dy_image = conv.out * product(conv.output);
  const int64_t image_bytes = max<int64_t>(1, conv.in * padded_plane * static_cast<int64_t>(sizeof(T)));
  const int64_t images = min(max<int64_t>(1, kImagesBytes / image_bytes), conv.batch);
  const Scratch scratch(static_cast<std::size_t>(images * image_bytes));
  for (int64_t first = 0; first < conv.batch; first += images) {
    padded.batch = min(images, conv.batch - first);
    backward_input(padded, dy + first * dy_image, relu_output ? relu_output + first * dy_image : nullptr, weight,
                   scratch.as<T>());
    const int64_t rows = conv.input[0] * conv.input[1];
    parallel_for(padded.batch * conv.in * rows, kGrain / min(kGrain, padded.input[2]), [&](int64_t begin, int64_t end) {
      const Scratch buffer(static_cast<std::size_t>(padded.input[2]) * sizeof(T));
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t channel = unit / rows, row = unit % rows;
        fold_row(conv, padded, scratch.as<T>() + channel * padded_plane, row / conv.input[1], row % conv.input[1],
                 buffer.as<T>(), dx + (first * conv.in + channel) * plane + row * conv.input[2]);
      }
    });
  }
}

}  // namespace

void CpuOps::conv(const Conv& conv, const Array& x, const Array& weight, const Array* bias, Epilogue epilogue,
                  const Array& y) {
  dispatch_floating(y.dtype, [&]<class T>() {
    forward(conv, x.as<T>(), weight.as<T>(), bias != nullptr ? bias->as<T>() : nullptr, epilogue, y.as<T>());
  });
}

void CpuOps::conv_backward_input(const Conv& conv, const Array& dy, const Array* relu_output, const Array& weight,
                                 const Array& dx) {
  if (dx.size == 0) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    const T* y = relu_output != nullptr ? relu_output->as<T>() : nullptr;
    const bool folds = conv.mode == PaddingMode::symmetric && conv.padding[0] + conv.padding[1] + conv.padding[2] > 0;
    if (folds) {
      backward_input_symmetric(conv, dy.as<T>(), y, weight.as<T>(), dx.as<T>());
    } else {
      backward_input(conv, dy.as<T>(), y, weight.as<T>(), dx.as<T>());
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
