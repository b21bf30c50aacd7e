#include "reel/nn/confusion.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reel/tests/expect.h"
#include "reel/tests/told.h"

namespace reel::nn {
namespace {

TEST(Confusion, RatiosAreThoseCountedByHand) {
  Confusion table(3);
  table.add({0, 0, 0, 1, 1, 2}, {0, 0, 1, 1, 0, 0});

  EXPECT_EQ(table.total(), 6);
  EXPECT_EQ(table.right(), 3);
  EXPECT_EQ(table.count(0, 0), 2);
  EXPECT_EQ(table.count(0, 1), 1);
  EXPECT_EQ(table.count(2, 0), 1);
  EXPECT_DOUBLE_EQ(table.accuracy(), 3.0 / 6);
  EXPECT_DOUBLE_EQ(table.precision(0), 2.0 / 4);
  EXPECT_DOUBLE_EQ(table.recall(0), 2.0 / 3);
  EXPECT_DOUBLE_EQ(table.precision(1), 1.0 / 2);
  EXPECT_DOUBLE_EQ(table.recall(1), 1.0 / 2);
  EXPECT_TRUE(std::isnan(table.precision(2)));
  EXPECT_EQ(table.recall(2), 0);
}

TEST(Confusion, NothingCountedHasNoRatios) {
  const Confusion table(2);
  EXPECT_EQ(table.total(), 0);
  EXPECT_TRUE(std::isnan(table.accuracy()));
  EXPECT_TRUE(std::isnan(table.recall(0)));
}

TEST(Confusion, TheTableIsAligned) {
  Confusion table(2);
  for (int i = 0; i < 1000; ++i) table.add(0, 0);
  table.add(1, 0);
  EXPECT_EQ(table.str(),
            "true \\ predicted     0     1  recall %\n"
            "               0  1000     .     100.0\n"
            "               1     1     .       0.0\n"
            "     precision %  99.9     -\n"
            "accuracy 99.9 % (1000 of 1001)\n");
  EXPECT_EQ(Confusion(1).str({"sm\xC3\xB8r"}),
            "true \\ predicted  sm\xC3\xB8r  recall %\n"
            "            sm\xC3\xB8r     .         -\n"
            "     precision %     -\n"
            "accuracy - (0 of 0)\n");
}

TEST(Confusion, AskingForAClassThatIsNotThereIsRefused) {
  const Confusion table(3);
  expect_told("Confusion", [&] { (void)table.count(3, 0); });
  expect_told("Confusion", [&] { (void)table.count(0, -1); });
  expect_told("Confusion", [&] { (void)table.precision(3); });
  expect_told("Confusion", [&] { (void)table.recall(-1); });
  EXPECT_THROW_WITH(table.recall(-1), IndexError, "a true class in [0, 3) is required, got -1");
}

TEST(Confusion, BadLabelsAreRefusedAndCountNothing) {
  Confusion table(3);
  EXPECT_THROW(table.add(3, 0), IndexError);
  EXPECT_THROW(table.add(0, -1), IndexError);
  EXPECT_THROW(table.add({0, 1}, {0, 7}), IndexError);
  EXPECT_THROW(table.add({0, 1}, {0}), ShapeError);
  EXPECT_THROW(table.str({"a", "b"}), ShapeError);
  EXPECT_THROW(Confusion(0), Error);
  EXPECT_THROW_WITH(Confusion(1 << 30), OutOfMemory, "Confusion: ", "1073741824 classes", "confusion_test.cpp:");
  EXPECT_EQ(table.total(), 0);
  try {
    table.add(0, 9);
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_NE(std::string(error.what()).find("a predicted class in [0, 3) is required, got 9 (at "), std::string::npos);
  }
}

}  // namespace
}  // namespace reel::nn
