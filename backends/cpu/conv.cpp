// Convolution forward, and the gradient of its input, as correlations over packed blocks.

#include "reel/backends/cpu/conv_correlate.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

REEL_INLINE int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// Sets the row-major steps of y [images, channels, sizes...].
template <class T>
REEL_INLINE void set_output(Correlation<T>& c, Images<T> y, const int64_t (&sizes)[3]) {
  c.y = y;
  c.y_channel = product(sizes);
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
void forward(const Conv& conv, Images<const T> x, const T* weight, const T* bias, Epilogue epilogue, Images<T> y) {
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
  set_output(c, y, conv.output);
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
void backward_input(const Conv& conv, Images<const T> dy, Images<const T> relu_output, const T* weight, Images<T> dx) {
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
  set_output(c, dx, conv.input);
  const int64_t steps[3] = {c.y_step[0], c.y_step[1], c.y_step[2]};
  int64_t counts[3];  // of remainders: a stride larger than the input leaves the later ones without a position
  for (int a = 0; a < 3; ++a) counts[a] = conv.stride[a] < conv.input[a] ? conv.stride[a] : conv.input[a];
  for (int64_t phase = 0; phase < product(counts); ++phase) {
    const int64_t phases[3] = {phase / (counts[1] * counts[2]), phase / counts[2] % counts[1], phase % counts[2]};
    Correlation<T> part = c;
    part.in = conv.out / conv.groups;
    part.weight = weight;
    bool empty = false;
    for (int a = 0; a < 3; ++a) {
      const AxisPhase p = axis_phase(conv, a, phases[a]);
      part.axis[a] = p.axis;
      part.weight += p.last * tap_steps[a];
      part.weight_tap[a] = -p.step * tap_steps[a];
      part.y.data += phases[a] * steps[a];
      part.y_step[a] = conv.stride[a] * steps[a];
      empty = empty || p.axis.kernel == 0;
    }
    if (empty) {  // no tap reaches these inputs: sums of nothing
      part.in = 0;
      for (ConvAxis& axis : part.axis) axis.kernel = 1;
    }
    join_axes(part);
    correlate(part);
  }
}

/// Padding by images of elements: the gradient of the padded input, a few images at a time, then folded back.
template <class T>
void backward_input_folded(const Conv& conv, Images<const T> dy, Images<const T> relu_output, const T* weight,
                           Images<T> dx) {
  constexpr int64_t kImagesBytes = 16 << 20;
  Conv padded = conv;
  padded.mode = PaddingMode::zero;
  Padding padding;
  padding.mode = conv.mode;
  Array part;  // of dx: [images, in, input..]
  part.dtype = dtype_of<T>;
  part.shape = {0, conv.in, conv.input[0], conv.input[1], conv.input[2]};
  part.strides[0] = dx.step;
  int64_t stride = 1;
  for (int a = 2; a >= 0; --a) {
    padded.input[a] = conv.input[a] + 2 * conv.padding[a];
    padded.padding[a] = 0;
    padding.before[2 + a] = padding.after[2 + a] = conv.padding[a];
    part.strides[2 + a] = stride;
    stride *= conv.input[a];
  }
  part.strides[1] = stride;
  const int64_t padded_plane = product(padded.input);
  const int64_t image_bytes = max<int64_t>(1, conv.in * padded_plane * static_cast<int64_t>(sizeof(T)));
  const int64_t images = min(max<int64_t>(1, kImagesBytes / image_bytes), conv.batch);
  const Scratch scratch(static_cast<std::size_t>(images * image_bytes));
  for (int64_t first = 0; first < conv.batch; first += images) {
    padded.batch = min(images, conv.batch - first);
    backward_input<T>(padded, dy.from(first), relu_output.from(first), weight,
                      {scratch.as<T>(), conv.in * padded_plane});
    part.data = dx.from(first).data;
    part.shape[0] = padded.batch;
    part.size = padded.batch * conv.in * product(conv.input);
    cpu::pad_backward(scratch.as<T>(), padding, part);
  }
}

}  // namespace

void CpuOps::conv(const Conv& conv, const Array& x, const Array& weight, const Array* bias, Epilogue epilogue,
                  const Array& y) {
  dispatch_floating(y.dtype, [&]<class T>() {
    forward<T>(conv, images_of<const T>(&x), weight.as<T>(), bias != nullptr ? bias->as<T>() : nullptr, epilogue,
               images_of<T>(&y));
  });
}

void CpuOps::conv_backward_input(const Conv& conv, const Array& dy, const Array* relu_output, const Array& weight,
                                 const Array& dx) {
  if (dx.size == 0) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    const bool folds = conv.mode != PaddingMode::zero && conv.padding[0] + conv.padding[1] + conv.padding[2] > 0;
    (folds ? backward_input_folded<T> : backward_input<T>)(conv, images_of<const T>(&dy),
                                                           images_of<const T>(relu_output), weight.as<T>(),
                                                           images_of<T>(&dx));
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
