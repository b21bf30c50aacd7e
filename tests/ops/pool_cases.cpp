#include "reel/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

// Results along one axis, by counting windows.
template <class Options>
std::int64_t outputs(std::int64_t n, int axis, const Options& options, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t reach = dilation * (options.kernel[axis] - 1), padding = options.padding[axis];
  std::int64_t count = 0;
  for (std::int64_t start = -padding;; start += stride, ++count) {
    const bool fits = start + reach < n + padding;
    // With `ceil` one more, if the one before does not reach the end, but not behind the input.
    const bool extra = options.ceil && start - stride + reach < n + padding - 1 && start < n;
    if (!fits && !extra) return count;
  }
}

// Calls f(value) for each element of x that the window of y's element `at` sees; returns how many the padded input has there.
template <class Options, class F>
std::int64_t for_each_seen(const Ref& x, const std::vector<std::int64_t>& at_y, const Options& options,
                           const PerAxis& dilation, F&& f) {
  const int axes = x.shape.rank() - 2;
  std::vector<std::int64_t> k(static_cast<std::size_t>(axes), 0), from = at_y;
  std::int64_t padded_count = 0;
  for (bool more = true; more;) {
    bool inside = true, in_padded = true;
    for (int i = 0; i < axes; ++i) {
      const auto a = static_cast<std::size_t>(i);
      const std::int64_t stride = options.stride.count() == 0 ? options.kernel[i] : options.stride[i];
      from[a + 2] = at_y[a + 2] * stride + k[a] * dilation[i] - options.padding[i];
      inside = inside && from[a + 2] >= 0 && from[a + 2] < x.shape[2 + i];
      in_padded = in_padded && from[a + 2] < x.shape[2 + i] + options.padding[i];
    }
    if (inside) f(at(x, from));
    padded_count += in_padded;
    more = false;
    for (int i = axes - 1; i >= 0 && !more; --i) {
      more = ++k[static_cast<std::size_t>(i)] < options.kernel[i];
      if (!more) k[static_cast<std::size_t>(i)] = 0;
    }
  }
  return padded_count;
}

template <class Options>
Shape pooled_shape(const Shape& x, const Options& options, const PerAxis& dilation) {
  Shape y{x[0], x[1]};
  for (int i = 0; i < x.rank() - 2; ++i) {
    const std::int64_t stride = options.stride.count() == 0 ? options.kernel[i] : options.stride[i];
    y.push_back(outputs(x[2 + i], i, options, stride, dilation[i]));
  }
  return y;
}

Shape images(Size size, int axes) {
  const std::int64_t n = size == Size::empty ? 0 : size == Size::one ? 1 : size == Size::large ? 40 : 2;
  const std::int64_t large[] = {2000, 50, 15}, odd[] = {65, 17, 7};
  const std::int64_t side = size == Size::large ? large[axes - 1] : size == Size::odd ? odd[axes - 1] : 4;
  Shape shape{n, 3};
  for (int i = 0; i < axes; ++i) shape.push_back(side + i % 2);
  return shape;
}

using MaxOp = Tensor (*)(const Tensor&, const MaxPoolOptions&, SourceLocation);
using AvgOp = Tensor (*)(const Tensor&, const AvgPoolOptions&, SourceLocation);
constexpr MaxOp kMax[] = {max_pool1d, max_pool2d, max_pool3d};
constexpr AvgOp kAvg[] = {avg_pool1d, avg_pool2d, avg_pool3d};

OpCase max_row(int axes, const std::string& variant, const MaxPoolOptions& options) {
  const MaxOp op = kMax[axes - 1];
  return {.name = "max_pool" + std::to_string(axes) + "d" + variant,
          .inputs = [axes](Maker& make, Size size) { return Tensors{make.distinct(images(size, axes))}; },
          .call = [op, options](const Tensors& in) { return op(in[0], options, SourceLocation::current()); },
          .reference =
              [options](const std::vector<Ref>& in) {
                return filled(pooled_shape(in[0].shape, options, options.dilation), [&](const auto& i) {
                  double most = -INFINITY;
                  for_each_seen(in[0], i, options, options.dilation, [&](double v) { most = std::max(most, v); });
                  return most;
                });
              },
          .tolerance = 0};
}

using WhichOp = MaxPooled (*)(const Tensor&, const MaxPoolOptions&, SourceLocation);
constexpr WhichOp kWhich[] = {max_pool1d_which, max_pool2d_which, max_pool3d_which};

// The largest elements again, or where in their image they were.
OpCase which_row(int axes, bool places) {
  const MaxPoolOptions options{.kernel = 3, .stride = 2, .padding = 1};
  OpCase row = max_row(axes, "_which", options);
  row.call = [op = kWhich[axes - 1], options, places](const Tensors& in) {
    const MaxPooled y = op(in[0], options, SourceLocation::current());
    return places ? y.which : y.values;
  };
  if (!places) return row;
  row.name += "/places";
  row.order = 0;
  row.differentiable = {};
  row.reference = [options](const std::vector<Ref>& in) {
    const Shape& s = in[0].shape;
    Ref place = in[0];  // each element's own, instead of its value
    for (std::size_t i = 0; i < place.v.size(); ++i)
      place.v[i] = static_cast<double>(static_cast<std::int64_t>(i) % (s.size() / (s[0] * s[1])));
    return filled(pooled_shape(s, options, options.dilation), [&](const auto& i) {
      std::vector<double> values, places;
      for_each_seen(in[0], i, options, options.dilation, [&](double v) { values.push_back(v); });
      for_each_seen(place, i, options, options.dilation, [&](double v) { places.push_back(v); });
      return places[static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin())];
    });
  };
  return row;
}

