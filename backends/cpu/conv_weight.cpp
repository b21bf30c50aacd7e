// The gradients of a convolution's weight and bias: for each output channel and tap a dot product of dz with the input as
// that tap sees it, over all positions of all images. Positions run along the vectors, or, if there are enough of them,
// output channels do; several channels and taps share what is in registers. The work is cut into chunks of images and
// blocks by size alone; each chunk sums for itself, and the chunks' sums are added in their order, so that the result does
// not depend on the number of threads.

#include "reel/backends/cpu/conv_pack.h"
#include "reel/backends/cpu/conv_parts.h"
#include "reel/backends/cpu/conv_tile.h"
#include "reel/backends/cpu/conv_weight_channels.h"
#include "reel/backends/cpu/conv_weight_tile.h"
#include "reel/backends/cpu/conv_weight_tile_3x3.h"
#include "reel/backends/cpu/cpu_ops.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// A tile's sums across lanes cost about as much as this many vectors of positions: a unit of work should have more.
constexpr int64_t kUnitVectors = 64;
/// So that it can: x and dz of a unit, with many channels.
constexpr int64_t kUnitBytes = 768 * 1024;
constexpr int64_t kPartialBytes = 32 << 20;
constexpr int64_t kMostPartials = 64, kLeastPartials = 4;

template <class T>
struct WeightPass {
  const Conv& conv;
  Images<const T> x, dy, relu_output;  // relu_output: or none
  ConvAxis axis[3];
  int64_t in, out, taps;  // of one group; taps counts those of all its channels
  int64_t x_plane, dy_plane;
  BlockLayout layout;
  RunPlan<T> plan;
  int64_t unit_images;  // images that are worked on together; more than one only if each is a single block

  WeightPass(const Conv& conv_, Images<const T> x_, Images<const T> dy_, Images<const T> relu_output_)
      : conv(conv_), x(x_), dy(dy_), relu_output(relu_output_), layout(lay_out()), plan(layout, false) {
    const int64_t rows = layout.axes[1].count, columns = layout.axes[2].count;
    const int64_t image_vectors = layout.axes[0].count * runs(rows) * plan.padded_length(rows, columns) / Vec<T>::width;
    const int64_t image_bytes = (in * layout.channel + out * image_vectors * Vec<T>::width) * sizeof(T);
    unit_images = 1;
    if (layout.count() == 1) {
      const int64_t wanted = ceil_div(kUnitVectors, image_vectors);
      unit_images = max<int64_t>(1, min(conv.batch, min(wanted, kUnitBytes / max<int64_t>(1, image_bytes))));
    }
  }

  int64_t runs(int64_t rows) const { return plan.joined ? 1 : rows; }
  int64_t cost() const { return taps * out + 8 * (in + out); }  // of one position
  int64_t units() const { return ceil_div(conv.batch, unit_images) * layout.count(); }
  int64_t unit_cost() const {
    return unit_images * layout.axes[0].count * layout.axes[1].count * layout.axes[2].count * cost();
  }

  // Elements of the scratch memory of a unit: x, then dz.
  int64_t packed_x() const { return ceil_div(unit_images * in * layout.channel + 2 * Vec<T>::width, 16) * 16; }
  int64_t packed_dz() const {
    const int64_t rows = layout.axes[1].count, columns = layout.axes[2].count;
    return out * unit_images * layout.axes[0].count * runs(rows) * plan.padded_length(rows, columns) +
           2 * Vec<T>::width;
  }
  // By channels: dz by positions, then the sums by taps.
  bool by_channels() const { return channels_fill_vectors<T>(out); }
  int64_t channels() const { return ceil_div(out, Vec<T>::width) * Vec<T>::width; }
  int64_t dz_by_position() const { return kChannelBytes / static_cast<int64_t>(sizeof(T)) + channels(); }
  int64_t masks() const { return plan.padded_length(layout.axes[1].count, layout.axes[2].count) / Vec<T>::width; }

