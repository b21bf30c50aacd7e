#include "reel/ops/normalize.h"

#include <cmath>

#include "reel/ops/create.h"
#include "reel/ops/dropout.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

// x with the mean (if `center`) and the root mean square of each group taken out; group(index) says which, below `groups`.
template <class Group>
Ref standardized(const Ref& x, std::int64_t groups, bool center, double eps, Group&& group) {
  const auto of = [&](std::size_t i) { return group(index_of(static_cast<std::int64_t>(i), x.shape)); };
  std::vector<double> count(static_cast<std::size_t>(groups)), mean(count), variance(count);
  for (std::size_t i = 0; i < x.v.size(); ++i) count[of(i)] += 1;
  for (std::size_t i = 0; i < x.v.size() && center; ++i) mean[of(i)] += x.v[i] / count[of(i)];
  Ref y = x;
  for (std::size_t i = 0; i < x.v.size(); ++i) {
    y.v[i] -= mean[of(i)];
    variance[of(i)] += y.v[i] * y.v[i] / count[of(i)];
  }
  for (std::size_t i = 0; i < x.v.size(); ++i) y.v[i] /= std::sqrt(variance[of(i)] + eps);
  return y;
}

Ref rows_standardized(const Ref& x, bool center, double eps) {
  return standardized(x, x.shape[0], center, eps, [](const Index& i) { return static_cast<std::size_t>(i[0]); });
}

// weight and bias (either may be null) for each index along `axis`.
Ref affine(Ref y, int axis, const Ref* weight, const Ref* bias) {
  for (std::size_t i = 0; i < y.v.size(); ++i) {
    const auto c =
        static_cast<std::size_t>(index_of(static_cast<std::int64_t>(i), y.shape)[static_cast<std::size_t>(axis)]);
    y.v[i] = y.v[i] * (weight != nullptr ? weight->v[c] : 1) + (bias != nullptr ? bias->v[c] : 0);
  }
  return y;
}

// x [rows, cols] with `numbers` vectors of cols numbers.
Tensors rows_and(Maker& make, Size size, int numbers) {
  const Extent n = extent_of(size);
  Tensors in{make.uniform({n.rows, n.cols}, -3, 5)};
  for (int i = 0; i < numbers; ++i) in.push_back(make.uniform({n.cols}));
  return in;
}

// x [rows, 4, cols] with `numbers` vectors of 4 numbers.
Tensors channels_and(Maker& make, Size size, int numbers) {
  const Extent n = extent_of(size);
  Tensors in{make.uniform({size == Size::large ? 257 : n.rows, 4, n.cols}, -3, 5)};
  for (int i = 0; i < numbers; ++i) in.push_back(make.uniform({4}, 0.5, 2));
  return in;
}

OpCase layer(const std::string& variant, const std::function<Tensor(const Tensors&)>& call, bool weight, bool bias) {
  std::vector<int> differentiable{0};
  for (int i = 1; i <= weight + bias; ++i) differentiable.push_back(i);
  return {.name = "layer_norm" + variant,
          .inputs = [=](Maker& make, Size size) { return rows_and(make, size, weight + bias); },
          .call = call,
          .reference =
              [=](const std::vector<Ref>& in) {
                return affine(rows_standardized(in[0], true, 1e-5), 1, weight ? &in[1] : nullptr,
                              bias ? &in.back() : nullptr);
              },
          .differentiable = differentiable,
          .tolerance = 20,
          .bad = {{[] {
                     layer_norm(ones({2, 3}), {4});
                   },
                   {"layer_norm", "the last of x", "[4]", "[2, 3]", "cases.cpp"}},
                  {[] {
                     layer_norm(in_sequences(ones({2, 3})), {2, 3});
                   },
                   {"layer_norm", "of a row of x", "[2, 3]", "cases.cpp"}},
                  {[] {
                     layer_norm(ones({2, 3}), {3}, ones({2}));
                   },
                   {"layer_norm", "weight", "[3]", "[2]", "cases.cpp"}},
                  {[] {
                     layer_norm(ones({2, 3}), {3}, {}, ones({3}, {.dtype = f64}));
                   },
                   {"layer_norm", "bias", "f32", "f64", "cases.cpp"}},
                  {[] {
                     layer_norm(ones({2, 3}), {3}, {}, {}, -1);
                   },
                   {"layer_norm", "eps", "-1", "cases.cpp"}},
                  {[] {
                     layer_norm(ones({2, 3}, {.dtype = i64}), {3});
                   },
                   {"layer_norm", "x", "f32 or f64", "i64", "cases.cpp"}}}};
}

