// Convolution within sequences. All sequences are laid on one line with zeros between them, which one dense convolution
// walks; its results that look into two sequences are left out.

#include <algorithm>
#include <string>
#include <vector>

#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/correlation.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using Convolution = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&, SourceLocation);

void check_options(const char* op, const Ragged& x, const ConvOptions& options, SourceLocation where) {
  check::floating(op, "x", x.values(), where);
  check::rank(op, "x's values", x.values(), 2, "[total, in]", where);
  if (options.stride.count() != 1 || options.stride[0] != 1 || options.mode != PaddingMode::zero ||
      options.into.defined())
    throw Error(std::string(op) + ": within sequences stride 1, padding mode zero and memory of its own are required",
                where);
}

// `count` consecutive indices from `first` on.
void append_range(std::vector<std::int64_t>& indices, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(first + i);
}

Tensor on_device(const std::vector<std::int64_t>& indices, Device device) {
  Tensor index = empty({indices.size()}, {.dtype = i64, .device = device});
  backend(device).from_host(indices.data(), index.array().data,
                            static_cast<std::int64_t>(indices.size() * sizeof(std::int64_t)));
  return index;
}

Ragged within_sequences(const char* op, Convolution convolve, const Ragged& x, const Tensor& weight, const Tensor& bias,
                        const ConvOptions& options, SourceLocation where) {
  check_options(op, x, options, where);
  check::rank(op, "weight", weight, 3, "[out, in / groups, k]", where);
  Conv conv;
  detail::set_windows(conv, op, 1, detail::kernel_of(weight), options.stride, options.padding, options.dilation, where);
  const std::int64_t padding = conv.padding[2], lost = detail::reach(conv, 2) - 1;
  // Neighbours share the zeros between them. With wide padding they also share results there, over nothing but zeros.
  std::vector<std::int64_t> places, results, lengths;
  places.reserve(static_cast<std::size_t>(x.total()));
  results.reserve(static_cast<std::size_t>(x.total()));
  std::int64_t end = padding;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    lengths.push_back(std::max<std::int64_t>(0, x.length(i) + 2 * padding - lost));
    append_range(places, end, x.length(i));
    append_range(results, end - padding, lengths.back());
    end += x.length(i) + padding;
  }
  end = std::max(end, lost + 1);  // for one result at least

  const Tensor line = detail::add_rows(x.values(), on_device(places, x.device()), {end, x.values().shape()[1]});
  ConvOptions without_padding = options;
  without_padding.padding = 0;
  const Tensor y = convolve(unsqueeze(transpose(line), 0), weight, bias, without_padding, where);
  return Ragged(embedding(transpose(squeeze(y, 0)), on_device(results, x.device()), where), Offsets(lengths, where),
                where);
}

}  // namespace

Ragged conv1d(const Ragged& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
              SourceLocation where) {
  return within_sequences("conv1d", conv1d, x, weight, bias, options, where);
}
Ragged conv1d_relu(const Ragged& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                   SourceLocation where) {
  return within_sequences("conv1d_relu", conv1d_relu, x, weight, bias, options, where);
}

}  // namespace reel
