#include "reel/ops/einsum.h"

#include <string>
#include <vector>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

// One character per axis: letters, and '0', '1', ... for the axes of an ellipsis, counted from its last. As a set of
// subscripts, order and repetition do not matter.
using Subscripts = std::string;

bool holds(const Subscripts& set, char c) { return set.find(c) != Subscripts::npos; }
bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

Subscripts those_in(const Subscripts& subscripts, const Subscripts& set, bool in = true) {
  Subscripts some;
  for (const char c : subscripts)
    if (holds(set, c) == in) some += c;
  return some;
}

// --- the equation -----------------------------------------------------------------------------------------------------

struct Equation {
  std::vector<std::string> terms;
  std::string result;
  bool has_result = false;
};

Equation read(std::string_view written) {
  std::string text;
  for (const char c : written)
    if (c != ' ') text += c;
  Equation equation;
  const std::size_t arrow = text.find("->");
  equation.has_result = arrow != std::string::npos;
  if (equation.has_result) {
    equation.result = text.substr(arrow + 2);
    text.resize(arrow);
  }
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    equation.terms.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return equation;
    begin = comma + 1;
  }
}

bool has_ellipsis(const std::string& term) { return holds(term, '.'); }

int letters_in(const std::string& term) { return static_cast<int>(term.size()) - (has_ellipsis(term) ? 3 : 0); }

// The term with its ellipsis replaced by the subscripts of so many axes.
Subscripts spelled(const std::string& term, int ellipsis_axes, SourceLocation where) {
  Subscripts axes, result = term;
  while (ellipsis_axes > 0) axes += static_cast<char>('0' + --ellipsis_axes);
  const std::size_t dots = term.find("...");
  if (dots != std::string::npos) result.erase(dots, 3);
  for (const char c : result)
    if (!is_letter(c))
      throw ShapeError("einsum: terms must be made of letters and at most one ellipsis, got '" + term + "'", where);
  return dots == std::string::npos ? result : result.insert(dots, axes);
}

// The subscripts of each operand's axes.
std::vector<Subscripts> subscripts_of(const Equation& equation, const Tensors& operands, SourceLocation where) {
  if (equation.terms.size() != operands.size())
    throw ShapeError("einsum: the equation must have a term for each operand, got " +
                         std::to_string(equation.terms.size()) + " terms and " + std::to_string(operands.size()) +
                         " operands",
                     where);
  std::vector<Subscripts> all;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string &term = equation.terms[i], name = "operand " + std::to_string(i);
    check::floating("einsum", name.c_str(), operands[i], where);
    check::like("einsum", name.c_str(), operands[i], "operand 0", operands[0], where);
    const int unnamed = operands[i].rank() - letters_in(term);
    const Subscripts subscripts = spelled(term, unnamed, where);
    if (static_cast<int>(subscripts.size()) != operands[i].rank())
      throw ShapeError(
          "einsum: " + name + " must have the axes that '" + term + "' names, got shape " + operands[i].shape().str(),
          where);
    all.push_back(subscripts);
  }
  return all;
}

Subscripts result_of(const Equation& equation, const std::vector<Subscripts>& terms, SourceLocation where) {
  int count[128] = {}, ellipsis_axes = 0;
  for (const Subscripts& term : terms)
    for (const char c : term) {
      ++count[static_cast<int>(c)];
      if (!is_letter(c) && c - '0' >= ellipsis_axes) ellipsis_axes = c - '0' + 1;
    }
  if (!equation.has_result) {
    Subscripts once = spelled("...", ellipsis_axes, where);
    for (char c = 'A'; c <= 'z'; ++c)
      if (count[static_cast<int>(c)] == 1) once += c;
    return once;
  }
  const Subscripts result = spelled(equation.result, ellipsis_axes, where);
  for (std::size_t i = 0; i < result.size(); ++i)
    if (count[static_cast<int>(result[i])] == 0 || result.find(result[i], i + 1) != Subscripts::npos)
      throw ShapeError(std::string("einsum: subscript '") + result[i] +
                           "' of the result must stand there once and in an operand, got '" + equation.result + "'",
                       where);
  return result;
}

// --- factors ----------------------------------------------------------------------------------------------------------

// A tensor whose axes have different subscripts.
struct Factor {
  Tensor x;
  Subscripts subscripts;
};

class Contraction {
 public:
  Contraction(const std::vector<Subscripts>& terms, const Tensors& operands, SourceLocation where) : where_(where) {
    for (std::int64_t& size : sizes_) size = 1;
    for (std::size_t i = 0; i < operands.size(); ++i)
      for (int axis = 0; axis < operands[i].rank(); ++axis)
        set_size(terms[i][static_cast<std::size_t>(axis)], operands[i].shape()[axis]);
  }

  // One operand, broadcast to the sizes of its subscripts.
  Factor factor(const Tensor& x, const Subscripts& subscripts) const {
    const Shape shape = shape_of(subscripts);
    return without_repeats({x.shape() == shape ? x : expand(x, shape), subscripts});
  }

