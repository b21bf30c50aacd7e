#include "reel/nn/lazy.h"

#include <utility>
#include <vector>

#include "reel/core/error.h"
#include "reel/nn/layer.h"
#include "reel/nn/module_state.h"
#include "reel/ops/create.h"

namespace reel::nn::detail {

namespace {

using reel::detail::ParameterState;

thread_local constinit Sizing* sizing = nullptr;

// Its handles stay what they are: they share the state. Tensors that were read from it before become constants.
void resize(ParameterState& parameter, const Shape& shape) {
  parameter.value.state()->parameter = nullptr;
  parameter.value = zeros(shape, {.dtype = parameter.value.dtype()});
  parameter.value.state()->parameter = &parameter;
}

}  // namespace

/// What a SizingScope has changed so far.
class Sizing {
 public:
  explicit Sizing(const Module& module) : outer_(std::exchange(sizing, this)), module_(module.state()) {
    set_eval(module_);
    for_each_entry(*module_, [&](const std::string&, const Entry& entry) {
      if (entry.child != nullptr) set_eval(entry.child);
    });
  }
  ~Sizing() {
    sizing = outer_;
    for (const auto& [module, training] : training_) module->training = training;
    if (finished_) return;
    for (const Settled& settled : settled_) {
      resize(*settled.weight, settled.before);
      settled.layer->open = true;
    }
  }
  Sizing(const Sizing&) = delete;
  Sizing& operator=(const Sizing&) = delete;

  void settle(const std::shared_ptr<ModuleState>& layer, const Parameter& weight, const Shape& shape) {
    settled_.push_back({layer, weight.state(), weight.shape()});
    resize(*weight.state(), shape);
    layer->open = false;
  }
  void finish(SourceLocation where) {
    require_sizes(*module_, "initialize", where);
    finished_ = true;
  }

 private:
  struct Settled {
    std::shared_ptr<ModuleState> layer;
    std::shared_ptr<ParameterState> weight;
    Shape before;
  };

  void set_eval(const std::shared_ptr<ModuleState>& module) {
    training_.emplace_back(module, std::exchange(module->training, false));
  }

  Sizing* outer_;
  std::shared_ptr<ModuleState> module_;
  std::vector<std::pair<std::shared_ptr<ModuleState>, bool>> training_;
  std::vector<Settled> settled_;
  bool finished_ = false;
};

SizingScope::SizingScope(const Module& module) : sizing_(std::make_unique<Sizing>(module)) {}
SizingScope::~SizingScope() = default;
void SizingScope::finish(SourceLocation where) { sizing_->finish(where); }

void leave_open(const Module& layer) { layer.state()->open = true; }

bool is_open(const Module& layer) { return layer.state()->open; }

void settle(const Module& layer, const Parameter& weight, std::int64_t in, SourceLocation where) {
  const std::string& kind = layer.state()->kind;
  if (sizing == nullptr)
    throw Error(kind + ": a known size is required, got " + weight.shape().str() + " for '" + weight.name() +
                    "', which nn::initialize settles",
                where);
  require_size(kind.c_str(), "in", in, where);
  require(weight.state()->home == nullptr, kind.c_str(), "a weight that nothing uses before its size is known",
          "'" + weight.name() + "'", where);
  Shape shape = weight.shape();
  shape[1] = in;
  sizing->settle(layer.state(), weight, shape);
}

void require_sizes(const ModuleState& module, const char* call, SourceLocation where) {
  const auto check = [&](const std::string& path, const ModuleState& state) {
    if (state.open)
      throw Error(std::string(call) + ": known sizes are required, got " + state.kind + " '" + path +
                      "', whose `in` is open: nn::initialize finds it by a call that reaches the layer",
                  where);
  };
  check("", module);
  for_each_entry(module, [&](const std::string& path, const Entry& entry) {
    if (entry.child != nullptr) check(path, *entry.child);
  });
}

}  // namespace reel::nn::detail