  /// dz of one channel's planes of a block: each plane one joined run, or a run per row, all else 0. `y`: or null.
  T* pack_dz(const T* dz, const T* y, const BlockOrigin& origin, int64_t planes, int64_t rows, int64_t columns,
             T* to) const {
    const int64_t length = plan.padded_length(rows, columns);
    for (int64_t p = 0; p < planes; ++p) {
      T* const plane = to;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row =
            ((origin.first[0] + p) * conv.output[1] + origin.first[1] + r) * conv.output[2] + origin.first[2];
        copy_masked(dz + row, y ? y + row : y, columns, to);
        const int64_t end = plan.joined ? (r + 1 < rows ? plan.pitch : plane + length - to) : length;
        fill_zero(to, end_of_copy<T>(columns), end);
        to += end;
      }
    }
    return to;
  }

  /// Adds one unit's part to sums [out, taps], or, if by_position (room for dz_by_position()) is not null, [taps, channels],
  /// and, if not null, bias_sums [out].
  void add_unit(int64_t group, int64_t unit, const int64_t* offset, bool zeroed, T* packed, T* dz, T* by_position,
                LaneMask<T>* mask, T* sums, T* bias_sums) const {
    const int64_t first_image = unit / layout.count() * unit_images;
    const BlockOrigin origin(layout, unit % layout.count());
    const int64_t rows = origin.count(layout, axis[1], 1), columns = origin.count(layout, axis[2], 2);
    WeightBlock<T> block;
    block.x = packed;
    block.dz = dz;
    block.mask = mask;
    block.images = min(unit_images, conv.batch - first_image);
    block.planes = origin.count(layout, axis[0], 0);
    block.runs = runs(rows);
    block.vectors = plan.padded_length(rows, columns) / Vec<T>::width;
    block.x_image = in * layout.channel;
    block.x_plane = layout.axes[1].positions() * layout.pitch;
    block.x_run = layout.pitch;
    block.dz_row = block.images * block.planes * block.runs * block.vectors * Vec<T>::width;

    for (int64_t image = 0; image < block.images; ++image) {
      pack_block<T>(axis, layout, origin, conv.mode, x.from(first_image + image).data + group * in * x_plane, nullptr,
                    x_plane, in, zeroed, packed + image * block.x_image);
    }
    T* to = dz;
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t image = 0; image < block.images; ++image) {
        const int64_t start = (group * out + o) * dy_plane;
        const T* y = relu_output.from(first_image + image).data;
        to = pack_dz(dy.from(first_image + image).data + start, y ? y + start : y, origin, block.planes, rows, columns,
                     to);
      }
    }
    if (by_position != nullptr) {
      const int64_t run = block.vectors * Vec<T>::width;
      add_by_channels(block, {rows, columns, plan.joined ? plan.pitch : run, block.runs * run}, out, offset, taps,
                      by_position, sums);
    } else if (set_masks(plan.length(rows, columns), columns, block.vectors, mask);
               !plan.joined && rows_share(axis, layout, out)) {
      add_weight_3x3(block, axis[1].dilation, in, offset, sums);
    } else {
      add_tiles(block, offset, sums);
    }
    if (bias_sums == nullptr) return;
    for (int64_t o = 0; o < out; ++o) bias_sums[o] += sum_vectors(dz + o * block.dz_row, block.dz_row);
  }

 private:
  BlockLayout lay_out() {
    in = conv.in / conv.groups;
    out = conv.out / conv.groups;
    taps = in;
    x_plane = dy_plane = 1;
    for (int a = 0; a < 3; ++a) {
      axis[a] = {conv.input[a], conv.output[a], conv.kernel[a], conv.stride[a], conv.dilation[a], conv.padding[a]};
      taps *= conv.kernel[a];
      x_plane *= conv.input[a];
      dy_plane *= conv.output[a];
    }
    return block_layout(axis, in + out, cost(), Vec<T>::width, kUnitBytes / sizeof(T));
  }

  /// All sums of a block, tile by tile.
  void add_tiles(const WeightBlock<T>& block, const int64_t* offset, T* sums) const {
    const int64_t row_tiles = ceil_div(out, kWeightRows);
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      const int64_t o = tile_begin(out, row_tiles, tile), tile_rows = tile_begin(out, row_tiles, tile + 1) - o;
      for (int64_t t = 0; t < taps;) {
        t += call_weight_tile<T>(tile_rows, taps - t, block, block.dz + o * block.dz_row, offset + t,
                                 sums + o * taps + t, taps);
      }
    }
  }

  void set_masks(int64_t length, int64_t columns, int64_t vectors, LaneMask<T>* mask) const {
    int64_t column = 0;
    for (int64_t v = 0; v < vectors; ++v) {
      for (int lane = 0; lane < Vec<T>::width; ++lane) {
        mask[v].set(lane, column < columns && v * Vec<T>::width + lane < length);
        if (++column == plan.pitch) column = 0;
      }
    }
  }
};

