#include "reel/ops/attention.h"

#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/rotary.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

constexpr std::int64_t kHeads = 2;

// softmax(scale q k^T + mask) v for one head from its definition: query(i), key(j), value(j) give the addresses of rows.
struct Head {
  std::int64_t queries, keys, width, value_width;
  bool causal;
  double scale;
  std::function<const double*(std::int64_t)> query, key, value;
  std::function<double(std::int64_t, std::int64_t)> mask;
  std::function<double*(std::int64_t)> result;
};

void attend(const Head& h) {
  for (std::int64_t i = 0; i < h.queries; ++i) {
    std::vector<double> p(static_cast<std::size_t>(h.keys), -INFINITY);
    double largest = -INFINITY, total = 0;
    for (std::int64_t j = 0; j < h.keys; ++j) {
      double& score = p[static_cast<std::size_t>(j)];
      if (h.causal && j > i + h.keys - h.queries) continue;
      score = 0;
      for (std::int64_t e = 0; e < h.width; ++e) score += h.query(i)[e] * h.key(j)[e];
      score = h.scale * score + (h.mask ? h.mask(i, j) : 0);
      largest = std::max(largest, score);
    }
    if (largest == -INFINITY) continue;
    for (double& score : p) total += score = std::exp(score - largest);
    for (std::int64_t j = 0; j < h.keys; ++j)
      for (std::int64_t e = 0; e < h.value_width; ++e)
        h.result(i)[e] += p[static_cast<std::size_t>(j)] / total * h.value(j)[e];
  }
}

struct Variant {
  std::string name;
  bool causal = false;
  double scale = 0;  // 0: the default
  std::vector<int> differentiable = {0, 1, 2};
  std::vector<int> whole = {};
};

AttentionOptions options_of(const Variant& variant, const Tensors& in) {
  AttentionOptions options{.causal = variant.causal};
  if (variant.scale != 0) options.scale = variant.scale;
  if (in.size() > 3) options.mask = is_floating(in[3].dtype()) ? in[3] : in[3] != 0;
  return options;
}

double scale_of(const Variant& variant, std::int64_t width) {
  return variant.scale != 0 ? variant.scale : 1 / std::sqrt(static_cast<double>(width));
}

std::vector<BadCall> bad_calls() {
  const auto call = [](const Shape& q, const Shape& k, const Shape& v, const AttentionOptions& options = {}) {
    return scaled_dot_product_attention(ones(q), ones(k), ones(v), options);
  };
  const std::string name = "scaled_dot_product_attention";
  return {{[=] {
             call({2, 3, 4}, {3, 3, 4}, {2, 3, 4});
           },
           {name, "[..., queries, width]", "[3, 3, 4]", "cases.cpp"}},
          {[=] {
             call({3, 4}, {3, 5}, {3, 4});
           },
           {name, "[..., keys, width]", "[3, 5]"}},
          {[=] {
             call({3, 4}, {3, 4}, {2, 4});
           },
           {name, "[..., keys, value width]", "[2, 4]"}},
          {[=] { call({4}, {4}, {4}); }, {name, "[4]"}},
          {[=] {
             call({3, 4}, {5, 4}, {5, 4}, {.mask = ones({5, 3})});
           },
           {name, "mask", "[3, 5]", "[5, 3]"}},
          {[=] {
             call({3, 4}, {5, 4}, {5, 4}, {.mask = ones({3, 5}, {.dtype = f64})});
           },
           {name, "mask", "f64"}},
          {[=] {
             call({3, 4}, {5, 4}, {5, 4}, {.scale = NAN});
           },
           {name, "scale", "finite", "nan"}},
          {[=] {
             scaled_dot_product_attention(ones({3, 4}), ones({3, 4}, {.dtype = f64}), ones({3, 4}));
           },
           {name, "k", "f32", "f64"}}};
}

