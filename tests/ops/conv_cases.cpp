#include <algorithm>

#include "reel/ops/create.h"
#include "reel/tests/ops/conv_reference.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

// x [n, in, side, side + 1, ...]
Shape images(Size size, std::int64_t in, int axes) {
  const std::int64_t n = size == Size::empty ? 0 : size == Size::one ? 1 : size == Size::large ? 5 : 2;
  const std::int64_t large[] = {1500, 40, 12}, odd[] = {65, 17, 7};
  const std::int64_t side = size == Size::large ? large[axes - 1] : size == Size::odd ? odd[axes - 1] : 5;
  Shape shape{n, in};
  for (int i = 0; i < axes; ++i) shape.push_back(side + (size == Size::one ? 0 : i));
  return shape;
}

Shape with_kernel(std::int64_t out, std::int64_t in, const std::vector<std::int64_t>& kernel) {
  Shape shape{out, in};
  for (const std::int64_t k : kernel) shape.push_back(k);
  return shape;
}

using Op = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&, SourceLocation);
constexpr Op kPlain[] = {conv1d, conv2d, conv3d}, kRelu[] = {conv1d_relu, conv2d_relu, conv3d_relu};

struct Form {
  std::string variant;
  ConvOptions options;
  std::int64_t in, out;
  std::vector<std::int64_t> kernel;
};

std::string name_of(int axes, bool relu) { return "conv" + std::to_string(axes) + "d" + (relu ? "_relu" : ""); }

OpCase conv_row(const Form& form, bool relu) {
  const int axes = static_cast<int>(form.kernel.size());
  const Op op = (relu ? kRelu : kPlain)[axes - 1];
  return {
      .name = name_of(axes, relu) + form.variant,
      .inputs =
          [form, axes](Maker& make, Size size) {
            Tensors in;
            in.push_back(make.uniform(images(size, form.in, axes), -1, 1));
            in.push_back(make.uniform(with_kernel(form.out, form.in / form.options.groups, form.kernel), -0.2, 0.2));
            in.push_back(make.uniform({form.out}, 0.6, 0.9));
            return in;
          },
      .call = [form,
               op](const Tensors& in) { return op(in[0], in[1], in[2], form.options, SourceLocation::current()); },
      .reference = [form,
                    relu](const std::vector<Ref>& in) { return convolved(in[0], in[1], in[2], form.options, relu); },
      .differentiable = {0, 1, 2},
      .tolerance = 100,
      .whole = {1, 2}};
}

// Behind its own input in one buffer.
OpCase into_row() {
  OpCase row = conv_row({"/into", {.padding = 1}, 2, 3, {3, 3}}, true);
  row.call = [](const Tensors& in) {
    const Shape& s = in[0].shape();
    WriteOnce buffer({s[0], 5, s[2], s[3]}, {.dtype = in[0].dtype(), .device = in[0].device()});
    buffer.append(in[0]);
    conv2d_relu(buffer.view(0, 2), in[1], in[2], {.padding = 1, .into = buffer.part(2, 5)});
    return buffer.view(0, 5);
  };
  row.reference = [](const std::vector<Ref>& in) {
    const Ref y = convolved(in[0], in[1], in[2], {.padding = 1}, true);
    const Shape& s = in[0].shape;
    return filled({s[0], 5, s[2], s[3]}, [&](auto i) {
      if (i[1] < 2) return at(in[0], i);
      i[1] -= 2;
      return at(y, i);
    });
  };
  return row;
}

