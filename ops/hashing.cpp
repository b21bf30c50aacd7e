#include "reel/ops/hashing.h"

#include <algorithm>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/rows.h"
#include "reel/ops/sparse.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

constexpr std::int64_t kBits32 = std::int64_t{1} << 32;

void check_ids(const char* op, const Tensor& ids, SourceLocation where) {
  check::defined(op, "ids", ids, where);
  if (ids.dtype() != i64) throw DTypeError(std::string(op) + ": ids must be i64, got " + name_of(ids.dtype()), where);
}

// The four hashes of each row of keys, [rows, words].
Tensor hashes(const Tensor& keys, std::uint32_t seed) {
  Tensor y = empty({keys.shape()[0], 4}, {.dtype = i64, .device = keys.device()});
  backend(keys.device()).murmur3(keys.array(), seed, y.array());
  return y;
}

Tensor hashes_of_ids(const Tensor& ids, std::uint32_t seed) {
  return hashes(detail::reshaped(detail::packed(ids), {ids.size(), 1}), seed);
}

}  // namespace

Tensor murmur3(const Tensor& ids, std::uint32_t seed, SourceLocation where) {
  check_ids("murmur3", ids, where);
  if (ids.rank() == kMaxRank) throw ShapeError("murmur3: ids must have fewer than 8 axes", where);
  Shape shape = ids.shape();
  shape.push_back(4);
  return detail::reshaped(hashes_of_ids(ids, seed), shape);
}

Ragged murmur3(const Ragged& ids, std::uint32_t seed, SourceLocation where) {
  return ids.with(murmur3(ids.values(), seed, where));
}

Ragged ngrams(const Ragged& ids, std::int64_t n, SourceLocation where) {
  check_ids("ngrams", ids.values(), where);
  check::rank("ngrams", "ids", ids.values(), 1, "[length]", where);
  if (n < 1) throw ShapeError("ngrams: n must be at least 1, got " + std::to_string(n), where);
  detail::HostList<detail::Block> blocks(ids.count());
  for (std::int64_t s = 0; s < ids.count(); ++s)
    blocks.push_back(
        {ids.offsets().span()[static_cast<std::size_t>(s)], std::max<std::int64_t>(0, ids.length(s) - n + 1)});
  return untaped([&] {
    const TensorOptions options{.dtype = i64, .device = ids.device()};
    const Ragged begins = detail::take_blocks("ngrams", arange(ids.total(), options), blocks, where);
    const Tensor rows = unsqueeze(begins.values(), 1) + arange(std::min(n, ids.total()), options);
    const Tensor hash = hashes(detail::take_rows("ngrams", ids.values(), rows, where), 0);
    const Tensor low = select(hash, 1, 0), high = select(hash, 1, 1);
    // 64 bits of two halves, the upper one with a sign.
    const Tensor sign = cast(high >= kBits32 / 2, i64) * kBits32;
    return begins.with((high - sign) * kBits32 + low);
  });
}

Tensor ngrams(const Tensor& ids, std::int64_t n, SourceLocation where) {
  check_ids("ngrams", ids, where);
  check::rank("ngrams", "ids", ids, 1, "[length]", where);
  return ngrams(Ragged::from_lengths(ids, {ids.size()}, where), n, where).values();
}

Tensor hash_embed(const Tensor& table, const Tensor& ids, std::uint32_t seed, SourceLocation where) {
  check::floating("hash_embed", "table", table, where);
  check_ids("hash_embed", ids, where);
  if (table.rank() < 1 || table.shape()[0] < 1)
    throw ShapeError("hash_embed: table must have shape [rows, ...] with a row, got " + table.shape().str(), where);
  if (!(ids.device() == table.device()))
    throw DeviceError("hash_embed: ids must be on " + table.device().name() + " like table, got " + ids.device().name(),
                      where);
  if (ids.rank() == kMaxRank) throw ShapeError("hash_embed: ids must have fewer than 8 axes", where);
  const Tensor rows = untaped([&] {
    // The remainder: numbers below 2^32 and their quotients are never near enough to a whole number to be rounded to it.
    const Tensor hash = murmur3(ids, seed);
    const Tensor quotient = cast(cast(hash, f64) / static_cast<double>(table.shape()[0]), i64);
    return hash - quotient * table.shape()[0];
  });
  return gather_add(table, rows);
}

Ragged hash_embed(const Tensor& table, const Ragged& ids, std::uint32_t seed, SourceLocation where) {
  return ids.with(hash_embed(table, ids.values(), seed, where));
}

}  // namespace reel