OpCase rms(const std::string& variant, const std::function<Tensor(const Tensors&)>& call) {
  return {
      .name = "rms_norm" + variant,
      .inputs = [](Maker& make, Size size) { return rows_and(make, size, 1); },
      .call = call,
      .reference =
          [](const std::vector<Ref>& in) { return affine(rows_standardized(in[0], false, 1e-5), 1, &in[1], nullptr); },
      .differentiable = {0, 1},
      .tolerance = 20,
      .bad = {{[] {
                 rms_norm(ones({2, 3}), {2});
               },
               {"rms_norm", "the last of x", "[2]", "[2, 3]", "cases.cpp"}},
              {[] { rms_norm(Tensor(), {2}); }, {"rms_norm", "x must be defined", "cases.cpp"}}}};
}

// x [rows, 4, 2, cols + 4]: a channel's elements of an image are side by side.
Tensors images_and(Maker& make, Size size, int numbers) {
  const Extent n = extent_of(size);
  Tensors in{make.uniform({size == Size::large ? 33 : n.rows, 4, 2, n.cols + 4}, -3, 5)};
  for (int i = 0; i < numbers; ++i) in.push_back(make.uniform({4}, 0.5, 2));
  return in;
}

OpCase of_images(OpCase op, int numbers) {
  op.name += "/images";
  op.inputs = [=](Maker& make, Size size) { return images_and(make, size, numbers); };
  op.bad = {};
  return op;
}

OpCase group(const std::string& variant, const std::function<Tensor(const Tensors&)>& call) {
  return {.name = "group_norm" + variant,
          .inputs = [](Maker& make, Size size) { return channels_and(make, size, 2); },
          .call = call,
          .reference =
              [](const std::vector<Ref>& in) {
                const auto group = [](const Index& i) { return static_cast<std::size_t>(2 * i[0] + i[1] / 2); };
                return affine(standardized(in[0], 2 * in[0].shape[0], true, 1e-5, group), 1, &in[1], &in[2]);
              },
          .differentiable = {0, 1, 2},
          .tolerance = 40,
          .bad = {{[] {
                     group_norm(ones({2, 4}), 3);
                   },
                   {"group_norm", "divide the channels", "3", "[2, 4]", "cases.cpp"}},
                  {[] { group_norm(ones({4}), 1); }, {"group_norm", "[n, channels, ...]", "[4]", "cases.cpp"}}}};
}

OpCase batch(const std::string& variant, const std::function<Tensor(const Tensors&)>& call) {
  return {.name = "batch_norm" + variant,
          .inputs = [](Maker& make, Size size) { return channels_and(make, size, 2); },
          .call = call,
          .reference =
              [](const std::vector<Ref>& in) {
                const auto channel = [](const Index& i) { return static_cast<std::size_t>(i[1]); };
                return affine(standardized(in[0], 4, true, 1e-5, channel), 1, &in[1], &in[2]);
              },
          .differentiable = {0, 1, 2},
          .tolerance = 40,
          .mixes_rows = "the statistics are those of the batch",
          .skip = {Size::one},
          .bad = {{[] {
                     batch_norm(ones({1, 4, 1}), {}, {}, {}, {}, {.training = true});
                   },
                   {"batch_norm", "more than one value", "[1, 4, 1]", "cases.cpp"}},
                  {[] {
                     batch_norm(ones({2, 4}), ones({4}), {});
                   },
                   {"batch_norm", "out of training", "cases.cpp"}},
                  {[] {
                     batch_norm(ones({2, 4}), ones({4}), ones({3}));
                   },
                   {"batch_norm", "running_variance", "[4]", "[3]", "cases.cpp"}}}};
}

