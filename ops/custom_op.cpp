#include "reel/ops/custom_op.h"

#include <cmath>
#include <string_view>

#include "reel/core/given_numbers.h"
#include "reel/core/trace_log.h"
#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/custom_op_state.h"

namespace reel {

namespace detail {

namespace {

/// A message of its parts: one call, where a chain of + would be many.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string at(const char* what, int i) { return std::string(what) + " " + std::to_string(i); }

int require_index(const CustomCall& call, const char* what, int i, std::size_t count) {
  if (i < 0 || static_cast<std::size_t>(i) >= count)
    throw IndexError(
        joined({call.op->name, ": ", what, " must be in [0, ", std::to_string(count), "), got ", std::to_string(i)}),
        call.where);
  return i;
}

const Tensor& tensor_at(const CustomCall& call, const char* what, const Tensors& tensors, int i) {
  return tensors[static_cast<std::size_t>(require_index(call, what, i, tensors.size()))];
}

void* elements(const CustomCall& call, const char* what, const Tensor& x, int i, DType dtype) {
  if (x.dtype() != dtype)
    throw DTypeError(joined({call.op->name, ": ", at(what, i), " is ", name_of(x.dtype()), ", but its loop asks for ",
                             name_of(dtype)}),
                     call.where);
  if (!x.device().is_cpu())
    throw DeviceError(joined({call.op->name, ": elements must be on the CPU to be read, got ", x.device().name()}),
                      call.where);
  return x.array().data;
}

}  // namespace

Tensors floating_of(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& x : tensors)
    if (is_floating(x.dtype())) result.push_back(x);
  return result;
}

CustomCall custom_call(const CustomOpState& op, std::span<const CustomArgument> arguments, SourceLocation where) {
  CustomCall call{.op = &op, .where = where};
  bool real_known = false;
  for (const CustomArgument& argument : arguments) {
    if (argument.tensor() == nullptr) {
      call.numbers.push_back(argument.number());
      continue;
    }
    const Tensor& x = *argument.tensor();
    const std::string name = at("input", static_cast<int>(call.inputs.size()));
    check::defined(op.name, name.c_str(), x, where);
    if (call.inputs.empty()) call.device = x.device();
    if (!(x.device() == call.device))
      throw DeviceError(
          joined({op.name, ": ", name, " must be on ", call.device.name(), " like input 0, got ", x.device().name()}),
          where);
    if (is_floating(x.dtype())) {
      check::floating(op.name, name.c_str(), x, where);  // neither bf16 nor f16
      if (real_known && x.dtype() != call.real)
        throw DTypeError(joined({op.name, ": ", name, " must be ", name_of(call.real),
                                 " like the floating inputs before it, got ", name_of(x.dtype())}),
                         where);
      call.real = x.dtype();
      real_known = true;
    }
    call.inputs.push_back(x);
    call.offsets.push_back(argument.ragged() != nullptr ? std::optional(argument.ragged()->offsets()) : std::nullopt);
  }
  if (call.inputs.empty()) throw Error(joined({op.name, ": at least one tensor is required, got none"}), where);
  return call;
}

void require_twin(const CustomOpState& op, Device device, SourceLocation where) {
  if (device.is_cpu() ? op.cpu != nullptr : op.has_cuda) return;
  throw DeviceError(
      joined({op.name, ": tensors on ", device.name(), " need ",
              (device.is_cpu() ? "a loop, .cpu(...)" : "a kernel, .cuda(...)"), ", which this op was built without"}),
      where);
}

CachedVector<std::optional<Offsets>> compute(CustomOpState& op, CustomCall& call, const Tensors& like) {
  if (thread_tape.traced) [[unlikely]]
    trace_start();  // a loop calls no backend
  CustomCall packed_call = call;
  for (Tensor& x : packed_call.inputs) x = packed(x);
  CachedVector<std::optional<Offsets>> offsets;
  const auto add = [&](const Shape& shape, DType dtype) {
    packed_call.outputs.push_back(new_tensor(op.name, shape, {.dtype = dtype, .device = call.device}, call.where));
  };
  if (op.outputs.empty()) {
    for (const Tensor& x : like) add(x.shape(), x.dtype());
    offsets.resize(like.size());
    if (like.size() == 1 && like[0].is(call.inputs[0])) offsets[0] = call.offsets[0];
  }
  for (const auto& rule : op.outputs) {
    CustomOutput output;
    run_users(call, [&] { output = rule(Inputs(packed_call)); });
    add(output.shape, output.dtype.value_or(call.real));
    offsets.emplace_back();
    if (output.offsets_of < 0) continue;
    require_index(call, "offsets_of", output.offsets_of, call.inputs.size());
    offsets.back() = call.offsets[static_cast<std::size_t>(output.offsets_of)];
    if (!offsets.back() || output.shape.rank() == 0 || output.shape[0] != offsets.back()->total())
      throw ShapeError(joined({op.name, ": an output with the offsets of input ", std::to_string(output.offsets_of),
                               " must have its rows, got shape ", output.shape.str()}),
                       call.where);
  }
  std::atomic<bool>& written = op.written[call.device];
  if (call.verify || (op.check && !written.load(std::memory_order_acquire))) {
    execute_verified(op, packed_call);
    written.store(true, std::memory_order_release);
  } else {
    execute(op, packed_call);
  }
  call.outputs = packed_call.outputs;
  return offsets;
}

namespace {

void no_backprop(const CustomOpState& op, SourceLocation where) {
  throw Error(joined({op.name, ": a gradient needs .backprop(...), which this op was built without"}), where);
}

/// What the tape keeps of a call: its gradient, by another op or by a function of ops.
struct CustomGradient {
  std::shared_ptr<CustomOpState> op;
  CustomCall call;

