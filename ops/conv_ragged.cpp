// Convolution within sequences. All sequences are laid on one line with zeros between them, which one dense convolution
// walks; its results that look into two sequences are left out.

#include <algorithm>
#include <string>

#include "reel/core/scratch.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/correlation.h"
#include "reel/ops/embedding.h"
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

// For each sequence i as many consecutive numbers from first_of(i) on as it has rows.
template <class F>
Tensor consecutive(const Offsets& offsets, F&& first_of, Device device) {
  const Tensor numbers = empty({offsets.total()}, {.dtype = i64});
  auto* to = numbers.array().as<std::int64_t>();
  for (std::int64_t i = 0; i < offsets.count(); ++i)
    for (std::int64_t row = 0; row < offsets.length(i); ++row) *to++ = first_of(i) + row;
  return detail::transferred(numbers, device);
}

Ragged within_sequences(const char* op, Convolution convolve, const Ragged& x, const Tensor& weight, const Tensor& bias,
                        const ConvOptions& options, SourceLocation where) {
  check_options(op, x, options, where);
  check::rank(op, "weight", weight, 3, "[out, in / groups, k]", where);
  Conv conv;
  detail::set_windows(conv, op, 1, detail::kernel_of(weight), options.stride, options.padding, options.dilation, where);
  const Offsets& rows = x.offsets();
  const Scratch lengths(static_cast<std::size_t>(x.count()) * sizeof(std::int64_t));
  for (std::int64_t i = 0; i < x.count(); ++i)
    lengths.as<std::int64_t>()[i] =
        std::max<std::int64_t>(0, x.length(i) + 2 * conv.padding[2] - detail::reach(conv, 2) + 1);
  const Offsets results({lengths.as<std::int64_t>(), static_cast<std::size_t>(x.count())}, where);
  ConvOptions without_padding = options;
  without_padding.padding = 0;
  if (results.total() == 0) {  // no window fits: one over less, of which no result is read, will do
    conv.padding[2] = 0;
    conv.dilation[2] = 1;
    without_padding.dilation = 1;
  }
  const std::int64_t padding = conv.padding[2], lost = detail::reach(conv, 2) - 1;
  // Neighbours share the zeros between them. With wide padding they also share results there, over nothing but zeros.
  const auto first_result = [&](std::int64_t i) { return rows.span()[static_cast<std::size_t>(i)] + i * padding; };
  const Tensor row_places = consecutive(
      rows, [&](std::int64_t i) { return first_result(i) + padding; }, x.device());
  const Tensor result_places = consecutive(results, first_result, x.device());
  const std::int64_t end = std::max(x.total() + (x.count() + 1) * padding, lost + 1);  // for one result at least

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
