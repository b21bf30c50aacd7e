#include "reel/nn/checkpoint.h"

#include <algorithm>
#include <bit>
#include <map>
#include <typeinfo>
#include <utility>

#include "reel/core/random.h"
#include "reel/core/tape.h"
#include "reel/nn/flat.h"
#include "reel/nn/layer.h"
#include "reel/nn/module_state.h"
#include "reel/nn/safetensors.h"
#include "reel/nn/safetensors_header.h"
#include "reel/ops/create.h"

namespace reel::nn {

namespace {

using safetensors::Entry;
using safetensors::Reader;
using safetensors::shown;

// No module's name begins with it, so that a file of training is also one of its module.
constexpr char kOfTraining = '@';
constexpr const char *kLoad = "nn::load", *kLoadTraining = "nn::load_training";

// Runs a call of the user's; puts its name in front of what the reader or writer says of the file.
template <class F>
auto named(const char* call, SourceLocation where, F&& f) {
  reel::detail::now_running(call, where);
  try {
    return f();
  } catch (FileError& error) {
    error.prepend(call);
    throw;
  }
}

std::vector<NamedTensor> tensors_of(const Module& module, SourceLocation where) {
  detail::require_sizes(*module.state(), reel::detail::running_op().c_str(), where);
  std::vector<NamedTensor> all;
  for (const NamedParameter& named : module.named_parameters(where))
    all.push_back({named.name, named.parameter.value()});
  for (const NamedBuffer& named : module.named_buffers()) all.push_back({named.name, named.buffer.value()});
  return all;
}

std::vector<NamedTensor> prefixed(const std::string& prefix, std::vector<NamedTensor> tensors) {
  for (NamedTensor& named : tensors) named.name = kOfTraining + prefix + named.name;
  return tensors;
}

Tensor random_tensor() {
  const PhiloxState state = random_state();
  return from_vector<std::int64_t>({std::bit_cast<std::int64_t>(state.seed), std::bit_cast<std::int64_t>(state.stream),
                                    std::bit_cast<std::int64_t>(state.counter)});
}

// --- writing ----------------------------------------------------------------------------------------------------------

void write(const std::vector<NamedTensor>& tensors, const std::string& path, const safetensors::Metadata& metadata,
           SourceLocation where) {
  std::vector<Tensor> host;  // keeps what was copied alive
  std::vector<safetensors::Source> sources;
  for (const NamedTensor& named : tensors) {
    Tensor x = reel::detail::transferred(named.tensor, Device::cpu());
    if (!x.is_contiguous()) x = reel::detail::copied(x, x.dtype());
    sources.push_back({named.name, x.dtype(), x.shape(), x.array().data});
    host.push_back(std::move(x));
  }
  safetensors::write(path, sources, metadata, where);
}

// --- reading ----------------------------------------------------------------------------------------------------------

std::string described(DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + " " + shape.str(); }

// What of `wanted` the file has, and what it has besides. Entries of training are nobody's.
LoadReport compare(const Reader& file, const std::vector<NamedTensor>& wanted, bool all_entries) {
  LoadReport report;
  std::map<std::string, bool> known;
  for (const NamedTensor& named : wanted) {
    known[named.name] = true;
    const Entry* entry = file.find(named.name);
    if (entry == nullptr) report.missing.push_back(named.name);
    else if (entry->dtype == named.tensor.dtype() && entry->shape == named.tensor.shape())
      report.loaded.push_back(named.name);
    else
      report.mismatched.push_back(shown(named.name) + " must be " +
                                  described(named.tensor.dtype(), named.tensor.shape()) + ", got " +
                                  described(entry->dtype, entry->shape));
  }
  for (const Entry& entry : file.entries())
    if (!known.contains(entry.name) && (all_entries || entry.name[0] != kOfTraining))
      report.unexpected.push_back(entry.name);
  return report;
}

void append(std::string& text, const char* what, const std::vector<std::string>& names, bool quote) {
  if (names.empty()) return;
  text += std::string("; ") + what;
  for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? " " : ", ") + (quote ? shown(names[i]) : names[i]);
}

void require_all(const LoadReport& report, const std::string& path, SourceLocation where) {
  if (report.missing.empty() && report.unexpected.empty() && report.mismatched.empty()) return;
  std::string text = "'" + path + "': a file with exactly these tensors is required";
  append(text, "missing:", report.missing, true);
  append(text, "unexpected:", report.unexpected, true);
  append(text, "of another kind:", report.mismatched, false);
  throw FileError(text, where);
}

Tensor read(const Reader& file, const std::string& name) {
  const Entry& entry = *file.find(name);
  Tensor x = empty(entry.shape, {.dtype = entry.dtype});
  file.read(entry, x.array().data);
  return x;
}

// All or none: `targets` are refused before the first is written. `call`, a literal, is kept as what wrote them.
void overwrite(const char* call, std::vector<NamedTensor>& targets, const std::vector<Tensor>& values,
               SourceLocation where) {
  std::vector<Tensor> ready;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    reel::detail::refuse_if_taped(targets[i].tensor, call, where);
    ready.push_back(reel::detail::transferred(values[i], targets[i].tensor.device()));
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i].tensor.note_write(call, where);
    backend(ready[i].device()).copy(ready[i].array(), targets[i].tensor.array());
  }
}

}  // namespace

