// Direct correlation over packed blocks: an implicit matrix product of [out, taps] and [taps, positions], whose right side
// is never written down, since tap t of all positions is the packed block itself from offset[t] on.

#include "reel/backends/cpu/conv_correlate.h"

#include "reel/backends/cpu/conv_pack.h"
#include "reel/backends/cpu/conv_tile.h"
#include "reel/backends/cpu/conv_tile_3x3.h"
#include "reel/backends/cpu/gemm_pack.h"
#include "reel/backends/cpu/stream.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// Whether each channel's taps follow one another in memory, forwards, or backwards as those of an input's gradient, for as many
/// outputs as are worth a transposition.
template <class T>
REEL_INLINE bool taps_follow(const Correlation<T>& c) {
  const int64_t step = c.weight_tap[2], columns = c.axis[2].kernel, plane = c.axis[1].kernel * columns;
  return c.out >= 4 && (step == 1 || step == -1) && (plane == columns || c.weight_tap[1] == step * columns) &&
         (c.axis[0].kernel == 1 || c.weight_tap[0] == step * plane);
}

/// The weight in the order in which the tiles read it: [group][tile of rows][in, taps][row of the tile].
template <class T>
void pack_weight(const Correlation<T>& c, const RowTiles<T>& tiles, T* packed) {
  const int64_t taps = c.axis[0].kernel * c.axis[1].kernel * c.axis[2].kernel;
  const bool follow = taps_follow(c), backwards = c.weight_tap[2] < 0;
  const int64_t joined = follow && !backwards && c.weight_in == taps ? c.in : 1;  // channels whose taps are one run
  for (int64_t unit = 0; unit < c.groups * tiles.count(); ++unit) {
    const int64_t group = unit / tiles.count(), begin = tiles.begin(unit % tiles.count());
    const int64_t rows = tiles.begin(unit % tiles.count() + 1) - begin;
    const T* weight = c.weight + group * c.weight_group + begin * c.weight_out;
    for (int64_t i = 0; i < c.in; i += joined, weight += joined * c.weight_in, packed += joined * taps * rows) {
      if (follow) {
        const int64_t last = backwards ? taps - 1 : 0;
        product::transpose(weight - last, c.weight_out, rows, joined * taps, packed + last * rows,
                           backwards ? -rows : rows);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        T* to = packed + r;
        for (int64_t k0 = 0; k0 < c.axis[0].kernel; ++k0) {
          for (int64_t k1 = 0; k1 < c.axis[1].kernel; ++k1) {
            const T* from = weight + r * c.weight_out + k0 * c.weight_tap[0] + k1 * c.weight_tap[1];
            for (int64_t k2 = 0; k2 < c.axis[2].kernel; ++k2, to += rows) *to = from[k2 * c.weight_tap[2]];
          }
        }
      }
    }
  }
}

