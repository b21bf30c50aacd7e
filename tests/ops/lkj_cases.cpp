#include <cmath>
#include <numbers>

#include "reel/ops/create.h"
#include "reel/ops/distributions.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

namespace d = distributions;

// Values [rows, cols, dim, dim] whose diagonals alone count, as the density says; concentrations [cols].
OpCase lkj_row(const std::string& variant, std::int64_t dim) {
  return {.name = "lkj_cholesky" + variant,
          .inputs =
              [dim](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor value = make.uniform({n.rows, n.cols, dim, dim}, 0.1, 1);
                return Tensors{value, make.uniform({n.cols}, 0.5, 4)};
              },
          .call = [dim](const Tensors& in) { return d::LKJCholesky(dim, in[1]).log_prob(in[0]); },
          .reference =
              [dim](const std::vector<Ref>& in) {
                return filled({in[0].shape[0], in[0].shape[1]}, [&](const auto& at_place) {
                  long double total = 0;
                  for (std::int64_t i = 1; i < dim; ++i) {
                    const long double half = i / 2.0L;
                    const long double b = at(in[1], {at_place[1]}) + static_cast<long double>(dim - 1 - i) / 2;
                    total +=
                        std::lgamma(b + half) - std::lgamma(b) - half * std::log(std::numbers::pi_v<long double>) +
                        (2 * b - 2) * std::log(static_cast<long double>(at(in[0], {at_place[0], at_place[1], i, i})));
                  }
                  return static_cast<double>(total);
                });
              },
          .differentiable = {0, 1},
          .tolerance = 100};
}

}  // namespace

std::vector<OpCase> lkj_cases() {
  std::vector<OpCase> rows{lkj_row("", 3), lkj_row("/pair", 2), lkj_row("/single", 1)};
  rows[0].bad = {
      {[] { d::LKJCholesky(0, 1); }, {"LKJCholesky", "dim must be at least 1, got 0", "cases.cpp"}},
      {[] { d::LKJCholesky(3, 1).log_prob(eye(2)); }, {"LKJCholesky", "[..., 3, 3], got [2, 2]", "cases.cpp"}},
      {[] { d::LKJCholesky(2, 1).log_prob(arange(4)); }, {"LKJCholesky", "value must be f32 or f64, got i64"}},
      {[] {
         d::LKJCholesky(2, ones({3})).log_prob(ones({2, 2, 2}));
       },
       {"LKJCholesky", "got [2, 2, 2] and [3]"}}};
  return rows;
}

}  // namespace reel::test