void save(const Module& module, const std::string& path, SourceLocation where) {
  return named("nn::save", where, [&] { write(tensors_of(module, where), path, {{"format", "pt"}}, where); });
}

LoadReport load(Module& module, const std::string& path, LoadOptions options, SourceLocation where) {
  return named(kLoad, where, [&] {
    const Reader file(path, where);
    const std::vector<NamedTensor> all = tensors_of(module, where);
    LoadReport report = compare(file, all, false);
    if (options.strict) require_all(report, path, where);
    std::vector<NamedTensor> targets;
    std::vector<Tensor> values;
    for (const NamedTensor& named : all) {
      const Entry* entry = file.find(named.name);
      if (entry == nullptr || entry->dtype != named.tensor.dtype() || !(entry->shape == named.tensor.shape())) continue;
      targets.push_back(named);
      values.push_back(read(file, named.name));
    }
    overwrite(kLoad, targets, values, where);
    return report;
  });
}

// --- tensors by themselves --------------------------------------------------------------------------------------------

namespace {

void require_defined(const std::vector<NamedTensor>& tensors, const char* kind, SourceLocation where) {
  for (const NamedTensor& named : tensors)
    if (!named.tensor.defined())
      throw Error(reel::detail::running_op() + ": the " + kind + " " + shown(named.name) + " must be defined", where);
}

}  // namespace

void save_tensors(const std::vector<NamedTensor>& tensors, const std::string& path, SourceLocation where) {
  return named("nn::save_tensors", where, [&] {
    require_defined(tensors, "tensor", where);
    write(tensors, path, {{"format", "pt"}}, where);
  });
}

std::vector<NamedTensor> load_tensors(const std::string& path, SourceLocation where) {
  return named("nn::load_tensors", where, [&] {
    const Reader file(path, where);
    std::vector<NamedTensor> tensors;
    for (const Entry& entry : file.entries()) tensors.push_back({entry.name, read(file, entry.name)});
    return tensors;
  });
}

// --- training ---------------------------------------------------------------------------------------------------------

namespace {

// The parameters that the optimiser trains and the module does not have.
std::vector<NamedTensor> others(const Training& training, SourceLocation where) {
  const std::vector<NamedParameter> known = training.module.named_parameters(where);
  std::vector<Parameter> others;
  for (const Parameter& parameter : training.optimizer.parameters())
    if (std::none_of(known.begin(), known.end(),
                     [&](const NamedParameter& named) { return named.parameter == parameter; }))
      others.push_back(parameter);
  const std::vector<std::string> names = detail::names_of(others);
  std::vector<NamedTensor> all;
  for (std::size_t i = 0; i < others.size(); ++i) all.push_back({names[i], others[i].value()});
  return prefixed("parameter.", std::move(all));
}

// In one order for writing and reading: the optimiser's, averages, the rest, the program's own.
struct Parts {
  std::vector<NamedTensor> module, optimizer, ema, rest, own;