// q [2, heads, rows, 4], k [2, heads, cols, 4], v [2, heads, cols, 3], and perhaps a mask.
OpCase dense(const Variant& variant, const std::function<void(Maker&, Extent, Tensors&)>& add_mask = {}) {
  return {
      .name = "scaled_dot_product_attention" + variant.name,
      .inputs =
          [=](Maker& make, Size size) {
            Extent n = extent_of(size);
            if (size == Size::large) n = {257, 300};
            Tensors in{make.uniform({2, kHeads, n.rows, 4}), make.uniform({2, kHeads, n.cols, 4}),
                       make.uniform({2, kHeads, n.cols, 3})};
            if (add_mask) add_mask(make, n, in);
            return in;
          },
      .call =
          [=](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], options_of(variant, in)); },
      .reference =
          [=](const std::vector<Ref>& in) {
            const std::int64_t rows = in[0].shape[2], cols = in[1].shape[2];
            Ref y{{2, kHeads, rows, 3}, std::vector<double>(static_cast<std::size_t>(2 * kHeads * rows * 3))};
            for (std::int64_t b = 0; b < 2 * kHeads; ++b) {
              Head h{rows, cols, 4, 3, variant.causal, scale_of(variant, 4), {}, {}, {}, {}, {}};
              h.query = [&, b](std::int64_t i) { return in[0].v.data() + (b * rows + i) * 4; };
              h.key = [&, b](std::int64_t j) { return in[1].v.data() + (b * cols + j) * 4; };
              h.value = [&, b](std::int64_t j) { return in[2].v.data() + (b * cols + j) * 3; };
              h.result = [&, b](std::int64_t i) { return y.v.data() + (b * rows + i) * 3; };
              if (in.size() > 3)
                h.mask = [&, b](std::int64_t i, std::int64_t j) {
                  const double added = broadcast_at(in[3], {b / kHeads, b % kHeads, i, j});
                  return variant.name == "/bool_mask" ? (added != 0 ? 0 : -INFINITY) : added;
                };
              attend(h);
            }
            return y;
          },
      .differentiable = variant.differentiable,
      .tolerance = 20,
      .whole = variant.whole,
      .bad = variant.name.empty() ? bad_calls() : std::vector<BadCall>()};
}

std::vector<std::int64_t> lengths_for(std::int64_t rows, bool reversed) {
  std::vector<std::int64_t> lengths = Maker(f64, 4).lengths(rows);
  if (rows > 1000) {  // a long sequence too: several blocks
    std::int64_t rest = rows;
    lengths = {0, 300, 5, 0, 1};
    for (const std::int64_t length : lengths) rest -= length;
    lengths.push_back(rest);
  }
  if (reversed) std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

Ragged ragged(const Tensor& values, bool reversed = false) {
  return Ragged::from_lengths(values, lengths_for(values.shape()[0], reversed));
}

// Values [rows, heads, width]; in cross-attention the keys have the queries' lengths in reverse.
OpCase sequences(const Variant& variant, bool cross, bool masked = false) {
  return {.name = "scaled_dot_product_attention" + variant.name,
          .inputs =
              [=](Maker& make, Size size) {
                const std::int64_t rows = extent_of(size).rows;
                Tensors in{make.uniform({rows, kHeads, 4}), make.uniform({rows, kHeads, 4}),
                           make.uniform({rows, kHeads, 3})};
                const auto lengths = lengths_for(rows, false);
                const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
                if (masked) in.push_back(make.uniform({kHeads, longest, longest}));
                return in;
              },
          .call =
              [=](const Tensors& in) {
                return scaled_dot_product_attention(ragged(in[0]), ragged(in[1], cross), ragged(in[2], cross),
                                                    options_of(variant, in))
                    .values();
              },
          .reference =
              [=](const std::vector<Ref>& in) {
                const std::int64_t rows = in[0].shape[0];
                Ref y{{rows, kHeads, 3}, std::vector<double>(static_cast<std::size_t>(rows * kHeads * 3))};
                const auto queries = lengths_for(rows, false), keys = lengths_for(rows, cross);
                std::int64_t q0 = 0, k0 = 0;
                for (std::size_t s = 0; s < queries.size(); ++s) {
                  for (std::int64_t head = 0; head < kHeads; ++head) {
                    Head h{queries[s], keys[s], 4, 3, variant.causal, scale_of(variant, 4), {}, {}, {}, {}, {}};
                    h.query = [&](std::int64_t i) { return in[0].v.data() + ((q0 + i) * kHeads + head) * 4; };
                    h.key = [&](std::int64_t j) { return in[1].v.data() + ((k0 + j) * kHeads + head) * 4; };
                    h.value = [&](std::int64_t j) { return in[2].v.data() + ((k0 + j) * kHeads + head) * 3; };
                    h.result = [&](std::int64_t i) { return y.v.data() + ((q0 + i) * kHeads + head) * 3; };
                    if (masked) h.mask = [&](std::int64_t i, std::int64_t j) { return at(in[3], {head, i, j}); };
                    attend(h);
                  }
                  q0 += queries[s];
                  k0 += keys[s];
                }
                return y;
              },
          .differentiable = variant.differentiable,
          .tolerance = 20,
          .mixes_rows = "over a sequence",
          .bad = {{[] {
                     const Ragged x = ragged(ones({5, 2, 3}));
                     scaled_dot_product_attention(x, x, Ragged::from_lengths(ones({5, 2, 3}), {2, 3}));
                   },
                   {"scaled_dot_product_attention", "same lengths", "cases.cpp"}},
                  {[] {
                     const Ragged x = Ragged::from_lengths(ones({5, 2, 3}), {2, 3});
                     const Ragged k = Ragged::from_lengths(ones({5, 2, 3}), {5});
                     scaled_dot_product_attention(x, k, k);
                   },
                   {"scaled_dot_product_attention", "as many sequences", "2", "1"}},
                  {[] {
                     const Ragged x = Ragged::from_lengths(ones({5, 6}), {2, 3});
                     scaled_dot_product_attention(x, x, x);
                   },
                   {"scaled_dot_product_attention", "[total, heads, width]", "[5, 6]"}}}};
}

// Pairs turned by position(row) / 100^(2 i / width).
Ref turned(const Ref& x, bool interleaved, const std::function<double(const std::vector<std::int64_t>&)>& position) {
  const std::int64_t width = x.shape.back(), half = width / 2;
  return filled(x.shape, [&](const std::vector<std::int64_t>& index) {
    const std::int64_t e = index.back();
    const std::int64_t pair = interleaved ? e / 2 : e % half;
    const bool second = interleaved ? e % 2 == 1 : e >= half;
    std::vector<std::int64_t> first = index, other = index;
    first.back() = interleaved ? 2 * pair : pair;
    other.back() = interleaved ? 2 * pair + 1 : pair + half;
    const double angle = position(index) * std::pow(100, -2 * static_cast<double>(pair) / static_cast<double>(width));
    const double a = at(x, first), b = at(x, other);
    return second ? a * std::sin(angle) + b * std::cos(angle) : a * std::cos(angle) - b * std::sin(angle);
  });
}

OpCase rotation(bool interleaved) {
  const RotaryOptions options{.theta = 100, .offset = 3, .interleaved = interleaved};
  return {.name = interleaved ? "rotary/interleaved" : "rotary",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({2, n.rows, 2 * n.cols})};
              },
          .call = [=](const Tensors& in) { return rotary(in[0], options); },
          .reference =
              [=](const std::vector<Ref>& in) {
                return turned(in[0], interleaved, [](const auto& i) { return static_cast<double>(3 + i[1]); });
              },
          .tolerance = 4,
          .bad = {{[] {
                     rotary(ones({2, 3}));
                   },
                   {"rotary", "[..., length, width]", "even width", "[2, 3]", "cases.cpp"}},
                  {[] { rotary(ones({4})); }, {"rotary", "[..., length, width]", "[4]"}},
                  {[] {
                     rotary(ones({2, 4}), {.theta = 0});
                   },
                   {"rotary", "theta", "above 0", "got 0 "}}}};
}

