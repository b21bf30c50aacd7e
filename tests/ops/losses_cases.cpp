#include "reel/ops/losses.h"

#include <cmath>

#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Loss = std::function<Tensor(const Tensor&, const Tensor&, Reduction, SourceLocation)>;
using RaggedLoss = std::function<Tensor(const Ragged&, const Ragged&, Reduction)>;

struct Range {
  double low, high;
};

Ref reduced(Ref losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  long double total = 0;
  for (const double v : losses.v) total += v;
  if (reduction == Reduction::mean) total /= static_cast<long double>(losses.v.size());
  return {{}, {static_cast<double>(total)}};
}

std::vector<BadCall> misuse(const std::string& name, const Loss& op) {
  const auto call = [op](const Tensor& x, const Tensor& target) {
    op(x, target, Reduction::mean, SourceLocation::current());
  };
  return {{[call] {
             call(ones({2, 3}), ones({3}));
           },
           {name, "target must have shape [2, 3], got [3]", "cases.cpp"}},
          {[call] { call(arange(3), ones({3})); }, {name, "must be f32 or f64, got i64"}},
          {[call] { call(ones({3}), arange(3)); }, {name, "target must be f32 like", "got i64"}},
          {[call] { call(ones({3}), Tensor()); }, {name, "target must be defined"}}};
}

// A row for each reduction, and one for two Ragged.
void add_rows(std::vector<OpCase>& rows, const std::string& name, const Loss& op, const RaggedLoss& ragged,
              double (*f)(double, double), Range x, Range target) {
  const auto row = [&](const std::string& variant, Reduction reduction) {
    rows.push_back(
        {.name = name + variant,
         .inputs =
             [x, target](Maker& make, Size size) {
               const Extent n = extent_of(size);
               const Tensor first = make.uniform({n.rows, n.cols}, x.low, x.high);
               return Tensors{first, make.uniform({n.rows, n.cols}, target.low, target.high)};
             },
         .call = [op, reduction](const Tensors& in) { return op(in[0], in[1], reduction, SourceLocation::current()); },
         .reference =
             [f, reduction](const std::vector<Ref>& in) {
               Ref y = in[0];
               for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] = f(in[0].v[i], in[1].v[i]);
               return reduced(y, reduction);
             },
         .differentiable = {0, 1},
         .tolerance = reduction == Reduction::none ? 20.0 : 60.0});
  };
  row("", Reduction::mean);
  rows.back().bad = misuse(name, op);
  row("/sum", Reduction::sum);
  row("/none", Reduction::none);
  row("/ragged", Reduction::none);
  rows.back().call = [ragged](const Tensors& in) {
    const std::int64_t n = in[0].shape()[0];
    return ragged(Ragged::from_lengths(in[0], {n, 0}), Ragged::from_lengths(in[1], {n, 0}), Reduction::none);
  };
  rows.back().bad = {{[ragged] {
                        ragged(Ragged::from_lengths(ones({3, 1}), {1, 2}), Ragged::from_lengths(ones({3, 1}), {2, 1}),
                               Reduction::mean);
                      },
                      {name, "the same lengths"}}};
}

Ref cosine(const Ref& a, const Ref& b) {
  return filled({a.shape[0]}, [&](const auto& i) {
    double product = 0, aa = 0, bb = 0;
    for (std::int64_t c = 0; c < a.shape[1]; ++c) {
      const double x = at(a, {i[0], c}), y = at(b, {i[0], c});
      product += x * y;
      aa += x * x;
      bb += y * y;
    }
    return product / (std::max(std::sqrt(aa), 1e-8) * std::max(std::sqrt(bb), 1e-8));
  });
}

OpCase cosines(const std::string& variant, std::function<Tensor(const Tensor&, const Tensor&)> op) {
  return {.name = "cosine_similarity" + variant,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor a = make.uniform({n.rows, n.cols}, 0.5, 2);
                return Tensors{a, make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0], in[1]); },
          .reference = [](const std::vector<Ref>& in) { return cosine(in[0], in[1]); },
          .differentiable = {0, 1},
          .tolerance = 20};
}

Ragged two_sequences(const Tensor& x) { return Ragged::from_lengths(x, {0, x.shape()[0]}); }

}  // namespace

