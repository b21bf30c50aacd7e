// Building a custom op: each call makes another op, with one thing more.

#include <string>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/names.h"
#include "reel/ops/custom_op.h"
#include "reel/ops/custom_op_state.h"

namespace reel {

namespace {

/// The folder of the calling source file, for paths relative to it.
std::string beside(const std::string& path, SourceLocation where) {
  if (!path.empty() && path[0] == '/') return path;
  const std::string source = where.file;
  const std::size_t slash = source.rfind('/');
  return slash == std::string::npos ? path : source.substr(0, slash + 1) + path;
}

void require_function(const std::string& op, const char* call, bool there, SourceLocation where) {
  if (!there) throw Error(op + ": " + call + " needs a function, got an empty one", where);
}

void require_kernel(const std::string& op, const char* kind, const std::string& text, const std::string& kernel,
                    SourceLocation where) {
  if (text.empty()) throw Error(op + ": a kernel needs a " + kind + ", got an empty one", where);
  if (kernel.empty()) throw Error(op + ": a kernel needs a name, got an empty one", where);
}

}  // namespace

CustomOp::CustomOp(std::string name, bool check, SourceLocation where)
    : state_(std::make_shared<detail::CustomOpState>()) {
  if (name.empty()) throw Error("CustomOp: a name is required, which errors and traces tell, got an empty one", where);
  state_->name = detail::interned(name);
  state_->kernel.op = std::move(name);
  state_->check = check;
}

const std::shared_ptr<detail::CustomOpState>& CustomOp::built(SourceLocation where) const {
  if (state_ == nullptr) throw Error("CustomOp: a call of an op that was moved from", where);
  return state_;
}

/// For what builds on: a state that no other op has, and no run knows.
detail::CustomOpState& CustomOp::own() {
  state_ = std::make_shared<detail::CustomOpState>(*built({}));
  state_->kernel.serial = UserKernel().serial;
  return *state_;
}

const std::string& CustomOp::name(SourceLocation where) const { return built(where)->kernel.op; }

CustomOp&& CustomOp::cpu_loop(detail::CpuLoop loop, SourceLocation where) && {
  require_function(name(), ".cpu", loop != nullptr, where);
  own().cpu = std::move(loop);
  return std::move(*this);
}
CustomOp&& CustomOp::cuda(std::string file, std::string kernel, SourceLocation where) && {
  require_kernel(name(), "file", file, kernel, where);
  own().has_cuda = true;
  state_->kernel.text.clear();
  state_->kernel.file = beside(file, where);
  state_->kernel.kernel = std::move(kernel);
  return std::move(*this);
}
CustomOp&& CustomOp::cuda_source(std::string text, std::string kernel, SourceLocation where) && {
  require_kernel(name(), "source text", text, kernel, where);
  own().has_cuda = true;
  state_->kernel.text = std::move(text);
  state_->kernel.file = std::string(where.file) + ":" + std::to_string(where.line);
  state_->kernel.kernel = std::move(kernel);
  return std::move(*this);
}
CustomOp&& CustomOp::include_folder(const std::string& folder, SourceLocation where) && {
  own().kernel.folders.push_back(beside(folder, where));
  return std::move(*this);
}
CustomOp&& CustomOp::option(std::string option) && {
  own().kernel.options.push_back(std::move(option));
  return std::move(*this);
}
CustomOp&& CustomOp::output(std::function<CustomOutput(const Inputs&)> rule, SourceLocation where) && {
  require_function(name(), ".output", rule != nullptr, where);
  own().outputs.push_back(std::move(rule));
  return std::move(*this);
}

using Spread = detail::CustomSpread;

CustomOp&& CustomOp::spread(Spread how, int input, int threads, SourceLocation where) && {
  if (threads < 1 || threads > 1024)
    throw Error(name() + ": a block must have 1 to 1024 threads, got " + std::to_string(threads), where);
  own().spread = how;
  state_->spread_input = input;
  state_->threads = threads;
  return std::move(*this);
}
CustomOp&& CustomOp::by_element(int threads, SourceLocation where) && {
  return std::move(*this).spread(Spread::element, 0, threads, where);
}
CustomOp&& CustomOp::by_row(int input, int threads, SourceLocation where) && {
  return std::move(*this).spread(Spread::row, input, threads, where);
}
CustomOp&& CustomOp::by_sequence(int input, int threads, SourceLocation where) && {
  return std::move(*this).spread(Spread::sequence, input, threads, where);
}
CustomOp&& CustomOp::grid(std::function<KernelGrid(const Inputs&)> rule, SourceLocation where) && {
  require_function(name(), ".grid", rule != nullptr, where);
  own().spread = Spread::given;
  state_->grid = std::move(rule);
  return std::move(*this);
}
CustomOp&& CustomOp::shared_bytes(std::function<std::int64_t(const Inputs&, DType)> rule, SourceLocation where) && {
  require_function(name(), ".shared_bytes", rule != nullptr, where);
  own().shared_bytes = std::move(rule);
  return std::move(*this);
}
CustomOp&& CustomOp::backprop(CustomOp backward) && {
  own().backward_op = backward.built({});
  state_->backward_function = nullptr;
  return std::move(*this);
}
CustomOp&& CustomOp::backprop(std::function<Tensors(const CustomBackward&)> backward, SourceLocation where) && {
  require_function(name(), ".backprop", backward != nullptr, where);
  own().backward_function = std::move(backward);
  state_->backward_op = nullptr;
  return std::move(*this);
}
CustomOp&& CustomOp::check(bool on) && {
  own().check = on;
  return std::move(*this);
}

}  // namespace reel