  // The product of two factors, summed over what is not needed any more.
  Factor product(Factor a, Factor b, const Subscripts& needed) const {
    a = only(a, needed + b.subscripts);
    b = only(b, needed + a.subscripts);
    const Subscripts both = those_in(a.subscripts, b.subscripts);
    const Subscripts batch = those_in(both, needed), inner = those_in(both, needed, false);
    const Subscripts left = those_in(a.subscripts, both, false), right = those_in(b.subscripts, both, false);
    const Subscripts result = batch + left + right;
    const Shape shape = shape_of(result);
    if (inner.empty()) {
      Tensor x = ordered(a, batch + left);
      for (std::size_t i = 0; i < right.size(); ++i) x = unsqueeze(x, -1);
      Tensor y = ordered(b, batch + right);
      for (std::size_t i = 0; i < left.size(); ++i) y = unsqueeze(y, static_cast<int>(batch.size()));
      return {mul(x, y), result};
    }
    if (left.empty() && right.empty()) {  // matrices of one element would be slow
      const Tensor z = mul(ordered(a, batch + inner), ordered(b, batch + inner));
      const Tensor rows = shaped(z, {shape.size(), shape_of(inner).size()});
      return {shaped(sum(rows, 1), shape), result};
    }
    const Tensor x = matrices(ordered(a, batch + left + inner), batch, left, inner);
    const Tensor y = matrices(ordered(b, batch + inner + right), batch, inner, right);
    return {shaped(matmul(x, y), shape), result};
  }

  // Summed over what is not in the result, whose axes come in its order.
  Tensor finished(const Factor& f, const Subscripts& result) const { return ordered(only(f, result), result); }

 private:
  void set_size(char subscript, std::int64_t size) {
    std::int64_t& known = sizes_[static_cast<int>(subscript)];
    if (size == 1 || size == known) return;
    if (known != 1)
      throw ShapeError("einsum: subscript '" + (is_letter(subscript) ? std::string(1, subscript) : "...") +
                           "' must have one size, got " + std::to_string(known) + " and " + std::to_string(size),
                       where_);
    known = size;
  }

  Shape shape_of(const Subscripts& subscripts) const {
    if (subscripts.size() > kMaxRank)
      throw ShapeError("einsum: no result may have more than 8 axes, got '" + subscripts + "'", where_);
    Shape shape;
    for (const char c : subscripts) shape.push_back(sizes_[static_cast<int>(c)]);
    return shape;
  }

  // reshape would copy what has the shape already but other strides.
  Tensor shaped(const Tensor& x, const Shape& shape) const { return x.shape() == shape ? x : reshape(x, shape); }

  Tensor matrices(const Tensor& x, const Subscripts& batch, const Subscripts& rows, const Subscripts& cols) const {
    const std::int64_t m = shape_of(rows).size(), n = shape_of(cols).size();
    return shaped(x, batch.empty() ? Shape{m, n} : Shape{shape_of(batch).size(), m, n});
  }

  // All axes, in this order.
  Tensor ordered(const Factor& f, const Subscripts& order) const {
    if (order == f.subscripts) return f.x;
    Shape axes;
    for (const char c : order) axes.push_back(f.subscripts.find(c));
    return permute(f.x, axes);
  }

  // Two axes of one subscript become their diagonal: every (n + 1)-th element of both as one axis.
  Factor without_repeats(const Factor& f) const {
    for (std::size_t i = 0; i < f.subscripts.size(); ++i) {
      const char repeated = f.subscripts[i];
      const std::size_t j = f.subscripts.find(repeated, i + 1);
      if (j == Subscripts::npos) continue;
      Shape order;
      Subscripts left;
      for (std::size_t k = 0; k < f.subscripts.size(); ++k)
        if (k != i && k != j) {
          order.push_back(k);
          left += f.subscripts[k];
        }
      order.push_back(i);
      order.push_back(j);
      const std::int64_t n = sizes_[static_cast<int>(repeated)];
      Shape joined = shape_of(left);
      joined.push_back(n * n);
      const Tensor last = reshape(permute(f.x, order), joined);
      return without_repeats({slice(last, -1, 0, n * n, n + 1), left + repeated});
    }
    return f;
  }

  Factor only(Factor f, const Subscripts& needed) const {
    for (const char c : those_in(f.subscripts, needed, false)) {
      const std::size_t axis = f.subscripts.find(c);
      f.x = sum(f.x, static_cast<int>(axis));
      f.subscripts.erase(axis, 1);
    }
    return f;
  }

  std::int64_t sizes_[128];  // by subscript
  SourceLocation where_;
};

}  // namespace

Tensor einsum(std::string_view equation, const Tensors& operands, SourceLocation where) {
  const Equation parts = read(equation);
  const std::vector<Subscripts> terms = subscripts_of(parts, operands, where);
  const Subscripts result = result_of(parts, terms, where);
  const Contraction contraction(terms, operands, where);
  Factor y = contraction.factor(operands[0], terms[0]);
  for (std::size_t i = 1; i < operands.size(); ++i) {
    Subscripts needed = result;
    for (std::size_t later = i + 1; later < operands.size(); ++later) needed += terms[later];
    y = contraction.product(y, contraction.factor(operands[i], terms[i]), needed);
  }
  return contraction.finished(y, result);
}

}  // namespace reel