OpCase batch_running() {
  return {.name = "batch_norm/running",
          .inputs = [](Maker& make, Size size) { return channels_and(make, size, 4); },
          .call = [](const Tensors& in) { return batch_norm(in[0], in[1], in[2], in[3], in[4]); },
          .reference =
              [](const std::vector<Ref>& in) {
                Ref scale = in[2], shift = in[1];
                for (std::size_t c = 0; c < 4; ++c) {
                  scale.v[c] = in[3].v[c] / std::sqrt(in[2].v[c] + 1e-5);
                  shift.v[c] = in[4].v[c] - in[1].v[c] * scale.v[c];
                }
                return affine(in[0], 1, &scale, &shift);
              },
          .differentiable = {0, 1, 2, 3, 4},
          .tolerance = 40};
}

// The second input is what the generator draws: a twin of the op's own numbers.
OpCase dropping(const std::string& variant, const std::function<Tensor(const Tensor&, Generator&)>& call) {
  return {
      .name = "dropout" + variant,
      .inputs =
          [](Maker& make, Size size) {
            const Extent n = extent_of(size);
            Generator generator(3);
            return Tensors{make.uniform({n.rows, n.cols}), rand({n.rows, n.cols}, generator, {.dtype = make.dtype()})};
          },
      .call =
          [=](const Tensors& in) {
            Generator generator(3);
            return call(in[0], generator);
          },
      .reference =
          [](const std::vector<Ref>& in) {
            Ref y = in[0];
            for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] *= in[1].v[i] >= 0.3 ? 1 / 0.7 : 0;
            return y;
          },
      .tolerance = 2,
      .mixes_rows = "the mask depends on the place",
      .bad = {{[] { dropout(ones({2}), 1.5); }, {"dropout", "p must be in [0, 1]", "1.5", "cases.cpp"}},
              {[] { dropout(ones({2}), NAN); }, {"dropout", "p must be in [0, 1]", "nan", "cases.cpp"}},
              {[] { dropout(ones({2}, {.dtype = i32})); }, {"dropout", "x", "f32 or f64", "i32", "cases.cpp"}}}};
}

std::int64_t width(const Tensors& in) { return in[0].shape().back(); }

}  // namespace

std::vector<OpCase> normalize_cases() {
  const BatchNormOptions training{.training = true};
  return {
      layer(
          "", [](const Tensors& in) { return layer_norm(in[0], {width(in)}, in[1], in[2]); }, true, true),
      layer(
          "/plain", [](const Tensors& in) { return layer_norm(in[0], {width(in)}); }, false, false),
      layer(
          "/weight", [](const Tensors& in) { return layer_norm(in[0], {width(in)}, in[1]); }, true, false),
      layer(
          "/bias", [](const Tensors& in) { return layer_norm(in[0], {width(in)}, {}, in[1]); }, false, true),
      layer(
          "/ragged",
          [](const Tensors& in) { return layer_norm(in_sequences(in[0]), {width(in)}, in[1], in[2]).values(); }, true,
          true),
      rms("", [](const Tensors& in) { return rms_norm(in[0], {width(in)}, in[1], 1e-5); }),
      rms("/ragged",
          [](const Tensors& in) { return rms_norm(in_sequences(in[0]), {width(in)}, in[1], 1e-5).values(); }),
      group("", [](const Tensors& in) { return group_norm(in[0], 2, in[1], in[2]); }),
      group("/ragged", [](const Tensors& in) { return group_norm(in_sequences(in[0]), 2, in[1], in[2]).values(); }),
      batch("", [=](const Tensors& in) { return batch_norm(in[0], {}, {}, in[1], in[2], training); }),
      batch(
          "/ragged",
          [=](const Tensors& in) { return batch_norm(in_sequences(in[0]), {}, {}, in[1], in[2], training).values(); }),
      batch_running(),
      of_images(group("", [](const Tensors& in) { return group_norm(in[0], 2, in[1], in[2]); }), 2),
      of_images(batch("", [=](const Tensors& in) { return batch_norm(in[0], {}, {}, in[1], in[2], training); }), 2),
      of_images(batch_running(), 4),
      dropping("", [](const Tensor& x, Generator& g) { return dropout(x, 0.3, {.generator = &g}); }),
      dropping("/ragged",
               [](const Tensor& x, Generator& g) { return dropout(in_sequences(x), 0.3, {.generator = &g}).values(); }),
  };
}

}  // namespace reel::test