  Parts(const Training& training, SourceLocation where)
      : module(tensors_of(training.module, where)),
        optimizer(prefixed("optimizer.", training.optimizer.state())),
        own(prefixed("own.", training.tensors)) {
    require_defined(training.tensors, "program's own tensor", where);
    const std::vector<NamedTensor> more = others(training, where);
    module.insert(module.end(), more.begin(), more.end());
    if (training.ema != nullptr) ema = prefixed("ema.", training.ema->state());
    rest.push_back({"random", random_tensor()});
    if (training.batches != nullptr) rest.push_back({"batches", training.batches->state()});
    rest = prefixed("", std::move(rest));
  }

  std::vector<NamedTensor> all() const {
    std::vector<NamedTensor> together = module;
    for (const auto* part : {&optimizer, &ema, &rest, &own})
      together.insert(together.end(), part->begin(), part->end());
    return together;
  }
};

}  // namespace

void save_training(const Training& training, const std::string& path, SourceLocation where) {
  return named("nn::save_training", where, [&] {
    write(Parts(training, where).all(), path, {{"format", "pt"}, {"optimizer", training.optimizer.kind()}}, where);
  });
}

void load_training(Training& training, const std::string& path, SourceLocation where) {
  return named(kLoadTraining, where, [&] {
    const Reader file(path, where);
    Parts parts(training, where);
    for (NamedTensor& named : parts.own) {
      const Entry* entry = file.find(named.name);
      Shape shape = named.tensor.shape();
      if (entry == nullptr) continue;
      if (shape.rank() > 0 && entry->shape.rank() > 0 && shape[0] == 0) shape[0] = entry->shape[0];
      if (entry->shape == shape && entry->dtype == named.tensor.dtype())
        named.tensor = reel::detail::transferred(read(file, named.name), named.tensor.device());
    }
    require_all(compare(file, parts.all(), true), path, where);
    const auto kind = file.metadata().find("optimizer");
    if (kind == file.metadata().end() || kind->second != training.optimizer.kind())
      throw FileError("'" + path + "': a run with " + training.optimizer.kind() + " is required, got " +
                          (kind == file.metadata().end() ? "none" : shown(kind->second)),
                      where);

    const auto values_of = [&](const std::vector<NamedTensor>& tensors) {
      std::vector<Tensor> values;
      for (const NamedTensor& named : tensors)
        values.push_back(reel::detail::transferred(read(file, named.name), named.tensor.device()));
      return values;
    };
    const std::vector<Tensor> module = values_of(parts.module), rest = values_of(parts.rest);
    const auto filled = [&](std::vector<NamedTensor> state, const std::vector<NamedTensor>& part) {
      const std::vector<Tensor> values = values_of(part);
      for (std::size_t i = 0; i < state.size(); ++i) state[i].tensor = values[i];
      return state;
    };
    const std::vector<NamedTensor> optimizer = filled(training.optimizer.state(), parts.optimizer);
    const std::vector<NamedTensor> ema =
        training.ema != nullptr ? filled(training.ema->state(), parts.ema) : std::vector<NamedTensor>();

    // What of the file does not fit is told with its name.
    const auto believed = [&](auto&& use) {
      try {
        use();
      } catch (const Error& error) {
        if (typeid(error) != typeid(Error)) throw;  // of memory or a device
        throw FileError("'" + path + "': " + error.what());
      }
    };

    // From here on each call either does its part or throws before it has changed anything, and the last ones do not throw.
    if (training.batches != nullptr) believed([&] { training.batches->check_state(rest[1], where); });
    if (training.ema != nullptr) believed([&] { training.ema->check_state(ema, where); });
    for (const NamedTensor& named : parts.module) reel::detail::refuse_if_taped(named.tensor, kLoadTraining, where);
    believed([&] { training.optimizer.load_state(optimizer, where); });
    overwrite(kLoadTraining, parts.module, module, where);
    if (training.ema != nullptr) training.ema->load_state(ema, where);
    if (training.batches != nullptr) training.batches->load_state(rest[1], where);
    const auto random = rest[0].to_vector<std::int64_t>();
    set_random_state({std::bit_cast<std::uint64_t>(random[0]), std::bit_cast<std::uint64_t>(random[1]),
                      std::bit_cast<std::uint64_t>(random[2])});
    for (std::size_t i = 0; i < parts.own.size(); ++i) training.tensors[i].tensor = parts.own[i].tensor;
  });
}

}  // namespace reel::nn
