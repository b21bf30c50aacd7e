#include "reel/ops/hashing.h"

#include "reel/core/scalar/murmur3.h"
#include "reel/ops/convert.h"
#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

using Index = std::vector<std::int64_t>;

// The hash of ids as they lie in memory; tests/ops/hashing_test.cpp compares it with published values.
scalar::Murmur3Hash hash_of(const std::vector<std::int64_t>& ids, std::uint32_t seed) {
  return scalar::murmur3(reinterpret_cast<const unsigned char*>(ids.data()), static_cast<std::int64_t>(ids.size()) * 8,
                         seed);
}

std::int64_t id_at(const Ref& ids, const Index& index) { return static_cast<std::int64_t>(at(ids, index)); }

Tensors ids_alone(Maker& make, Size size) { return Tensors{make.index({extent_of(size).rows, 3}, 1000)}; }

OpCase hashes(const std::string& variant, std::function<Tensor(const Tensor&)> op) {
  return {.name = "murmur3" + variant,
          .inputs = ids_alone,
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[0].shape[0], 3, 4}, [&](const Index& i) {
                  return static_cast<double>(hash_of({id_at(in[0], {i[0], i[1]})}, 5).lane(static_cast<int>(i[2])));
                });
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0,
          .bad = {{[op] { op(zeros({2}, {.dtype = i32})); }, {"murmur3", "ids must be i64, got i32", "cases.cpp"}}}};
}

// The numbers are beyond 2^53: compared by their rest.
Tensor rest(const Tensor& ids) {
  std::vector<std::int64_t> values = ids.to_vector<std::int64_t>();
  for (std::int64_t& value : values) value %= 1000003;
  return to(from_vector(values, ids.shape()), ids.device());
}

OpCase grams(const std::string& variant, std::int64_t n, bool ragged) {
  return {
      .name = "ngrams" + variant,
      .inputs = [](Maker& make, Size size) { return Tensors{make.index({extent_of(size).rows}, 1000)}; },
      .call =
          [=](const Tensors& in) { return rest(ragged ? ngrams(in_sequences(in[0]), n).values() : ngrams(in[0], n)); },
      .reference =
          [=](const std::vector<Ref>& in) {
            Ref y;
            const auto append = [&](std::int64_t, std::int64_t begin, std::int64_t length) {
              for (std::int64_t i = begin; i + n <= begin + length; ++i) {
                std::vector<std::int64_t> ids;
                for (std::int64_t k = i; k < i + n; ++k) ids.push_back(id_at(in[0], {k}));
                y.v.push_back(static_cast<double>(static_cast<std::int64_t>(hash_of(ids, 0).word[0]) % 1000003));
              }
            };
            if (ragged) for_each_sequence(in[0].shape[0], append);
            else append(0, 0, in[0].shape[0]);
            y.shape = {y.v.size()};
            return y;
          },
      .order = 0,
      .differentiable = {},
      .tolerance = 0,
      .bad = {{[] { ngrams(arange(3), 0); }, {"ngrams", "n must be at least 1, got 0", "cases.cpp"}},
              {[] {
                 ngrams(zeros({3, 1}, {.dtype = i64}), 2);
               },
               {"ngrams", "[length], got [3, 1]"}},
              {[] { ngrams(ones({3}), 2); }, {"ngrams", "ids must be i64, got f32"}}}};
}

OpCase embeds(const std::string& variant, std::function<Tensor(const Tensor&, const Tensor&)> op) {
  return {.name = "hash_embed" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({7, n.cols}), make.index({n.rows}, 1000)};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[1].shape[0], in[0].shape[1]}, [&](const Index& i) {
                  const scalar::Murmur3Hash hash = hash_of({id_at(in[1], {i[0]})}, 3);
                  double sum = 0;
                  for (int k = 0; k < 4; ++k) sum += at(in[0], {hash.lane(k) % 7, i[1]});
                  return sum;
                });
              },
          .bad = {{[op] {
                     op(ones({0, 2}), arange(2));
                   },
                   {"hash_embed", "with a row, got [0, 2]", "cases.cpp"}},
                  {[op] {
                     op(ones({2, 2}), ones({2}));
                   },
                   {"hash_embed", "ids must be i64, got f32"}}}};
}

}  // namespace

std::vector<OpCase> hashing_cases() {
  std::vector<OpCase> rows;
  rows.push_back(hashes("", [](const Tensor& ids) { return murmur3(ids, 5); }));
  rows.push_back(hashes("/ragged", [](const Tensor& ids) {
    return murmur3(Ragged::from_lengths(ids, {0, ids.shape()[0]}), 5).values();
  }));
  rows.push_back(grams("", 2, false));
  rows.push_back(grams("/three", 3, false));
  rows.push_back(grams("/ragged", 3, true));
  rows.push_back(embeds("", [](const Tensor& table, const Tensor& ids) { return hash_embed(table, ids, 3); }));
  rows.push_back(embeds("/ragged", [](const Tensor& table, const Tensor& ids) {
    return hash_embed(table, Ragged::from_lengths(ids, {0, ids.shape()[0]}), 3).values();
  }));
  return rows;
}

}  // namespace reel::test
