// How the gradients of a correlation's weight are cut into tiles, chunks and splits: by sizes only, so that sums have the same
// order wherever they are taken.

#include "reel/backends/cuda/conv_weight_tiles.h"

namespace reel::cuda {

namespace {

int ceil_div_int(int a, int b) { return static_cast<int>(ceil_div(a, b)); }

int power_of_two(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

int log_of(int power) {
  int log = 0;
  while (1 << log < power) ++log;
  return log;
}

/// As few parts as there can be of at most `most` each, as even as they can be: the size of one.
int even_part(int n, int most) {
  const int parts = ceil_div_int(n, most);
  return parts > 0 ? ceil_div_int(n, parts) : 1;
}

}  // namespace

std::size_t WeightTiling::shared_bytes(std::size_t element_bytes) const {
  const int64_t chunk = int64_t{out_channels()} * z_pitch + int64_t{in_channels()} * x_plane;
  const int64_t join = lanes > 1 ? int64_t{sums()} * join_pitch() : 0;
  return element_bytes * static_cast<std::size_t>(chunk > join ? chunk : join);
}

void WeightTiling::cut(int wanted_pixels) {
  constexpr int kCols = 32, kPad = device::kWarp;
  const int most_rows = power_of_two(g.output[1]), most_cols = power_of_two(g.output[2]);
  cols = most_cols < kCols ? most_cols : kCols;
  if (cols < kRun) cols = kRun;
  if (cols > wanted_pixels) cols = wanted_pixels;
  rows = wanted_pixels / cols;
  if (rows > most_rows) {
    rows = most_rows;
    while (cols < most_cols && rows * cols < wanted_pixels) cols *= 2;
  }
  col_shift = log_of(cols);
  pixel_shift = log_of(pixels());
  row_tiles = ceil_div_int(g.output[1], rows);
  col_tiles = ceil_div_int(g.output[2], cols);
  // Neighbouring channels lie four banks apart, so that packs of eight of them are read at once.
  const auto apart = [](int n) { return n + (kRun - n % kPad + kPad) % kPad; };
  x_rows = (rows - 1) * g.stride[1] + (micro_rows - 1) * g.dilation[1] + 1;
  x_cols = (cols - 1) * g.stride[2] + (micro_cols - 1) * g.dilation[2] + 1;
  x_pitch = (x_cols + kRun - 1) / kRun * kRun;
  x_plane = apart(x_rows * x_pitch);
  z_pitch = apart(pixels());
  x_row = Divisor(x_cols);
  x_shift = 0;
  while (x_shift < kThreadsLog && 1 << x_shift < x_rows * x_cols) ++x_shift;
}

bool WeightTiling::plan(std::size_t element_bytes, int wanted_blocks) {
  constexpr int kMostOut = 16, kMostIn = 8, kLeast = 32, kMost = 128;
  constexpr int kMostReach = 1 << 10;  // so that x_plane is an int
  for (int a = 1; a < 3; ++a)
    if (g.stride[a] > kMostReach || g.dilation[a] > kMostReach) return false;
  out_threads = even_part(ceil_div_int(g.out_group(), micro_out), kMostOut);
  in_threads = even_part(ceil_div_int(g.in_group(), micro_in), kMostIn);
  lanes = kThreads / threads_of_tile();
  out_tiles = ceil_div_int(g.out_group(), out_channels());
  in_tiles = g.in_group() > 0 ? ceil_div_int(g.in_group(), in_channels()) : 1;
  row_slices = ceil_div_int(g.kernel[1], micro_rows);
  col_slices = ceil_div_int(g.kernel[2], micro_cols);
  if (int64_t{g.groups} * g.kernel[0] * row_slices > INT32_MAX / (int64_t{col_slices} * out_tiles * in_tiles + 1))
    return false;  // tiles() is an int
  dense = g.stride[2] == 1 && g.dilation[2] == 1;

  // The largest chunk that fits, but so small that half of the wanted blocks have one; each lane has a run of it.
  const int least = power_of_two(kRun * lanes) > kLeast ? power_of_two(kRun * lanes) : kLeast;
  const auto count = [&] { return int64_t{g.batch} * g.output[0] * row_tiles * col_tiles; };
  int wanted = least > kMost ? least : kMost;
  cut(wanted);
  while (wanted > kRun &&
         (shared_bytes(element_bytes) > kShared || (wanted > least && count() * tiles() < wanted_blocks / 2)))
    cut(wanted /= 2);
  if (shared_bytes(element_bytes) > kShared || count() > INT32_MAX / 2) return false;

  chunks = static_cast<int>(count());
  const int blocks = tiles() < wanted_blocks ? wanted_blocks / (tiles() > 0 ? tiles() : 1) : 1;
  splits = chunks < blocks ? (chunks > 0 ? chunks : 1) : blocks;
  chunks_of_split = chunks / splits;
  chunks_left = chunks % splits;
  direct = splits == 1 && lanes > 1;
  const int chain = pixels() / lanes > kRun ? pixels() / lanes : kRun;  // of a thread in one chunk
  flush = kChain / chain;
  return true;
}

}  // namespace reel::cuda
