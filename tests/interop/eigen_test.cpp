#include "reel/interop/eigen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using interop::as_eigen;
using interop::as_mutable_eigen;
using interop::from_eigen;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Eigen, SeesAViewWhereItLies) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = f64});
  const auto map = as_eigen<double>(x);
  EXPECT_EQ(map.data(), x.data<double>().data());
  EXPECT_EQ(map(1, 2), 6);
  const Tensor t = transpose(x);
  EXPECT_EQ(as_eigen<double>(t).data(), x.data<double>().data());
  EXPECT_EQ(as_eigen<double>(t), map.transpose());
  EXPECT_EQ(as_eigen<double>(select(x, 1, 1)).sum(), 7);
  EXPECT_EQ(as_eigen<float>(zeros({0, 4})).cols(), 4);
}

TEST(Eigen, WritesThroughAMapAndTapesNotice) {
  Tensor x = zeros({2, 2});
  as_mutable_eigen<float>(x) << 1, 2, 3, 4;
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(x.version(), 1u);
  Tape tape;
  tape.watch(x);
  const Tensor y = x * x;
  EXPECT_THROW(as_mutable_eigen<float>(x), VersionError);
}

TEST(Eigen, WritesOnlyWhereEachElementHasAPlaceOfItsOwn) {
  Tensor wide = expand(zeros({1, 3}), {2, 3}), tall = expand(zeros({2, 1}), {2, 3}), one = expand(zeros({1}), {2});
  for (Tensor* shared : {&wide, &tall, &one}) {
    EXPECT_THROW(as_mutable_eigen<float>(*shared), ShapeError);
    EXPECT_EQ(as_eigen<float>(*shared).sum(), 0);
  }
  Tensor x = zeros({3, 4}), across = transpose(x), column = narrow(x, 1, 1, 1), none = expand(zeros({1, 0}), {2, 0});
  as_mutable_eigen<float>(across)(1, 2) = 5;
  as_mutable_eigen<float>(column)(0, 0) = 6;
  EXPECT_EQ(as_mutable_eigen<float>(none).size(), 0);
  Tensor narrow_ones = narrow(transpose(zeros({1, 3})), 1, 0, 1),
         corner = transpose(narrow(zeros({3, 1, 4}), 2, 0, 1)[0]);
  EXPECT_EQ(as_mutable_eigen<float>(narrow_ones).rows(), 3);
  EXPECT_EQ(as_mutable_eigen<float>(corner).rows(), 1);
  EXPECT_THAT(x.to_vector<double>(), ElementsAre(0, 6, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0));
}

TEST(Eigen, ExpressionsBecomeTensors) {
  Eigen::Matrix<float, 2, 3> a;  // column by column in memory
  a << 1, 2, 3, 4, 5, 6;
  const Tensor y = from_eigen(2 * a);
  EXPECT_EQ(y.shape(), Shape({2, 3}));
  EXPECT_THAT(y.to_vector<double>(), ElementsAre(2, 4, 6, 8, 10, 12));
  EXPECT_EQ(from_eigen(Eigen::VectorXd::Ones(3)).shape(), Shape({3}));
  EXPECT_EQ(from_eigen(Eigen::RowVectorXd::Ones(3)).shape(), Shape({1, 3}));
  EXPECT_EQ(from_eigen(Eigen::ArrayXXi::Zero(0, 2)).dtype(), i32);
}

TEST(Eigen, RefusesOtherTypesAndRanks) {
  const auto words = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(words([] { as_eigen<double>(ones({2})); }), HasSubstr("as_eigen: x must be f64, got f32"));
  EXPECT_THAT(words([] { as_eigen<float>(ones({1, 2, 3})); }), HasSubstr("[rows, cols], got [1, 2, 3]"));
  EXPECT_THAT(words([] { as_eigen<float>(Tensor()); }), HasSubstr("x must be defined"));
}

}  // namespace
}  // namespace reel::test
