#include "reel/ops/einsum.h"

#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

struct Sum {
  std::string variant, equation;
  std::string plain;  // the same without blanks, ellipses and an implied result
  std::function<std::vector<Shape>(Extent)> shapes;
};

// Over every value of every letter.
Ref summed(const std::string& plain, const std::vector<Ref>& in) {
  const std::size_t arrow = plain.find("->");
  const std::string result = plain.substr(arrow + 2);
  std::vector<std::string> terms(1);
  for (const char c : plain.substr(0, arrow))
    if (c == ',') terms.emplace_back();
    else terms.back() += c;
  std::string letters = result;
  for (const std::string& term : terms)
    for (const char c : term)
      if (letters.find(c) == std::string::npos) letters += c;
  Shape all;
  for (const char c : letters) {
    std::int64_t size = 1;
    for (std::size_t i = 0; i < terms.size(); ++i)
      for (std::size_t axis = 0; axis < terms[i].size(); ++axis) {
        const std::int64_t n = in[i].shape[static_cast<int>(axis)];
        if (terms[i][axis] == c && n != 1) size = n;
      }
    all.push_back(size);
  }
  const Shape shape = Shape::of(all.begin(), static_cast<int>(result.size()));
  Ref y{shape, std::vector<double>(static_cast<std::size_t>(shape.size()))};
  // How far an operand's elements, or the result's, are apart along each letter: 0 where it has none or one for all.
  const auto steps_of = [&](const std::string& term, const Shape& own) {
    std::vector<std::int64_t> steps(letters.size());
    std::int64_t stride = 1;
    for (int axis = own.rank() - 1; axis >= 0; --axis) {
      if (own[axis] != 1) steps[letters.find(term[static_cast<std::size_t>(axis)])] += stride;
      stride *= own[axis];
    }
    return steps;
  };
  std::vector<std::vector<std::int64_t>> steps = {steps_of(result, shape)};
  for (std::size_t i = 0; i < terms.size(); ++i) steps.push_back(steps_of(terms[i], in[i].shape));
  std::vector<std::int64_t> index(letters.size()), places(steps.size());
  for (std::int64_t flat = 0; flat < all.size(); ++flat) {
    double product = 1;
    for (std::size_t i = 0; i < terms.size(); ++i) product *= in[i].v[static_cast<std::size_t>(places[i + 1])];
    y.v[static_cast<std::size_t>(places[0])] += product;
    for (std::size_t axis = letters.size(); axis-- > 0;) {
      const std::int64_t back = ++index[axis] == all[static_cast<int>(axis)] ? std::exchange(index[axis], 0) : 0;
      for (std::size_t i = 0; i < steps.size(); ++i) places[i] += (1 - back) * steps[i][axis];
      if (back == 0) break;
    }
  }
  return y;
}

OpCase einsum_row(const Sum& sum) {
  std::vector<int> all;
  for (std::size_t i = 0; i < sum.shapes({1, 1}).size(); ++i) all.push_back(static_cast<int>(i));
  return {.name = "einsum" + sum.variant,
          .inputs =
              [sum](Maker& make, Size size) {
                Tensors in;
                for (const Shape& shape : sum.shapes(extent_of(size))) in.push_back(make.uniform(shape, -1, 1));
                return in;
              },
          .call = [sum](const Tensors& in) { return einsum(sum.equation, in); },
          .reference = [sum](const std::vector<Ref>& in) { return summed(sum.plain, in); },
          .differentiable = all,
          .tolerance = 400,
          .mixes_rows = sum.variant == "/four" ? "the result's first axis is no operand's first" : "",
          .bad = {{[] {
                     einsum("ij,jk", {ones({2, 3})});
                   },
                   {"einsum", "a term for each operand, got 2 terms and 1 operands", "cases.cpp"}},
                  {[] {
                     einsum("ij,jk", {ones({2, 3}), ones({4, 2})});
                   },
                   {"einsum: subscript 'j' must have one size, got 3 and 4"}},
                  {[] {
                     einsum("...i,...i", {ones({2, 3}), ones({4, 3})});
                   },
                   {"einsum: subscript '...' must have one size, got 2 and 4"}},
                  {[] {
                     einsum("ijk", {ones({2, 3})});
                   },
                   {"operand 0 must have the axes that 'ijk' names, got shape [2, 3]"}},
                  {[] { einsum("i->k", {ones({2})}); }, {"subscript 'k' of the result", "got 'k'"}},
                  {[] { einsum("i->ii", {ones({2})}); }, {"subscript 'i' of the result must stand there once"}},
                  {[] {
                     einsum("i.j", {ones({2, 3})});
                   },
                   {"letters and at most one ellipsis, got 'i.j'"}},
                  {[] { einsum("i", {arange(2)}); }, {"einsum: operand 0 must be f32 or f64, got i64"}},
                  {[] {
                     einsum("i,i", {ones({2}), ones({2}, {.dtype = f64})});
                   },
                   {"operand 1 must be f32 like operand 0"}},
                  {[] {
                     einsum("abcde,fghij", {ones({1, 1, 1, 1, 1}), ones({1, 1, 1, 1, 1})});
                   },
                   {"einsum: no result may have more than 8 axes"}}}};
}

}  // namespace

std::vector<OpCase> einsum_cases() {
  const std::vector<Sum> sums = {{"", "ij,jk->ik", "ij,jk->ik",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, n.cols}, {n.cols, 5}};
                                  }},
                                 {"/implicit", "Kj, jB", "Kj,jB->BK",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, n.cols}, {n.cols, 5}};
                                  }},
                                 {"/batched", "bij,bkj->bki", "bij,bkj->bki",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, 2, 3}, {n.rows, 4, 3}};
                                  }},
                                 {"/ellipsis", "...ij,...jk->...ik", "abij,bjk->abik",
                                  [](Extent n) {
                                    return std::vector<Shape>{{2, n.rows, 2, 3}, {n.rows, 3, 2}};
                                  }},
                                 {"/broadcast", "i...,...", "iab,ab->abi",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, 1, 3}, {2, 3}};
                                  }},
                                 {"/rows", "ij,ij->i", "ij,ij->i",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, n.cols}, {n.rows, n.cols}};
                                  }},
                                 {"/outer", "ij,k->kij", "ij,k->kij",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, n.cols}, {3}};
                                  }},
                                 {"/diagonal", "iji->ji", "iji->ji",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.cols, 3, n.cols}};
                                  }},
                                 {"/trace", "ii,j", "ii,j->j",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.cols, n.cols}, {n.rows}};
                                  }},
                                 {"/lonely", "ij,kl->k", "ij,kl->k",
                                  [](Extent n) {
                                    return std::vector<Shape>{{2, 3}, {n.rows, n.cols}};
                                  }},
                                 {"/three", "ia,ib,ab->i", "ia,ib,ab->i",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, 4}, {n.rows, 3}, {4, 3}};
                                  }},
                                 {"/four", "ab,bc,cd,de->ea", "ab,bc,cd,de->ea",
                                  [](Extent n) {
                                    return std::vector<Shape>{{n.rows, 3}, {3, 2}, {2, 4}, {4, 2}};
                                  }},
                                 {"/joined", "abc,bcd->ad", "abc,bcd->ad", [](Extent n) {
                                    return std::vector<Shape>{{n.rows, 3, 2}, {3, 2, 4}};
                                  }}};
  std::vector<OpCase> rows;
  for (const Sum& sum : sums) rows.push_back(einsum_row(sum));
  for (std::size_t i = 1; i < rows.size(); ++i) rows[i].bad.clear();
  return rows;
}

}  // namespace reel::test
