#pragma once

// Private to ops/: what a CustomOp is inside.

#include <atomic>
#include <string>
#include <utility>

#include "reel/core/user_kernel.h"
#include "reel/core/with_context.h"
#include "reel/ops/custom_op.h"

namespace reel::detail {

/// What has been done on each kind of device. A copy has done nothing.
class DonePerDevice {
 public:
  DonePerDevice() = default;
  DonePerDevice(const DonePerDevice&) {}
  DonePerDevice& operator=(const DonePerDevice&) = delete;
  std::atomic<bool>& operator[](Device device) { return done_[static_cast<int>(device.type)]; }

 private:
  std::atomic<bool> done_[2] = {false, false};
};

struct CustomOpState {
  const char* name;  // interned: the tape keeps it longer than the op may live
  bool check;
  DonePerDevice checked, written;  // the check of the first call; that a first run writes its outputs

  CpuLoop cpu;
  UserKernel kernel;
  bool has_cuda = false;
  std::vector<std::function<CustomOutput(const Inputs&)>> outputs;

  CustomSpread spread = CustomSpread::element;
  int spread_input = 0, threads = 256;
  std::function<KernelGrid(const Inputs&)> grid;
  std::function<std::int64_t(const Inputs&, DType)> shared_bytes;

  std::shared_ptr<CustomOpState> backward_op;
  std::function<Tensors(const CustomBackward&)> backward_function;
};

/// A call from its arguments. Throws Error, DTypeError, DeviceError unless they go together.
CustomCall custom_call(const CustomOpState& op, std::span<const CustomArgument> arguments, SourceLocation where);

/// DeviceError unless the op has code for the device.
void require_twin(const CustomOpState& op, Device device, SourceLocation where);

/// Computes call.outputs, which are like `like` if no rule says otherwise, and gives the offsets of those that are Ragged.
/// Unrecorded. With call.verify, or if the op is checked and this is its first run, throws Error unless it writes them.
CachedVector<std::optional<Offsets>> compute(CustomOpState& op, CustomCall& call, const Tensors& like);

/// compute(), put on the tape.
CustomResults run(const std::shared_ptr<CustomOpState>& op, CustomCall call, const Tensors& like);

/// The op's loop or kernel on call's inputs and outputs, which are contiguous.
void execute(const CustomOpState& op, const CustomCall& call);
/// The text of an error with the op and the line of the call.
std::string told_with(const CustomCall& call, const char* text);
/// The same, unless it begins with the op already.
void tell_with(const CustomCall& call, Error& error);
/// Calls f, the user's code, whose errors are told with the op and the line of the call.
template <class F>
void run_users(const CustomCall& call, F&& f) {
  with_context(
      std::forward<F>(f), [&](Error& error) { tell_with(call, error); },
      [&](const char* text) { return told_with(call, text); });
}
void launch_custom(const CustomOpState& op, const CustomCall& call);
/// The same. Throws Error if an element of an output is not written, or added to as if it were 0.
void execute_verified(const CustomOpState& op, const CustomCall& call);

/// The check of the first call: see CustomOp::check. False: where it was called the op cannot be differentiated; to be
/// looked at again.
bool check_custom(const std::shared_ptr<CustomOpState>& op, const CustomCall& call);

/// `op` on `device` as a function of its floating inputs on the CPU, at the other inputs and numbers of `call`: the floating
/// outputs on the CPU, flat and one behind the other. Each run is verified.
std::function<Tensor(const Tensors&)> joined_outputs(const std::shared_ptr<CustomOpState>& op, const CustomCall& call,
                                                     Device device);
Tensors floating_of(const Tensors& tensors);

}  // namespace reel::detail
