// Convolution within sequences. All sequences are laid on one line with zeros between them, which one dense convolution
// walks; its results that look into two sequences are left out.

#include <algorithm>
#include <string>

#include "reel/ops/conv.h"
#include "reel/ops/correlation.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/padding.h"
#include "reel/ops/rows.h"
#include "reel/ops/sequence.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using Convolution = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&, SourceLocation);

// For each sequence i as many consecutive numbers from first_of(i) on as it has rows.
template <class F>
Tensor consecutive(const Offsets& offsets, F&& first_of, Device device) {
  return detail::numbers_on(device, offsets.total(), [&](std::int64_t* to) {
    for (std::int64_t i = 0; i < offsets.count(); ++i)
      for (std::int64_t row = 0; row < offsets.length(i); ++row) *to++ = first_of(i) + row;
  });
}

Ragged within_sequences(const char* op, Convolution convolve, const Ragged& x, const Tensor& weight, const Tensor& bias,
                        const ConvOptions& options, SourceLocation where) {
  check::floating(op, "x", x.values(), where);
  check::rank(op, "x's values", x.values(), 2, "[total, in]", where);
  check::rank(op, "weight", weight, 3, "[out, in / groups, k]", where);
  detail::check_groups(op, x.values(), weight, x.values().shape()[1], options.groups, where);
  if (options.into.defined()) throw Error(std::string(op) + ": within sequences memory of its own is required", where);
  Conv conv;
  detail::set_windows(conv, op, 1, detail::kernel_of(weight), options.stride, options.padding, options.dilation, where);
  ConvOptions without_padding = options;
  without_padding.padding = 0;
  without_padding.mode = PaddingMode::zero;
  if (const std::int64_t wide = conv.padding[2]; options.mode != PaddingMode::zero && wide > 0)
    return within_sequences(op, convolve, pad(x, {{0, wide, wide}}, options.mode), weight, bias, without_padding,
                            where);

  const auto places = [&](std::int64_t length) { return length + 2 * conv.padding[2] - detail::reach(conv, 2) + 1; };
  // A stride beyond the longest sequence is one to its end.
  const std::int64_t stride = std::clamp<std::int64_t>(places(x.offsets().max_length()), 1, conv.stride[2]);
  without_padding.stride = stride;
  detail::HostList<std::int64_t> lengths(x.count()), begins(x.count());
  for (std::int64_t i = 0; i < x.count(); ++i)
    lengths.push_back(places(x.length(i)) > 0 ? (places(x.length(i)) - 1) / stride + 1 : 0);
  const Offsets results(lengths, where);
  if (results.total() == 0) {  // no window fits: one over less, of which no result is read, will do
    conv.padding[2] = 0;
    conv.dilation[2] = 1;
    without_padding.dilation = 1;
  }
  const std::int64_t padding = conv.padding[2], reach = detail::reach(conv, 2);

  // Where the windows of each sequence begin: at a multiple of the stride, so that one walk meets all of them. Neighbours share
  // the zeros between them. With wide padding they also share results there, over nothing but zeros.
  std::int64_t begin = 0, end = reach;  // for one result at least
  for (std::int64_t i = 0; i < x.count(); ++i) {
    begins.push_back(begin);
    end = std::max(end, begin + x.length(i) + 2 * padding);
    begin = (begin + x.length(i) + padding + stride - 1) / stride * stride;
  }
  const auto first = [from = std::span<const std::int64_t>(begins)](std::int64_t i) {
    return from[static_cast<std::size_t>(i)];
  };
  const Tensor row_places = consecutive(
      x.offsets(), [&](std::int64_t i) { return first(i) + padding; }, x.device());
  const Tensor result_places = consecutive(
      results, [&](std::int64_t i) { return first(i) / stride; }, x.device());
  const Tensor line = detail::add_rows(x.values(), row_places, {end, x.values().shape()[1]});
  const Tensor y = convolve(unsqueeze(transpose(line), 0), weight, bias, without_padding, where);
  return Ragged(embedding(transpose(squeeze(y, 0)), result_places, where), results, where);
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