std::vector<BadCall> bad_calls(int axes, bool relu) {
  const Op op = (relu ? kRelu : kPlain)[axes - 1];
  const std::string name = name_of(axes, relu) + ":";
  const auto sized = [axes](std::int64_t first, std::int64_t second, std::int64_t size) {
    return ones(with_kernel(first, second, std::vector<std::int64_t>(static_cast<std::size_t>(axes), size)));
  };
  const auto call = [=](std::int64_t in, std::int64_t side, const Tensor& weight, ConvOptions options,
                        Tensor bias = Tensor()) {
    const SourceLocation here = SourceLocation::current();
    return [=] { op(sized(1, in, side), weight, bias, options, here); };
  };
  const char* form = axes == 1 ? "[n, in, l]" : axes == 2 ? "[n, in, h, w]" : "[n, in, d, h, w]";
  const char* weight_form = axes == 1   ? "[out, in / groups, k]"
                            : axes == 2 ? "[out, in / groups, kh, kw]"
                                        : "[out, in / groups, kd, kh, kw]";
  const PaddingMode symmetric = PaddingMode::symmetric, reflect = PaddingMode::reflect;
  const SourceLocation here = SourceLocation::current();
  std::vector<BadCall> bad = {
      {[=] {
         op(ones({3, 5}), sized(1, 1, 3), {}, {}, here);
       },
       {name, "x must have shape", form, "cases.cpp"}},
      {call(1, 5, ones({3, 5}), {}), {name, "weight must have shape", weight_form}},
      {call(2, 5, sized(1, 1, 3), {}), {name, "weight must have 2 input channels"}},
      {call(1, 2, sized(1, 1, 3), {}), {name, "the kernel must fit", "3 pixels over 2"}},
      {call(1, 5, sized(1, 1, 3), {.stride = 0}), {name, "stride must be at least 1, got 0"}},
      {call(1, 5, sized(1, 1, 3), {.dilation = 0}), {name, "dilation must be at least 1, got 0"}},
      {call(1, 5, sized(1, 1, 3), {.dilation = std::int64_t{1} << 62}), {name, "dilation must be at most 2147483648"}},
      {call(1, 5, sized(1, 1, 3), {.padding = -1}), {name, "padding must be at least 0, got -1"}},
      {call(3, 5, sized(2, 1, 3), {.groups = 2}), {name, "groups must divide", "got 2"}},
      {call(1, 2, sized(1, 1, 3), {.padding = 3, .mode = symmetric}), {name, "symmetric padding must not exceed"}},
      {call(1, 2, sized(1, 1, 3), {.padding = 2, .mode = reflect}), {name, "reflect padding must be smaller"}},
      {call(1, 0, sized(1, 1, 3), {.padding = 2, .mode = PaddingMode::replicate}), {name, "needs an edge"}},
      {call(1, 5, sized(1, 1, 3), {}, ones({2})), {name, "bias must have shape [1], got [2]"}},
      {call(1, 5, sized(1, 1, 3), {.into = WriteOnce({1, 2, 2, 2}).part(0, 1)}), {name, "the part to write into"}}};
  const ConvOptions uneven = axes == 2 ? ConvOptions{.stride = {1, 1, 1}} : ConvOptions{.stride = {1, 1}};
  bad.push_back({call(1, 5, sized(1, 1, 3), uneven), {name, "stride must have one number, or one for each"}});
  return bad;
}

// --- transposed --------------------------------------------------------------------------------------------------------

using TransposeOp = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvTransposeOptions&,
                               SourceLocation);
constexpr TransposeOp kTransposed[] = {conv_transpose1d, conv_transpose2d, conv_transpose3d};

struct TransposeForm {
  std::string variant;
  ConvTransposeOptions options;
  std::int64_t in, out;
  std::vector<std::int64_t> kernel;
};

OpCase transpose_row(const TransposeForm& form) {
  const int axes = static_cast<int>(form.kernel.size());
  const TransposeOp op = kTransposed[axes - 1];
  return {
      .name = "conv_transpose" + std::to_string(axes) + "d" + form.variant,
      .inputs =
          [form, axes](Maker& make, Size size) {
            Tensors in;
            in.push_back(make.uniform(images(size, form.in, axes), -1, 1));
            in.push_back(make.uniform(with_kernel(form.in, form.out / form.options.groups, form.kernel), -0.2, 0.2));
            in.push_back(make.uniform({form.out}, -1, 1));
            return in;
          },
      .call = [form,
               op](const Tensors& in) { return op(in[0], in[1], in[2], form.options, SourceLocation::current()); },
      .reference = [form](const std::vector<Ref>& in) { return transposed(in[0], in[1], in[2], form.options); },
      .differentiable = {0, 1, 2},
      .tolerance = 100,
      .whole = {1, 2}};
}