OpCase avg_row(int axes, const std::string& variant, const AvgPoolOptions& options) {
  const AvgOp op = kAvg[axes - 1];
  return {.name = "avg_pool" + std::to_string(axes) + "d" + variant,
          .inputs = [axes](Maker& make, Size size) { return Tensors{make.uniform(images(size, axes))}; },
          .call = [op, options](const Tensors& in) { return op(in[0], options, SourceLocation::current()); },
          .reference =
              [options](const std::vector<Ref>& in) {
                return filled(pooled_shape(in[0].shape, options, 1), [&](const auto& i) {
                  double total = 0;
                  std::int64_t seen = 0;
                  const std::int64_t padded = for_each_seen(in[0], i, options, 1, [&](double v) {
                    total += v;
                    ++seen;
                  });
                  return total / static_cast<double>(options.count_padding ? padded : seen);
                });
              },
          .tolerance = 10};
}

// One window over all of the image.
OpCase global_row(int axes) {
  const AvgOp op = kAvg[axes - 1];
  return {.name = "avg_pool" + std::to_string(axes) + "d/global",
          .inputs = [axes](Maker& make, Size size) { return Tensors{make.uniform(images(size, axes))}; },
          .call =
              [op, axes](const Tensors& in) {
                const Shape& s = in[0].shape();
                const PerAxis kernel[] = {s[2], PerAxis(s[2], s[3 % s.rank()]),
                                          PerAxis(s[2], s[3 % s.rank()], s[4 % s.rank()])};
                return op(in[0], {.kernel = kernel[axes - 1]}, SourceLocation::current());
              },
          .reference =
              [](const std::vector<Ref>& in) {
                const Shape& s = in[0].shape;
                Shape one = s;
                for (int axis = 2; axis < s.rank(); ++axis) one[axis] = 1;
                const std::int64_t plane = s[0] == 0 ? 1 : s.size() / (s[0] * s[1]);
                return filled(one, [&](const auto& i) {
                  const auto from = in[0].v.begin() + (i[0] * s[1] + i[1]) * plane;
                  return std::accumulate(from, from + plane, 0.0) / static_cast<double>(plane);
                });
              },
          .tolerance = 10};
}

template <class Options, class Op>
std::vector<BadCall> bad_calls(const std::string& name, int axes, Op op) {
  const auto call = [=](std::int64_t side, const Options& options) {
    const SourceLocation here = SourceLocation::current();
    Shape shape{1, 1};
    for (int i = 0; i < axes; ++i) shape.push_back(side);
    return [=] { op(ones(shape), options, here); };
  };
  const auto with = [](const PerAxis& kernel, const PerAxis& stride, const PerAxis& padding) {
    Options options;
    options.kernel = kernel;
    options.stride = stride;
    options.padding = padding;
    return options;
  };
  const SourceLocation here = SourceLocation::current();
  return {{[=] {
             op(ones({2, 3}), Options(), here);
           },
           {name, "x must have shape [n, in, ", "got [2, 3]", "cases.cpp"}},
          {[=] {
             op(ones({2, 3, 4}, {.dtype = i64}), Options(), here);
           },
           {name, "x must be f32 or f64, got i64"}},
          {call(2, with(3, {}, 0)), {name, "the kernel must fit", "3 pixels over 2"}},
          {call(5, with(3, {}, 2)), {name, "padding must be at most half of the kernel, got 2 for 3"}},
          {call(5, with(0, {}, 0)), {name, "kernel must be at least 1, got 0"}},
          {call(5, with(2, 0, 0)), {name, "stride must be at least 1, got 0"}},
          {call(0, with(2, {}, 1)), {name, "each window must see an element"}}};
}

}  // namespace

std::vector<OpCase> pool_cases() {
  std::vector<OpCase> rows;
  for (int axes = 1; axes <= 3; ++axes) {
    const auto name = [axes](const char* kind) { return kind + std::to_string(axes) + "d:"; };
    rows.push_back(max_row(axes, "", {}));
    rows.back().bad = bad_calls<MaxPoolOptions>(name("max_pool"), axes, kMax[axes - 1]);
    rows.push_back(max_row(axes, "/overlapping", {.kernel = 3, .stride = 1, .padding = 1}));
    rows.push_back(max_row(axes, "/ceil", {.kernel = 3, .stride = 2, .padding = 1, .ceil = true}));
    rows.push_back(which_row(axes, false));
    rows.back().bad = bad_calls<MaxPoolOptions>("max_pool" + std::to_string(axes) + "d_which:", axes, kWhich[axes - 1]);
    rows.push_back(which_row(axes, true));
    rows.push_back(avg_row(axes, "", {}));
    rows.back().bad = bad_calls<AvgPoolOptions>(name("avg_pool"), axes, kAvg[axes - 1]);
    rows.push_back(global_row(axes));
    rows.push_back(avg_row(axes, "/overlapping", {.kernel = 3, .stride = 1, .padding = 1}));
    rows.push_back(avg_row(axes, "/ceil", {.kernel = 3, .stride = 2, .padding = 1, .ceil = true}));
    rows.push_back(
        avg_row(axes, "/uncounted", {.kernel = 4, .stride = 3, .padding = 2, .ceil = true, .count_padding = false}));
  }
  rows.push_back(max_row(2, "/mixed", {.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 2}, .dilation = {3, 2}}));
  rows.push_back(avg_row(3, "/mixed", {.kernel = {2, 3, 1}, .stride = {1, 2, 3}, .padding = {1, 0, 0}}));
  return rows;
}

}  // namespace reel::test
