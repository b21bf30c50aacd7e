#pragma once

#include <cstdint>

#include "reel/core/ragged.h"

/// Numbers made of ids, for tables that are smaller than the number of ids. Ids are i64, taken as 64 bits; the same on every
/// machine. Throw DTypeError, DeviceError, ShapeError.
namespace reel {

/// MurmurHash3_x64_128 of each id's 8 bytes as four numbers of 32 bits, as Thinc's hash: ids [...] give [..., 4], i64.
REEL_API Tensor murmur3(const Tensor& ids, std::uint32_t seed = 0, SourceLocation where = SourceLocation::current());
REEL_API Ragged murmur3(const Ragged& ids, std::uint32_t seed = 0, SourceLocation where = SourceLocation::current());

/// One id for each n consecutive ids of a sequence: the first 64 bits of their MurmurHash3_x64_128. ids [length] give
/// [max(0, length - n + 1)]. Throws ShapeError unless n >= 1.
REEL_API Tensor ngrams(const Tensor& ids, std::int64_t n, SourceLocation where = SourceLocation::current());
/// Within each sequence; one of fewer than n ids has none.
REEL_API Ragged ngrams(const Ragged& ids, std::int64_t n, SourceLocation where = SourceLocation::current());

/// For each id the sum of four rows of the table, those that its four hashes name, each modulo the number of rows: ids
/// [...] and table [rows, ...] give [..., the table's other axes]. Two ids that meet in one row rarely meet in all four.
/// (Svenstrup, Hansen and Winther, "Hash embeddings for efficient word representations", 2017, without the weights; Thinc's
/// HashEmbed.) Gradients to the table, of any order. Throws ShapeError unless the table has a row.
REEL_API Tensor hash_embed(const Tensor& table, const Tensor& ids, std::uint32_t seed = 0,
                           SourceLocation where = SourceLocation::current());
/// Per row: ids [total].
REEL_API Ragged hash_embed(const Tensor& table, const Ragged& ids, std::uint32_t seed = 0,
                           SourceLocation where = SourceLocation::current());

}  // namespace reel