std::vector<BadCall> bad_transpose_calls(int axes) {
  const TransposeOp op = kTransposed[axes - 1];
  const std::string name = "conv_transpose" + std::to_string(axes) + "d:";
  const auto call = [=](std::int64_t in, const Tensor& weight, ConvTransposeOptions options, Tensor bias = Tensor()) {
    const SourceLocation here = SourceLocation::current();
    return [=] {
      op(ones(with_kernel(1, in, std::vector<std::int64_t>(static_cast<std::size_t>(axes), 3))), weight, bias, options,
         here);
    };
  };
  const Tensor weight = ones(with_kernel(2, 1, std::vector<std::int64_t>(static_cast<std::size_t>(axes), 3)));
  return {{call(2, ones({3, 5}), {}), {name, "weight must have shape [in, out / groups", "cases.cpp"}},
          {call(3, weight, {}), {name, "weight must have 3 input channels"}},
          {call(2, weight, {.groups = 3}), {name, "groups must divide the 2 input channels, got 3"}},
          {call(2, weight, {.stride = 2, .output_padding = 2}), {name, "output_padding", "got 2"}},
          {call(2, weight, {.output_padding = -1}), {name, "output_padding", "got -1"}},
          {call(2, weight, {.output_padding = axes == 2 ? PerAxis{0, 0, 0} : PerAxis{0, 0}}),
           {name, "output_padding must have one number, or one for"}},
          {call(2, weight, {.padding = 3}), {name, "padding must leave something, got -1"}},
          {call(2, weight, {}, ones({2})), {name, "bias must have shape [1], got [2]"}}};
}

// --- within sequences ----------------------------------------------------------------------------------------------------

// Rows of x, one sequence after the other, in the sum over taps that stay within it.
Ref within_sequences(const Ref& x, const Ref& weight, const Ref& bias, std::int64_t padding, std::int64_t dilation,
                     std::int64_t groups, bool relu) {
  const std::int64_t out = weight.shape[0], in = weight.shape[1], taps = weight.shape[2];
  Ref y{{0, out}, {}};
  for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
    for (std::int64_t r = 0; r < length + 2 * padding - dilation * (taps - 1); ++r, ++y.shape[0])
      for (std::int64_t o = 0; o < out; ++o) {
        double total = bias.v[static_cast<std::size_t>(o)];
        for (std::int64_t k = 0; k < taps; ++k) {
          const std::int64_t from = r + k * dilation - padding;
          if (from < 0 || from >= length) continue;
          for (std::int64_t i = 0; i < in; ++i)
            total += at(x, {begin + from, o / (out / groups) * in + i}) * at(weight, {o, i, k});
        }
        y.v.push_back(relu ? std::max(total, 0.0) : total);
      }
  });
  return y;
}

OpCase ragged_row(const std::string& variant, const ConvOptions& options, bool relu) {
  return {.name = name_of(1, relu) + "/ragged" + variant,
          .inputs =
              [options](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const std::int64_t in = options.groups == 1 ? n.cols : 6;
                Tensors tensors;
                tensors.push_back(make.uniform({n.rows, in}, -1, 1));
                tensors.push_back(make.uniform({4, in / options.groups, 3}, -0.2, 0.2));
                tensors.push_back(make.uniform({4}, 0.6, 0.9));
                return tensors;
              },
          .call =
              [options, relu](const Tensors& in) {
                const Ragged x = in_sequences(in[0]);
                return (relu ? conv1d_relu(x, in[1], in[2], options) : conv1d(x, in[1], in[2], options)).values();
              },
          .reference =
              [options, relu](const std::vector<Ref>& in) {
                return within_sequences(in[0], in[1], in[2], options.padding[0], options.dilation[0], options.groups,
                                        relu);
              },
          .differentiable = {0, 1, 2},
          .tolerance = 100,
          .mixes_rows = variant.empty() ? "over neighbours" : "",
          .bad = {{[] {
                     conv1d(Ragged::from_lengths(ones({3, 2}), {3}), ones({1, 2, 3}), {}, {.stride = 0});
                   },
                   {"conv1d", "stride must be at least 1, got 0", "cases.cpp"}},
                  {[] {
                     conv1d(Ragged::from_lengths(ones({3}), {3}), ones({1, 2, 3}));
                   },
                   {"conv1d", "x's values must have shape [total, in]"}},
                  {[] {
                     conv1d_relu(Ragged::from_lengths(ones({3, 1}), {3}), ones({1, 2, 3}));
                   },
                   {"conv1d_relu", "weight must have 1 input channels"}}}};
}

}  // namespace