/// y[i * step] = from[i], i < n. from has room for whole vectors.
template <class T>
REEL_INLINE void spread(const T* from, int64_t n, T* y, int64_t step) {
#if defined(REEL_SIMD_AVX512)
  if (step == 2) {
    using V = Vec<T>;
    constexpr auto every_other = static_cast<typename V::Mask>(0x5555);
    const auto first = [](int64_t lanes) { return V::first(max<int64_t>(0, min<int64_t>(V::width, lanes))); };
    for (int64_t i = 0; i < n; i += V::width, y += 2 * V::width) {
      const V v = V::load(from + i);
      twice_low(v).store(y, first(2 * (n - i)) & every_other);
      twice_high(v).store(y + V::width, first(2 * (n - i) - V::width) & every_other);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) y[i * step] = from[i];
}

/// y[0 .. rows, 0 .. columns] of one output channel from a joined run.
template <class T>
REEL_INLINE void spread_run(const T* from, int64_t pitch, int64_t rows, int64_t columns, T* y, int64_t y_row,
                            int64_t y_column) {
  using V = Vec<T>;
  for (int64_t r = 0; r < rows; ++r, from += pitch, y += y_row) {
    if (y_column != 1) {
      spread(from, columns, y, y_column);
      continue;
    }
    int64_t i = 0;
    for (; i + V::width <= columns; i += V::width) V::load(from + i).store(y + i);
    if (i < columns) V::load(from + i).store(y + i, V::first(columns - i));
  }
}

/// In how many parts the tiles take the taps of all channels, one part after the other for all positions of a block: so that what
/// a tile reads of a part, input and weights, is still in the first-level cache where the next tile needs it, and with AVX2 what a row
/// of tiles reads where the next row does. In between the sums wait in y, which a few tiles, taps or rows would not repay.
template <class T>
REEL_INLINE int64_t tap_parts(const Correlation<T>& c, int64_t rows_of_block, int64_t positions, int64_t pitch) {
  // Half of the cache that processors of the instruction set have: what else passes by takes room, and maybe a neighbour does.
  constexpr int64_t kPartBytes = (kVectorBytes == 64 ? 24 : 14) * 1024, kLine = 64, kFewTiles = 5;
  constexpr int64_t width = kTileVectors[kTileRows - 1] * Vec<T>::width;  // of a tile
  const ConvAxis& last = c.axis[2];
  const int64_t rows = c.axis[0].kernel * c.axis[1].kernel;
  if (rows * last.kernel == 1 || positions < kFewTiles * width) return 1;
  const int64_t reads = min(last.kernel * width, width + (last.kernel - 1) * last.dilation);
  const int64_t row_bytes = reads * static_cast<int64_t>(sizeof(T)) + kLine;  // wherever in a line the row begins
  const int64_t tap_bytes = kTileRows * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(sizeof(int64_t));
  const int64_t parts = max<int64_t>(1, ceil_div(c.in * rows * (row_bytes + last.kernel * tap_bytes), kPartBytes));
  constexpr int64_t kRowBytes = 26 * 1024, kManyTaps = 64, kManyRows = 4;
  if (kVectorBytes != 32 || rows_of_block < kManyRows) return parts;
  const int64_t by_rows = ceil_div(c.in * rows * pitch * static_cast<int64_t>(sizeof(T)), kRowBytes);
  return max(parts, min(by_rows, c.in * rows * last.kernel / kManyTaps));
}

/// Elements of an input channel.
template <class T>
REEL_INLINE int64_t plane_of(const Correlation<T>& c) {
  return c.axis[0].input * c.axis[1].input * c.axis[2].input;
}

/// Input channels [first, first + count), those of a block that are packed together.
struct Channels {
  int64_t first, count;
};

/// The layout of blocks with all channels; or, where rows of one output share what they read, with so few that blocks have enough
/// rows not to be mostly their borders and, without AVX-512, nearly fit the first-level cache: the sums wait in y, and tiles of rows
/// lose little by that.
template <class T>
BlockLayout layout_of(const Correlation<T>& c, int64_t cost, int64_t& together) {
  constexpr int64_t kOneBytes = 384 * 1024, kSharedBytes = (kVectorBytes == 64 ? 384 : 80) * 1024;
  const auto of = [&](int64_t channels, int64_t bytes) {
    return block_layout(c.axis, channels, cost, Vec<T>::width, bytes / sizeof(T), kVectorBytes == 64 ? 512 : 96);
  };
  const auto share = [&](const BlockLayout& layout) {
    return rows_share(c.axis, layout, c.out) && !RunPlan<T>(layout, c.y_step[2] != 1).joined;
  };
  const BlockLayout single = of(min<int64_t>(1, c.in), kOneBytes);
  together = c.in;
  if (!share(single)) return of(c.in, kConvBlockBytes);
  const int64_t rows = min(max<int64_t>(16, 4 * c.axis[1].dilation), c.axis[1].output);
  for (; together > 1; together = ceil_div(together, 2)) {
    BlockLayout layout = of(together, kSharedBytes);
    if (!share(layout) || layout.axes[1].count < rows) continue;
    layout.interleave(together);
    return layout;
  }
  return single;
}

/// The outputs of one block of one image and group, from its packed input. `next`: null, or where what is packed next begins.
template <class T>
void correlate_block(const Correlation<T>& c, const BlockLayout& layout, const BlockOrigin& origin,
                     const RunPlan<T>& plan, int64_t group, Channels in, const T* packed, const T* next,
                     const T* weight, const RowTiles<T>& tiles, const int64_t* offset, int64_t taps, T* y, T* buffer) {
  const int64_t planes = origin.count(layout, c.axis[0], 0);
  const int64_t rows = origin.count(layout, c.axis[1], 1), columns = origin.count(layout, c.axis[2], 2);
  const int64_t parts = tap_parts(c, rows, rows * columns, layout.pitch);
  y += origin.first[0] * c.y_step[0] + origin.first[1] * c.y_step[1] + origin.first[2] * c.y_step[2];
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t begin = tiles.begin(tile), channels = tiles.begin(tile + 1) - begin;
    TileArguments<T> a;
    a.bias = c.bias != nullptr ? c.bias + group * c.out + begin : nullptr;
    const auto in_parts = [&](int64_t n, int64_t runs, int64_t x_step, int64_t y_step) {
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = tile_begin(taps, parts, part);
        a.weight = weight + begin * taps + first * channels;
        a.offset = offset + first;
        a.taps = tile_begin(taps, parts, part + 1) - first;
        a.resumes = part > 0;
        a.relu = c.relu && part == parts - 1;
        correlate_runs(channels, n, runs, x_step, y_step, a);
      }
    };
    for (int64_t p = 0; p < planes; ++p) {
      const T* x = packed + p * layout.axes[1].positions() * layout.pitch;
      T* to = y + begin * c.y_channel + p * c.y_step[0];
      if (plan.joined) {
        a.x = x;
        a.y = buffer;
        a.y_row = plan.padded_length(rows, columns);
        in_parts(plan.length(rows, columns), 1, 0, 0);
        for (int64_t r = 0; r < channels; ++r) {
          spread_run(buffer + r * a.y_row, layout.pitch, rows, columns, to + r * c.y_channel, c.y_step[1], c.y_step[2]);
        }
      } else if (rows_share(c.axis, layout, c.out)) {
        alignas(kVectorBytes) T start[Vec<T>::width];
        Vec<T>::broadcast(a.bias != nullptr ? *a.bias : T(0)).store(start);
        const int64_t first = layout.tap(c.axis, 0, 0, 0), x_column = layout.tap(c.axis, 0, 0, 1) - first;
        const SharedRowsArguments<T> shared{.weight = weight + begin * taps + 9 * in.first,
                                            .x = x + first,
                                            .in = in.count,
                                            .x_channel = layout.channel,
                                            .x_row = layout.pitch,
                                            .x_column = x_column,
                                            .start = start,
                                            .resumes = in.first > 0,
                                            .relu = c.relu && in.first + in.count == c.in,
                                            .y = to,
                                            .y_row = c.y_step[1],
                                            .next = p == 0 ? next : nullptr,
                                            .next_channel = plane_of(c),
                                            .next_row = c.axis[2].input};
        correlate_shared_rows<T>(c.axis[1].dilation, rows, columns, shared);
      } else {
        a.x = x;
        a.y = to;
        a.y_row = c.y_channel;
        in_parts(columns, rows, layout.pitch, c.y_step[1]);
      }
    }
  }
}

}  // namespace

