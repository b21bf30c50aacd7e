// The gradients of input, weight and bias in one pass, for 3x3 convolutions with one input and one output channel in each group
// (images of one channel, depthwise layers). With padding p, dilation d and stride 1
//   dx[r, c] = sum over i, j of weight[i, j] dz[r + p - i d, c + p - j d],
//   dweight[i, j] = sum over r, c of x[r, c] dz[r + p - i d, c + p - j d]:
// the same nine views of dz, which are loaded once for both, and only dz has to be packed. The sums of dweight take in zeros
// around dz, not those around x as its definition does: where that shows, in numbers that are not finite, the other pass is asked.

#include "reel/backends/cpu/conv_pack.h"
#include "reel/backends/cpu/conv_parts.h"
#include "reel/backends/cpu/cpu_ops.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int kViews = 9;

/// `rows` rows of x and dx, one dilation apart, as are the rows + 2 rows of packed dz that they meet. Views are counted from
/// the upper left, and so is `weight`, the convolution's backwards.
template <class T>
struct RowsArguments {
  const T *x, *dz, *weight;
  T* dx;
  int64_t x_row, dz_row, dz_column;  // from one row, or column, to the next that takes part
  Vec<T>* sums;                      // of each view: dweight is added here
};

/// dx as one fma chain over the views in their order, which are the bits of conv_backward_input.
template <class T, int rows, class Lanes>
REEL_INLINE void add_positions(const RowsArguments<T>& a, Lanes lanes, int64_t i, Vec<T> (&sums)[kViews]) {
  using V = Vec<T>;
  V x[rows], dx[rows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    x[r] = lanes.load(a.x + r * a.x_row + i);
    dx[r] = V::zero();
  }
  const T *row_of_dz = a.dz + i, *weight = a.weight;
#pragma GCC unroll 4
  for (int row = 0; row < rows + 2; ++row, row_of_dz += a.dz_row) {
#pragma GCC unroll 4
    for (int column = 0; column < 3; ++column) {
      __asm__ volatile("" : "+r"(weight));  // else all weights are loaded ahead and spilled
      V dz = lanes.load(row_of_dz + column * a.dz_column);
      __asm__("" : "+x"(dz.raw));  // else it is loaded again for each use
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        if (row < r || row >= r + 3) continue;
        const int view = 3 * (row - r) + column;
        dx[r] = fma(V::broadcast(weight[view]), dz, dx[r]);
        sums[view] = fma(x[r], dz, sums[view]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) lanes.store(a.dx + r * a.x_row + i, dx[r]);
}

template <class T, int rows>
__attribute__((noinline)) void add_rows(const RowsArguments<T>& arguments, int64_t columns) {
  const RowsArguments<T> a = arguments;  // no store can change these
  Vec<T> sums[kViews];
  for (int view = 0; view < kViews; ++view) sums[view] = a.sums[view];
  for_each_vector<T>(
      0, columns, [&](auto lanes, int64_t i) __attribute__((always_inline)) {
        add_positions<T, rows>(a, lanes, i, sums);
      });
  for (int view = 0; view < kViews; ++view) a.sums[view] = sums[view];
}

template <class T>
struct BackwardPass {
  const Conv& conv;
  Images<const T> x, dy, relu_output;
  const T* weight;  // [groups, 3, 3]
  Images<T> dx;

  int64_t rows = conv.input[1], columns = conv.input[2], dilation = conv.dilation[1];
  ConvAxis axis = {conv.output[2], conv.input[2], 3, 1, conv.dilation[2], 0};
  int64_t start = conv.padding[2] - 2 * conv.dilation[2];  // of a packed row: the column of dz, or where it would be
  int64_t length = columns + 2 * conv.dilation[2];
  int64_t lead = (Vec<T>::width + start % Vec<T>::width) % Vec<T>::width;  // columns of dz are aligned as in dy
  int64_t pitch = ceil_div(lead + length, Vec<T>::width) * Vec<T>::width;
  int64_t block_rows = rows_of_block();
  int64_t blocks = ceil_div(rows, block_rows);

  /// About a power of two of blocks, each with more rows than it packs twice, and with enough to do.
  int64_t rows_of_block() const {
    const int64_t least = max(8 * dilation, kConvGrain / (4 * kViews * columns));
    int64_t count = 1;
    while (rows / (2 * count) >= least) count *= 2;
    return ceil_div(rows, count);
  }
  int64_t packed_elements() const { return (block_rows + 2 * dilation) * pitch + 2 * Vec<T>::width; }
  int64_t block_cost() const { return 2 * kViews * block_rows * columns; }

  /// One block's rows of dx; adds its part of the views' sums, and of the bias' gradient, which it returns.
  T operator()(int64_t image, int64_t group, int64_t block, T* packed, const T* backwards, Vec<T>* sums) const {
    const int64_t first = block * block_rows, count = min(block_rows, rows - first);
    const int64_t dz_plane = conv.output[1] * conv.output[2], first_dz = first + conv.padding[1] - 2 * dilation;
    const T* const dy_plane = dy.from(image).data + group * dz_plane;
    const T* const y = relu_output.from(image).data;
    const T* const y_plane = y ? y + group * dz_plane : nullptr;
    // Each row of dz is one block's for the bias: that of x's row of this number, or the last.
    const int64_t own_end = block + 1 == blocks ? conv.output[1] : first + count;
    const RunPacker<T> pack_row(axis, start, length, PaddingMode::zero, false);
    T bias = 0;
    T* to = packed + lead;
    for (int64_t row = first_dz; row < first_dz + count + 2 * dilation; ++row, to += pitch) {
      if (row < 0 || row >= conv.output[1]) {
        fill_zero(to, 0, length);
        continue;
      }
      pack_row(dy_plane + row * conv.output[2], y_plane ? y_plane + row * conv.output[2] : y_plane, to);
      if (row < first || row >= own_end) continue;
      bias += sum_row<T>(
          conv.output[2], [dz = to - start](Vec<T> acc, auto lanes, int64_t i)
                              __attribute__((always_inline)) { return acc + lanes.load(dz + i); });
    }

    RowsArguments<T> a;
    a.weight = backwards;
    a.x_row = dilation * columns;
    a.dz_row = dilation * pitch;
    a.dz_column = conv.dilation[2];
    a.sums = sums;
    const int64_t plane = (group * rows + first) * columns;
    for (int64_t phase = 0; phase < min(dilation, count); ++phase) {
      for (int64_t row = phase; row < count; row += 2 * dilation) {
        a.x = x.from(image).data + plane + row * columns;
        a.dx = dx.from(image).data + plane + row * columns;
        a.dz = packed + lead + row * pitch;
        if (row + dilation < count) {
          add_rows<T, 2>(a, columns);
        } else {
          add_rows<T, 1>(a, columns);
        }
      }
    }
    return bias;
  }
};

/// Returns whether dweight is finite.
template <class T>
bool backward(const BackwardPass<T>& pass, T* dweight, T* dbias) {
  constexpr int64_t kMostParts = 64;
  const int64_t groups = pass.conv.groups, units = pass.conv.batch * pass.blocks;
  const int64_t chunk = max(ceil_div(units, kMostParts), max<int64_t>(1, kConvGrain / pass.block_cost()));
  const int64_t parts = ceil_div(units, chunk), part_size = groups * (kViews + 1);  // dweight, then dbias
  const Scratch partials(static_cast<std::size_t>(parts * part_size) * sizeof(T));
  // Not inlined: parallel_for has two calls of it.
  const auto work = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    const Scratch packed(static_cast<std::size_t>(pass.packed_elements()) * sizeof(T));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task % groups, part = task / groups;
      T backwards[kViews], bias = 0;
      Vec<T> sums[kViews];
      for (int view = 0; view < kViews; ++view) {
        backwards[view] = pass.weight[group * kViews + kViews - 1 - view];
        sums[view] = Vec<T>::zero();
      }
      for (int64_t unit = part * chunk; unit < min(units, (part + 1) * chunk); ++unit) {
        bias += pass(unit / pass.blocks, group, unit % pass.blocks, packed.as<T>(), backwards, sums);
      }
      T* const to = partials.as<T>() + part * part_size;
      for (int view = 0; view < kViews; ++view) to[group * kViews + kViews - 1 - view] = reduce_add(sums[view]);
      to[groups * kViews + group] = bias;
    }
  };
  parallel_for(parts * groups, max<int64_t>(1, kConvGrain / (chunk * pass.block_cost())), work);
  add_parts(partials.as<T>(), parts, part_size, groups * kViews, dweight);
  if (dbias != nullptr) add_parts(partials.as<T>() + groups * kViews, parts, part_size, groups, dbias);
  for (int64_t i = 0; i < groups * kViews; ++i) {
    if (!__builtin_isfinite(dweight[i])) return false;
  }
  return true;
}