std::vector<OpCase> conv_cases() {
  const PaddingMode symmetric = PaddingMode::symmetric, reflect = PaddingMode::reflect,
                    replicate = PaddingMode::replicate;
  std::vector<OpCase> rows;
  const std::vector<Form> forms = {
      {"", {.padding = 1}, 1, 2, {3, 3}},
      {"/valid", {}, 2, 3, {3, 3}},
      {"/dilated", {.padding = 2, .dilation = 2}, 2, 2, {3, 3}},
      {"/symmetric", {.padding = 2, .dilation = 2, .mode = symmetric}, 2, 2, {3, 3}},
      {"/reflect", {.padding = {2, 3}, .dilation = {2, 3}, .mode = reflect}, 2, 2, {3, 3}},
      {"/replicate", {.padding = {6, 1}, .dilation = {2, 1}, .mode = replicate}, 2, 2, {3, 3}},
      {"/strided", {.stride = {2, 3}, .padding = {1, 0}}, 2, 3, {2, 3}},
      {"/pointwise", {}, 3, 4, {1, 1}},
      {"/groups", {.padding = 1, .groups = 2}, 4, 6, {3, 3}},
      {"/wide", {.padding = {0, 2}}, 2, 2, {1, 5}},
      {"/channels", {.padding = 1}, 16, 17, {3, 3}},
      {"", {.padding = 1}, 2, 3, {3}},
      {"/mixed", {.stride = 2, .padding = 3, .dilation = 2, .groups = 2, .mode = reflect}, 2, 4, {3}},
      {"", {.padding = 1}, 2, 2, {3, 3, 3}},
      {"/mixed",
       {.stride = {2, 1, 3}, .padding = {1, 2, 0}, .dilation = {1, 2, 1}, .groups = 2, .mode = replicate},
       4,
       2,
       {2, 3, 1}}};
  for (const bool relu : {true, false})
    for (const Form& form : forms) {
      rows.push_back(conv_row(form, relu));
      if (form.variant.empty()) rows.back().bad = bad_calls(static_cast<int>(form.kernel.size()), relu);
    }
  rows.push_back(into_row());

  const std::vector<TransposeForm> transposes = {
      {"", {}, 2, 3, {3}},
      {"/mixed", {.stride = 2, .padding = 3, .output_padding = 1, .dilation = 2, .groups = 2}, 4, 2, {3}},
      {"", {.stride = 2, .padding = 1, .output_padding = {1, 0}}, 2, 3, {3, 3}},
      {"/upsample", {.stride = 2}, 3, 2, {2, 2}},
      {"/dilated", {.padding = {1, 2}, .output_padding = {0, 2}, .dilation = {1, 3}, .groups = 2}, 2, 4, {2, 3}},
      {"", {.stride = {1, 2, 3}, .padding = {0, 1, 1}, .output_padding = {0, 1, 2}}, 2, 2, {2, 3, 3}}};
  for (const TransposeForm& form : transposes) {
    rows.push_back(transpose_row(form));
    if (form.variant.empty()) rows.back().bad = bad_transpose_calls(static_cast<int>(form.kernel.size()));
  }

  rows.push_back(ragged_row("", {.padding = 1}, false));
  rows.push_back(ragged_row("_valid", {}, true));
  rows.push_back(ragged_row("_padded", {.padding = 3, .dilation = 2, .groups = 2}, false));
  rows.push_back(ragged_row("_far", {.padding = 6, .dilation = 6}, true));
  return rows;
}

}  // namespace reel::test