template <class T>
REEL_INLINE void set_zero(T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

template <class T>
void backward_weight(const Conv& conv, Images<const T> x, Images<const T> dy, Images<const T> relu_output, T* dweight,
                     T* dbias) {
  const int64_t outputs = conv.output[0] * conv.output[1] * conv.output[2];
  const int64_t weights = conv.out * (conv.in / conv.groups) * conv.kernel[0] * conv.kernel[1] * conv.kernel[2];
  if (conv.batch * conv.out * outputs == 0) {
    set_zero(dweight, weights);
    if (dbias != nullptr) set_zero(dbias, conv.out);
    return;
  }
  const WeightPass<T> pass(conv, x, dy, relu_output);
  const Scratch offsets(static_cast<std::size_t>(pass.taps) * sizeof(int64_t));
  tap_offsets(pass.axis, pass.layout, pass.in, offsets.as<int64_t>());

  const int64_t units = pass.units();
  const int64_t most = kPartialBytes / (weights * static_cast<int64_t>(sizeof(T)) + 1);
  const int64_t chunk = max(ceil_div(units, max(kLeastPartials, min(kMostPartials, most))),
                            max<int64_t>(1, kConvGrain / pass.unit_cost()));
  const int64_t parts = ceil_div(units, chunk);
  const int64_t part_size = weights + conv.out;  // [weights], [out] of each part; a single part is the result
  const Scratch partials(parts > 1 ? static_cast<std::size_t>(parts * part_size) * sizeof(T) : 0);
  const int64_t task_cost = min(chunk, units) * pass.unit_cost();
  // Not inlined: parallel_for has two calls of it.
  const auto work = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    const Scratch packed(static_cast<std::size_t>(pass.packed_x() + pass.packed_dz()) * sizeof(T));
    const Scratch masks(static_cast<std::size_t>(pass.masks()) * sizeof(LaneMask<T>));
    const bool zeroed = padding_stays(pass.layout, conv.mode);
    if (zeroed) fill_zero(packed.as<T>(), 0, pass.packed_x());
    const bool by_channels = pass.by_channels();
    const int64_t by_tap_size = pass.taps * pass.channels();
    const Scratch own(by_channels ? static_cast<std::size_t>(by_tap_size + pass.dz_by_position()) * sizeof(T) : 0);
    T* const by_tap = own.as<T>();
    T* const by_position = by_channels ? by_tap + by_tap_size : nullptr;
    if (by_channels) set_zero(by_position, pass.dz_by_position());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task % conv.groups, part = task / conv.groups;
      T* sums = (parts > 1 ? partials.as<T>() + part * part_size : dweight) + group * pass.out * pass.taps;
      if (by_channels) {
        set_zero(by_tap, by_tap_size);
      } else {
        set_zero(sums, pass.out * pass.taps);
      }
      T* bias_sums = nullptr;
      if (dbias != nullptr) {
        bias_sums = (parts > 1 ? partials.as<T>() + part * part_size + weights : dbias) + group * pass.out;
        set_zero(bias_sums, pass.out);
      }
      for (int64_t unit = part * chunk; unit < min(units, (part + 1) * chunk); ++unit) {
        pass.add_unit(group, unit, offsets.as<int64_t>(), zeroed, packed.as<T>(), packed.as<T>() + pass.packed_x(),
                      by_position, masks.as<LaneMask<T>>(), by_channels ? by_tap : sums, bias_sums);
      }
      if (by_channels) transpose_block(by_tap, pass.channels(), sums, pass.taps, pass.out, pass.taps);
    }
  };
  parallel_for(parts * conv.groups, max<int64_t>(1, kConvGrain / task_cost), work);
  if (parts == 1) return;
  add_parts(partials.as<T>(), parts, part_size, weights, dweight);
  if (dbias != nullptr) add_parts(partials.as<T>() + weights, parts, part_size, conv.out, dbias);
}

}  // namespace

void CpuOps::conv_backward_weight(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                                  const Array& dweight, const Array* dbias) {
  dispatch_floating(dweight.dtype, [&]<class T>() {
    backward_weight<T>(conv, images_of<const T>(&x), images_of<const T>(&dy), images_of<const T>(relu_output),
                       dweight.as<T>(), dbias != nullptr ? dbias->as<T>() : nullptr);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
