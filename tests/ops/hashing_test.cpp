// MurmurHash3 against its published values: the verification of SMHasher, its author's test suite, and the vectors of
// PeterScott/murmur3, which Thinc's hash goes back to.

#include "reel/ops/hashing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "reel/core/scalar/murmur3.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;
using Bytes = std::vector<unsigned char>;

void append(Bytes& to, const scalar::Murmur3Hash& hash) {
  for (int lane = 0; lane < 4; ++lane)
    for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<unsigned char>(hash.lane(lane) >> shift));
}

TEST(Murmur3, PassesSMHashersVerification) {
  // Keys {}, {0}, {0, 1}, ... with seeds 256, 255, ...; then the hash of all hashes.
  Bytes key, hashes;
  for (std::uint32_t i = 0; i < 256; ++i) {
    append(hashes, scalar::murmur3(key.data(), i, 256 - i));
    key.push_back(static_cast<unsigned char>(i));
  }
  const scalar::Murmur3Hash all = scalar::murmur3(hashes.data(), static_cast<std::int64_t>(hashes.size()), 0);
  EXPECT_EQ(all.lane(0), 0x6384BA69u);
}

TEST(Murmur3, GivesThePublishedHashesOfStrings) {
  const auto hex = [](const std::string& text, std::uint32_t seed) {
    const scalar::Murmur3Hash hash = scalar::murmur3(reinterpret_cast<const unsigned char*>(text.data()),
                                                     static_cast<std::int64_t>(text.size()), seed);
    char digits[33];
    std::snprintf(digits, sizeof digits, "%08x%08x%08x%08x", hash.lane(0), hash.lane(1), hash.lane(2), hash.lane(3));
    return std::string(digits);
  };
  EXPECT_EQ(hex("Hello, world!", 123), "8743acad421c8c73d373c3f5f19732fd");
  EXPECT_EQ(hex("Hello, world!", 321), "f86d4004ca47f42bb9546c7979200aee");
  EXPECT_EQ(hex(std::string(28, 'x'), 123), "becf7e04dbcf74637751664ef66e73e0");
  EXPECT_EQ(hex("", 123), "4cd9597081679d1abd92f8784bace33d");
}

TEST(Murmur3, HashesTheEightBytesOfAnId) {
  const std::int64_t id = -2;  // fe ff ff ff ff ff ff ff
  const Bytes bytes = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  const scalar::Murmur3Hash hash = scalar::murmur3(bytes.data(), 8, 7);
  EXPECT_THAT(murmur3(full({}, id, {.dtype = i64}), 7).to_vector<std::int64_t>(),
              ElementsAre(hash.lane(0), hash.lane(1), hash.lane(2), hash.lane(3)));
}

TEST(Ngrams, HashTheBytesOfConsecutiveIds) {
  const std::vector<std::int64_t> ids = {5, -1, 1ll << 40, 5, -1};
  const std::vector<std::int64_t> grams = ngrams(from_vector(ids), 2).to_vector<std::int64_t>();
  ASSERT_EQ(grams.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    unsigned char bytes[16];
    std::memcpy(bytes, &ids[i], 16);
    EXPECT_EQ(static_cast<std::uint64_t>(grams[i]), scalar::murmur3(bytes, 16, 0).word[0]);
  }
  EXPECT_EQ(grams[0], grams[3]);
  EXPECT_EQ(ngrams(from_vector(ids), 6).size(), 0);
  EXPECT_EQ(ngrams(from_vector(ids), std::int64_t{1} << 60).size(), 0);
}

TEST(Ngrams, StayWithinTheirSequences) {
  const Ragged grams = ngrams(Ragged::from_lengths(arange(6), {1, 3, 0, 2}), 2);
  EXPECT_THAT(grams.offsets().lengths(), ElementsAre(0, 2, 0, 1));
}

TEST(HashEmbed, DependsOnTheSeedAndTakesOneRow) {
  const Tensor ids = arange(100);
  const Tensor table = unsqueeze(arange(1000, {.dtype = f32}), 1);
  EXPECT_NE(hash_embed(table, ids, 1).to_vector<double>(), hash_embed(table, ids, 2).to_vector<double>());
  // With one row all four are that row.
  EXPECT_THAT(hash_embed(full({1, 1}, 2.5), arange(2)).to_vector<double>(), ElementsAre(10, 10));
}

}  // namespace
}  // namespace reel::test