std::vector<OpCase> losses_cases() {
  // Both forms of a loss without options.
  const auto tensors = [](Tensor (*op)(const Tensor&, const Tensor&, Reduction, SourceLocation)) { return Loss(op); };
  const auto raggeds = [](Tensor (*op)(const Ragged&, const Ragged&, Reduction, SourceLocation)) {
    return RaggedLoss([op](const Ragged& x, const Ragged& target, Reduction reduction) {
      return op(x, target, reduction, SourceLocation::current());
    });
  };
  const Loss huber = [](const Tensor& x, const Tensor& target, Reduction reduction, SourceLocation at) {
    return huber_loss(x, target, reduction, 1.5, at);
  };
  const RaggedLoss ragged_huber = [](const Ragged& x, const Ragged& target, Reduction reduction) {
    return huber_loss(x, target, reduction, 1.5);
  };
  std::vector<OpCase> rows;
  add_rows(rows, "mse_loss", tensors(mse_loss), raggeds(mse_loss), [](double x, double t) { return (x - t) * (x - t); },
           {-2, 2}, {-2, 2});
  add_rows(rows, "l1_loss", tensors(l1_loss), raggeds(l1_loss), [](double x, double t) { return std::abs(x - t); },
           {-2, 2}, {-2, 2});
  add_rows(rows, "huber_loss", huber, ragged_huber,
           [](double x, double t) {
             const double r = std::abs(x - t);
             return r <= 1.5 ? r * r / 2 : 1.5 * (r - 0.75);
           },
           {-2, 2}, {-2, 2});
  rows.back().bad.push_back({[] { huber_loss(ones({2}), ones({2}), Reduction::mean, 0); },
                             {"huber_loss", "delta must be above 0", "cases.cpp"}});
  add_rows(rows, "bce_with_logits", tensors(bce_with_logits), raggeds(bce_with_logits),
           [](double x, double t) { return t * std::log1p(std::exp(-x)) + (1 - t) * std::log1p(std::exp(x)); }, {-6, 6},
           {0, 1});
  add_rows(rows, "kl_div", tensors(kl_div), raggeds(kl_div), [](double x, double t) { return t * (std::log(t) - x); },
           {-4, 0}, {0.25, 1});
  add_rows(rows, "hinge_loss", tensors(hinge_loss), raggeds(hinge_loss),
           [](double x, double t) { return std::max(0.0, 1 - t * x); }, {-2, 2}, {-2, 2});
  add_rows(rows, "poisson_nll", tensors(poisson_nll), raggeds(poisson_nll),
           [](double x, double t) { return std::exp(x) - t * x; }, {-2, 2}, {0, 4});
  rows.push_back(cosines("", [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b); }));
  rows.back().bad = {{[] {
                        cosine_similarity(ones({2, 3}), ones({3}));
                      },
                      {"cosine_similarity", "b must have shape [2, 3], got [3]", "cases.cpp"}},
                     {[] { cosine_similarity(ones({3}), ones({3})); },
                      {"cosine_similarity", "axis must be in [-1, 1), got 1", "cases.cpp"}}};
  rows.push_back(cosines("/ragged", [](const Tensor& a, const Tensor& b) {
    return cosine_similarity(two_sequences(a), two_sequences(b)).values();
  }));
  rows.back().bad = {{[] {
                        const Ragged x = two_sequences(ones({2, 3}));
                        cosine_similarity(x, x, 0);
                      },
                      {"cosine_similarity", "behind the rows' axis 0", "cases.cpp"}},
                     {[] {
                        cosine_similarity(Ragged(), two_sequences(ones({2, 3})));
                      },
                      {"cosine_similarity: a must be defined", "cases.cpp"}}};
  const auto cosine_losses = [&](const std::string& variant, auto op, Reduction reduction) {
    rows.push_back(cosines("", op));
    rows.back().name = "cosine_loss" + variant;
    rows.back().reference = [reduction](const std::vector<Ref>& in) {
      Ref y = cosine(in[0], in[1]);
      for (double& v : y.v) v = 1 - v;
      return reduced(y, reduction);
    };
  };
  cosine_losses(
      "", [](const Tensor& a, const Tensor& b) { return cosine_loss(a, b); }, Reduction::mean);
  rows.back().bad = {
      {[] {
         cosine_loss(ones({2, 3}), ones({3}));
       },
       {"cosine_loss", "b must have shape [2, 3], got [3]", "cases.cpp"}},
      {[] { cosine_loss(ones({3}), ones({3})); }, {"cosine_loss", "axis must be in [-1, 1), got 1", "cases.cpp"}}};
  cosine_losses(
      "/ragged",
      [](const Tensor& a, const Tensor& b) { return cosine_loss(two_sequences(a), two_sequences(b), Reduction::none); },
      Reduction::none);
  return rows;
}

}  // namespace reel::test
