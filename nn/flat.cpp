#include "reel/nn/flat.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "reel/core/number_text.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/create.h"

namespace reel::nn {

namespace detail {

namespace {

constexpr std::int64_t kNormChunk = std::int64_t{1} << 20;  // gradients squared at a time, in double

double sum_of_squares(const Array& g) {
  Ops& ops = backend(g.device);
  double total = 0;
  for (std::int64_t begin = 0; begin < g.size; begin += kNormChunk) {
    Array part = g;
    part.data = part.as<char>() + begin * static_cast<std::int64_t>(size_of(g.dtype));
    part.size = part.shape[0] = std::min(kNormChunk, g.size - begin);
    Tensor squares = empty({part.size}, {.dtype = f64, .device = g.device});
    Tensor sum = empty({1}, {.dtype = f64, .device = g.device});
    ops.copy(part, squares.array());
    ops.binary(BinaryOp::mul, {.array = &squares.array()}, {.array = &squares.array()}, squares.array());
    ops.reduce(ReduceOp::sum, squares.array(), sum.array(), nullptr);
    total += sum.item();
  }
  return total;
}

// Calls visit(gradient) for each parameter that an optimiser would change.
template <class F>
void for_each_gradient(const std::vector<Parameter>& parameters, F&& visit) {
  for (const Parameter& parameter : parameters) {
    if (!takes_part(parameter)) continue;
    const reel::detail::ParameterState& state = *parameter.state();
    visit(stretch(state.home->gradients, state.offset, state.offset + parameter.size()));
  }
}

void apply(BinaryOp op, const Array& g, double number) {
  backend(g.device).binary(op, {.array = &g}, {.scalar = number}, g);
}

}  // namespace

Array stretch(const Tensor& flat, std::int64_t low, std::int64_t high) {
  Array array = flat.array();
  array.data = static_cast<char*>(array.data) + low * static_cast<std::int64_t>(size_of(array.dtype));
  array.size = array.shape[0] = high - low;
  return array;
}

std::vector<Parameter> unique(const char* kind, const std::vector<Parameter>& parameters, SourceLocation where) {
  std::vector<Parameter> all;
  std::set<const void*> seen;
  for (const Parameter& parameter : parameters) {
    if (!parameter.defined()) throw Error(std::string(kind) + ": every parameter must be defined", where);
    if (seen.insert(parameter.state().get()).second) all.push_back(parameter);
  }
  return all;
}

std::vector<Parameter> prepared(const char* kind, const std::vector<Parameter>& parameters, SourceLocation where) {
  std::vector<Parameter> all = unique(kind, parameters, where), loose;
  std::copy_if(all.begin(), all.end(), std::back_inserter(loose),
               [](const Parameter& parameter) { return parameter.state()->home == nullptr; });
  if (!loose.empty()) flatten_parameters(loose, where);
  return all;
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::string name = parameters[i].name();
    if (name.empty() || !taken.insert(name).second) name += "#" + std::to_string(i);
    names.push_back(name);
  }
  return names;
}

std::vector<Tensor> on_devices_of(const std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& given) {
  std::vector<Tensor> there;
  for (std::size_t i = 0; i < mine.size(); ++i)
    there.push_back(reel::detail::transferred(given[i].tensor, mine[i].tensor.device()));
  return there;
}

void check_fits(const char* kind, const std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& given,
                SourceLocation where) {
  const std::string what = std::string(kind) + "::load_state: ";
  if (given.size() != mine.size())
    throw Error(what + std::to_string(mine.size()) + " tensors are required, got " + std::to_string(given.size()),
                where);
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (!given[i].tensor.defined() || given[i].name != mine[i].name ||
        !(given[i].tensor.shape() == mine[i].tensor.shape()) || given[i].tensor.dtype() != mine[i].tensor.dtype())
      throw Error(what + mine[i].name + " " + mine[i].tensor.shape().str() + " is required, got " + given[i].name +
                      (given[i].tensor.defined() ? " " + given[i].tensor.shape().str() : ", undefined"),
                  where);
}

double clip_norm(const std::vector<Parameter>& parameters, double max_norm, SourceLocation where) {
  require(max_norm > 0, "clip_grad_norm", "max_norm > 0", reel::detail::number_text(max_norm), where);
  double sum = 0;
  for_each_gradient(parameters, [&](const Array& g) { sum += sum_of_squares(g); });
  const double norm = std::sqrt(sum);
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1) for_each_gradient(parameters, [&](const Array& g) { apply(BinaryOp::mul, g, scale); });
  return norm;
}

}  // namespace detail

double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm, SourceLocation where) {
  return detail::clip_norm(detail::unique("clip_grad_norm", parameters, where), max_norm, where);
}

void clip_grad_value(const std::vector<Parameter>& parameters, double limit, SourceLocation where) {
  detail::require(limit >= 0, "clip_grad_value", "limit >= 0", reel::detail::number_text(limit), where);
  detail::for_each_gradient(detail::unique("clip_grad_value", parameters, where), [&](const Array& g) {
    detail::apply(BinaryOp::minimum, g, limit);
    detail::apply(BinaryOp::maximum, g, -limit);
  });
}

}  // namespace reel::nn