  void operator()(Gradients& g) {
    if (op->backward_function) by_function(g);
    else if (op->backward_op) by_op(g);
    else no_backprop(*op, call.where);
  }

 private:
  void by_function(Gradients& g) {
    const CustomBackward backward{g.dys(), call.inputs, call.outputs, call.numbers, call.offsets, Needed(g)};
    const Tensors dx = op->backward_function(backward);
    g.check_count(dx.size());
    for (std::size_t i = 0; i < dx.size(); ++i) g.add(static_cast<int>(i), dx[i]);
  }

  void by_op(Gradients& g) {
    const auto& backward = op->backward_op;
    CustomCall next{.op = backward.get(),
                    .where = call.where,
                    .numbers = call.numbers,
                    .device = call.device,
                    .real = call.real,
                    .verify = call.verify};
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (!is_floating(call.outputs[i].dtype())) continue;
      const Tensor& dy = g.dy(static_cast<int>(i));
      next.inputs.push_back(dy.defined() ? dy : zeros_like(call.outputs[i]));
    }
    next.offsets.resize(next.inputs.size());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      next.inputs.push_back(call.inputs[i]);
      next.offsets.push_back(call.offsets[i]);
    }
    for (const Tensor& y : call.outputs) next.inputs.push_back(y);
    next.offsets.resize(next.inputs.size());
    const Tensors dx = run(backward, next, floating_of(call.inputs)).tensors;
    std::size_t taken = 0;
    for (std::size_t i = 0; i < call.inputs.size(); ++i)
      if (is_floating(call.inputs[i].dtype()) && taken++ < dx.size()) g.add(static_cast<int>(i), dx[taken - 1]);
    if (taken != dx.size())
      throw Error(joined({backward->name, ": one output per floating input of ", op->name, " is required, ",
                          std::to_string(taken), ", got ", std::to_string(dx.size())}),
                  call.where);
  }
};

}  // namespace

CustomResults run(const std::shared_ptr<CustomOpState>& op, CustomCall call, const Tensors& like) {
  require_twin(*op, call.device, call.where);
  CachedVector<std::optional<Offsets>> offsets = compute(*op, call, like);
  if (taping() && !floating_of(call.outputs).empty()) {
    Tensors saved = call.inputs;
    for (const Tensor& y : call.outputs) saved.push_back(y);
    const Tensors inputs = call.inputs, outputs = call.outputs;
    const GivenNumbers given(call.numbers.data(), call.numbers.size());
    record_list(op->name, call.where, inputs, outputs, saved, CustomGradient{op, call});
  }
  return {call.outputs, std::move(offsets)};
}

}  // namespace detail

// --- what rules and loops see -------------------------------------------------------------------------------------------