/// Whether every position of dz is a view of a position of x, so that one that is not finite shows in dweight; and padding
/// makes no more than four images of one.
bool has_nine_views(const Conv& conv) {
  for (int a = 0; a < 3; ++a) {
    const int64_t kernel = a == 0 ? 1 : 3, dilation = conv.dilation[a];
    if (conv.kernel[a] != kernel || conv.stride[a] != 1 || conv.padding[a] > (kernel - 1) * dilation) return false;
    if (a > 0 && dilation > conv.input[a] / 2) return false;
  }
  return conv.input[0] == 1 && conv.in == conv.groups && conv.out == conv.groups &&
         (conv.mode == PaddingMode::zero || conv.padding[1] + conv.padding[2] == 0) &&
         conv.batch * conv.groups * conv.output[1] * conv.output[2] > 0;
}

}  // namespace

void CpuOps::conv_backward(const Conv& conv, const Array& x, const Array& dy, const Array* relu_output,
                           const Array& weight, const Array& dx, const Array& dweight, const Array* dbias) {
  if (!has_nine_views(conv)) return Ops::conv_backward(conv, x, dy, relu_output, weight, dx, dweight, dbias);
  dispatch_floating(dx.dtype, [&]<class T>() {
    const BackwardPass<T> pass{
        conv,           images_of<const T>(&x), images_of<const T>(&dy), images_of<const T>(relu_output),
        weight.as<T>(), images_of<T>(&dx)};
    const bool finite = backward(pass, dweight.as<T>(), dbias != nullptr ? dbias->as<T>() : nullptr);
    if (!finite) conv_backward_weight(conv, x, dy, relu_output, dweight, dbias);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
