#include "reel/nn/flat.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "reel/core/number_text.h"
#include "reel/core/scratch.h"
#include "reel/nn/layer.h"
#include "reel/nn/optimizer.h"

namespace reel::nn {

namespace detail {

namespace {

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
    while (name.empty() || !taken.insert(name).second) name += "#" + std::to_string(i);
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

double gradient_norm(const std::vector<Parameter>& parameters) {
  const Scratch range_memory(parameters.size() * sizeof(FlatRange)), sum_memory(parameters.size() * sizeof(double));
  FlatRange* const ranges = range_memory.as<FlatRange>();
  double* const sums = sum_memory.as<double>();
  std::int64_t count = 0;  // of ranges in `home`
  const reel::detail::FlatBuffer* home = nullptr;
  double total = 0;
  const auto add = [&] {
    if (count == 0) return;
    const Array& gradients = home->gradients.array();
    backend(gradients.device).sums_of_squares(ranges, count, gradients, sums);
    for (std::int64_t i = 0; i < count; ++i) total += sums[i];
    count = 0;
  };
  for (const Parameter& parameter : parameters) {
    if (!takes_part(parameter)) continue;
    const reel::detail::ParameterState& state = *parameter.state();
    if (state.home.get() != home) add();
    home = state.home.get();
    ranges[count++] = {state.offset, state.offset + parameter.size()};
  }
  add();
  return std::sqrt(total);
}

double clip_scale(double norm, double max_norm) {
  const double scale = max_norm / (norm + 1e-6);
  return scale < 1 ? scale : 1;
}

double clip_norm(const std::vector<Parameter>& parameters, double max_norm, SourceLocation where) {
  require(max_norm > 0, "clip_grad_norm", "max_norm > 0", reel::detail::number_text(max_norm), where);
  const double norm = gradient_norm(parameters), scale = clip_scale(norm, max_norm);
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