int Inputs::size() const { return static_cast<int>(call_.inputs.size()); }
const Shape& Inputs::shape(int i) const { return detail::tensor_at(call_, "input", call_.inputs, i).shape(); }
DType Inputs::dtype(int i) const { return detail::tensor_at(call_, "input", call_.inputs, i).dtype(); }
std::int64_t Inputs::elements(int i) const { return detail::tensor_at(call_, "input", call_.inputs, i).size(); }
const void* Inputs::data(int i, DType dtype) const {
  return detail::elements(call_, "input", detail::tensor_at(call_, "input", call_.inputs, i), i, dtype);
}
bool Inputs::is_ragged(int i) const {
  return call_.offsets[static_cast<std::size_t>(detail::require_index(call_, "input", i, call_.inputs.size()))]
      .has_value();
}
std::span<const std::int64_t> Inputs::offsets(int i) const {
  if (!is_ragged(i))
    throw Error(detail::joined({call_.op->name, ": input ", std::to_string(i), " must be a Ragged to have offsets"}),
                call_.where);
  return call_.offsets[static_cast<std::size_t>(i)]->span();
}
double Inputs::number(int i) const {
  return call_.numbers[static_cast<std::size_t>(detail::require_index(call_, "number", i, call_.numbers.size()))]
      .as<double>();
}
std::int64_t Inputs::integer(int i) const {
  return call_.numbers[static_cast<std::size_t>(detail::require_index(call_, "number", i, call_.numbers.size()))]
      .as<std::int64_t>();
}

void Inputs::require_shape(int i, const Shape& expected) const {
  check::shape(call_.op->name, detail::at("input", i).c_str(), detail::tensor_at(call_, "input", call_.inputs, i),
               expected, call_.where);
}

int Outputs::size() const { return static_cast<int>(call_.outputs.size()); }
const Shape& Outputs::shape(int i) const { return detail::tensor_at(call_, "output", call_.outputs, i).shape(); }
std::int64_t Outputs::elements(int i) const { return detail::tensor_at(call_, "output", call_.outputs, i).size(); }
void* Outputs::data(int i, DType dtype) const {
  return detail::elements(call_, "output", detail::tensor_at(call_, "output", call_.outputs, i), i, dtype);
}

Ragged CustomBackward::ragged(int i) const {
  const auto k = static_cast<std::size_t>(i);
  if (i < 0 || k >= offsets.size() || !offsets[k])
    throw Error(detail::joined({"backprop: input ", std::to_string(i), " must be a Ragged of the call"}));
  return Ragged(in[k], *offsets[k]);
}

double CustomBackward::number(int i) const {
  if (i < 0 || static_cast<std::size_t>(i) >= numbers.size())
    throw IndexError(detail::joined(
        {"backprop: number must be in [0, ", std::to_string(numbers.size()), "), got ", std::to_string(i)}));
  return numbers[static_cast<std::size_t>(i)].as<double>();
}

// --- calling ------------------------------------------------------------------------------------------------------------

detail::CustomResults CustomOp::run(std::initializer_list<CustomArgument> arguments, SourceLocation where) const {
  detail::CustomCall call = detail::custom_call(*built(where), {arguments.begin(), arguments.size()}, where);
  detail::require_twin(*state_, call.device, where);
  if (state_->check) {
    std::atomic<bool>& checked = state_->checked[call.device];
    if (!checked.load(std::memory_order_acquire))
      checked.store(detail::check_custom(state_, call), std::memory_order_release);
  }
  const Tensors like{call.inputs[0]};
  return detail::run(state_, std::move(call), like);
}

Tensor CustomOp::only_tensor(const detail::CustomResults& results, SourceLocation where) const {
  if (results.tensors.size() != 1)
    throw Error(detail::joined({name(), ": a call with one result needs one output, got ",
                                std::to_string(results.tensors.size()), "; take them by call<Tensors>(...)"}),
                where);
  return results.tensors[0];
}

Ragged CustomOp::only_ragged(const detail::CustomResults& results, SourceLocation where) const {
  only_tensor(results, where);
  if (!results.offsets[0])
    throw Error(detail::joined({name(), ": the output is no Ragged: say so by .offsets_of, or call<Tensor>(...)"}),
                where);
  return Ragged(results.tensors[0], *results.offsets[0]);
}

}  // namespace reel