template <class T>
void correlate(const Correlation<T>& c) {
  const int64_t outputs = c.axis[0].output * c.axis[1].output * c.axis[2].output;
  if (c.images * c.groups * c.out * outputs == 0) return;
  const int64_t taps = c.in * c.axis[0].kernel * c.axis[1].kernel * c.axis[2].kernel;
  const int64_t plane = plane_of(c);
  const int64_t cost = taps * c.out + 8 * c.in + c.out;
  int64_t together;  // input channels that are packed at once
  const BlockLayout layout = layout_of(c, cost, together);

  const Scratch weight_scratch(static_cast<std::size_t>(c.groups * c.out * taps) * sizeof(T));
  const RunPlan<T> plan(layout, c.y_step[2] != 1);
  const int64_t run = plan.padded_length(layout.axes[1].count, layout.axes[2].count);
  const RowTiles<T> row_tiles(c.out, run / Vec<T>::width);
  pack_weight(c, row_tiles, weight_scratch.as<T>());
  const Scratch offset_scratch(static_cast<std::size_t>(taps) * sizeof(int64_t));
  int64_t* const offset = offset_scratch.as<int64_t>();
  tap_offsets(c.axis, layout, c.in, offset);
  for (int64_t t = 0; t < taps; ++t) offset[t] *= static_cast<int64_t>(sizeof(T));

  const int64_t packed_elements = ceil_div(packed_size<T>(layout, together), 16) * 16;
  const int64_t buffer_elements = plan.joined ? kTileRows * run + Vec<T>::width : 0;  // spread_run reads whole vectors
  const int64_t block_cost = layout.axes[0].count * layout.axes[1].count * layout.axes[2].count * cost;
  const int64_t blocks = layout.count();
  const bool far = kAsksForNext && is_past_caches(c.images * c.groups * c.in * plane * static_cast<int64_t>(sizeof(T)));
  const int64_t units = c.images * c.groups * blocks;
  // Where the input of a block begins, but for padding, with stride 1; null behind the last.
  const auto corner = [&](int64_t unit, int64_t channel) -> const T* {
    if (unit == units) return nullptr;
    const BlockOrigin origin(layout, unit % blocks);
    const int64_t row = origin.first[0] * c.axis[0].stride * c.axis[1].input + origin.first[1];
    return c.x.from(unit / blocks / c.groups).data + (unit / blocks % c.groups * c.in + channel) * plane +
           row * c.axis[2].input + origin.first[2];
  };
  // Not inlined: parallel_for has two calls of it.
  const auto work = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    const Scratch scratch(static_cast<std::size_t>(packed_elements + buffer_elements) * sizeof(T));
    T* packed = scratch.as<T>();
    const bool zeroed = padding_stays(layout, c.mode) && (end - begin > 1 || together < c.in);
    if (zeroed) fill_zero(packed, 0, packed_elements);
    else zero_gaps(layout, plan.joined, together, packed);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / blocks / c.groups, group = unit / blocks % c.groups;
      const BlockOrigin origin(layout, unit % blocks);
      const T* mask = c.mask.from(image).data;
      Channels in{0, 0};
      do {  // of no channels too
        in.count = min(together, c.in - in.first);
        const int64_t start = (group * c.in + in.first) * plane;
        const int64_t after = in.first + together;
        const T* const next = !far ? nullptr : corner(unit + (after >= c.in), after < c.in ? after : 0);
        pack_block(c.axis, layout, origin, c.mode, c.x.from(image).data + start, mask ? mask + start : mask, plane,
                   in.count, zeroed, packed);
        correlate_block(c, layout, origin, plan, group, in, packed, next, weight_scratch.as<T>() + group * c.out * taps,
                        row_tiles, offset, taps, c.y.from(image).data + group * c.out * c.y_channel,
                        packed + packed_elements);
        in.first += together;
      } while (in.first < c.in);
    }
  };
  parallel_for(units, max<int64_t>(1, kConvGrain / block_cost), work);
}

template void correlate<float>(const Correlation<float>&);
template void correlate<double>(const Correlation<double>&);

}  // namespace reel::cpu::REEL_CPU_ISA