OpCase ragged_rotation() {
  return {.name = "rotary/ragged",
          .inputs =
              [](Maker& make, Size size) {
                return Tensors{make.uniform({extent_of(size).rows, kHeads, 6})};
              },
          .call = [](const Tensors& in) { return rotary(ragged(in[0]), {.theta = 100, .offset = 2}).values(); },
          .reference =
              [](const std::vector<Ref>& in) {
                std::vector<double> positions;
                for (const std::int64_t length : lengths_for(in[0].shape[0], false))
                  for (std::int64_t i = 0; i < length; ++i) positions.push_back(static_cast<double>(2 + i));
                return turned(in[0], false, [&](const auto& i) { return positions[static_cast<std::size_t>(i[0])]; });
              },
          .tolerance = 4,
          .mixes_rows = "counts the rows before"};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  const auto per_batch = [](Maker& make, Extent n, Tensors& in) { in.push_back(make.uniform({2, 1, 1, n.cols})); };
  const auto for_all = [](Maker& make, Extent n, Tensors& in) { in.push_back(make.uniform({n.rows, n.cols})); };
  const auto per_head = [](Maker& make, Extent n, Tensors& in) {
    in.push_back(make.uniform({kHeads, n.rows, n.cols}));
  };
  const auto boolean = [](Maker& make, Extent n, Tensors& in) { in.push_back(make.index({2, 1, n.rows, n.cols}, 3)); };
  return {dense({.name = ""}),
          dense({.name = "/causal", .causal = true}),
          dense({.name = "/scale", .scale = -0.7}),
          dense({.name = "/key_mask"}, per_batch),
          dense({.name = "/mask", .causal = true}, for_all),
          dense({.name = "/mask_gradient", .differentiable = {0, 1, 2, 3}, .whole = {3}}, per_head),
          dense({.name = "/bool_mask"}, boolean),
          sequences({.name = "/ragged"}, false),
          sequences({.name = "/ragged_causal", .causal = true, .scale = 0.5}, false),
          sequences({.name = "/ragged_cross"}, true),
          sequences({.name = "/ragged_cross_causal", .causal = true}, true),
          sequences({.name = "/ragged_mask"}, false, true),
          rotation(false),
          rotation(true),
          ragged_rotation()};
}

}  // namespace reel::test
