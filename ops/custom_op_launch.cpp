// A custom op's code is run: its loop, or its kernel with arguments and grid.

#include <string>
#include <string_view>

#include "reel/ops/custom_op_state.h"

namespace reel::detail {

namespace {

using Form = KernelArgument::Form;

std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}

}  // namespace

void launch_custom(const CustomOpState& op, const CustomCall& call) {
  const Inputs in(call);
  KernelLaunch launch;
  launch.real = call.real;
  launch.threads[0] = op.threads;
  CachedVector<KernelArgument> arguments;
  arguments.reserve(2 + 2 * call.inputs.size() + call.outputs.size() + call.numbers.size());
  const auto add_number = [&](Scalar number) {
    if (number.integral) arguments.push_back({Form::number, i64, {.integer = number.integer}});
    else arguments.push_back({Form::number, f64, {.real = number.real}});
  };
  const auto add_array = [&](Form form, DType dtype, const void* elements) {
    arguments.push_back({form, dtype, {.pointer = elements}});
  };

  const std::int64_t n = call.outputs[0].size();
  if (op.spread == CustomSpread::row || op.spread == CustomSpread::sequence) {
    const Shape& shape = in.shape(op.spread_input);
    const int inner = op.spread == CustomSpread::sequence ? 1 : shape.rank() > 0 ? shape.rank() - 1 : 0;
    launch.blocks[0] = op.spread == CustomSpread::sequence
                           ? static_cast<std::int64_t>(in.offsets(op.spread_input).size()) - 1
                           : product(shape, 0, inner);
    add_number(launch.blocks[0]);
    add_number(product(shape, inner, shape.rank()));
  } else {
    launch.blocks[0] = (n + op.threads - 1) / op.threads;
    add_number(n);
  }
  if (op.spread == CustomSpread::given) {
    KernelGrid grid;
    run_users(call, [&] { grid = op.grid(in); });
    const std::int64_t blocks[] = {grid.blocks, grid.blocks_y, grid.blocks_z};
    const int threads[] = {grid.threads, grid.threads_y, grid.threads_z};
    for (int i = 0; i < 3; ++i) {
      launch.blocks[i] = blocks[i];
      launch.threads[i] = threads[i];
    }
  }
  for (const std::int64_t blocks : launch.blocks)
    if (blocks == 0) return;
  if (op.shared_bytes)
    run_users(call, [&] { launch.shared_bytes = static_cast<std::size_t>(op.shared_bytes(in, call.real)); });

  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Array& x = call.inputs[i].array();
    add_array(Form::input, x.dtype, x.data);
    if (call.offsets[i]) add_array(Form::input, i64, call.offsets[i]->segments(call.device).offsets);
  }
  for (const Tensor& y : call.outputs) add_array(Form::output, y.dtype(), y.array().data);
  for (const Scalar& number : call.numbers) add_number(number);
  launch.arguments = arguments.data();
  launch.count = arguments.size();
  launch_kernel(call.device, op.kernel, launch, call.where);
}

std::string told_with(const CustomCall& call, const char* text) {
  return Error(std::string(call.op->name) + ": " + text, call.where).what();
}

void tell_with(const CustomCall& call, Error& error) {
  const std::string_view text = error.what(), op = call.op->name;
  if (text.starts_with(op)) return;
  const bool has_line = text.find(" (at ") != text.npos;
  error.prepend(has_line ? std::string(op) : Error(std::string(op), call.where).what());
}

void execute(const CustomOpState& op, const CustomCall& call) {
  if (!call.device.is_cpu()) return launch_custom(op, call);
  run_users(call, [&] { op.cpu(call.real, CpuContext(), Inputs(call), Outputs(call)); });
}

}  // namespace reel::detail
