// What is checked of custom ops: their first calls, and what their users ask for.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/index_text.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/custom_op_state.h"
#include "reel/ops/views.h"

namespace reel::detail {

namespace {

constexpr std::int64_t kMost = 64;   // elements of each input
constexpr double kTolerance = 1e-9;  // between two devices, relative, in f64

/// Lengths of axes before and after the cut. Those of one length are cut alike, for they may belong together.
class Cut {
 public:
  explicit Cut(const CustomCall& call) {
    for (const Tensor& x : call.inputs)
      for (int axis = 0; axis < x.rank(); ++axis) {
        Length& length = of(x.shape()[axis]);
        length.inner = length.inner || axis > 0;
      }
    for (std::size_t i = 0; i < call.inputs.size(); ++i)
      if (call.offsets[i]) cut_sequences(call.inputs[i], *call.offsets[i]);
    for (int axis = 0; axis < kMaxRank; ++axis)
      for (const Tensor& x : call.inputs)
        if (axis < x.rank()) shorten(x, of(x.shape()[axis]));
  }

  Tensor operator()(Tensor x) {
    for (int axis = 0; axis < x.rank(); ++axis) x = narrow(x, axis, 0, of(x.shape()[axis]).kept);
    return x;
  }
  /// The first sequences, as many rows of each as were decided upon. Nothing if that does not go with the other lengths, or
  /// if an inner axis may mean them.
  std::optional<Offsets> operator()(const Offsets& offsets) {
    const Length rows = of(offsets.total()), count = of(offsets.count());
    const bool alike = offsets == *whole_ && rows.kept == cut_->total() && count.kept == cut_->count();
    return alike && !rows.inner && !count.inner ? cut_ : std::nullopt;
  }

 private:
  struct Length {
    std::int64_t whole, kept;
    bool inner;  // of an axis behind the first one
  };
  Length& of(std::int64_t whole) {
    for (Length& length : lengths_)
      if (length.whole == whole) return length;
    lengths_.push_back({whole, whole, false});
    return lengths_.back();
  }

  /// At most kMost elements of x, if this length can see to it.
  void shorten(const Tensor& x, Length& length) {
    const auto elements = [&] {
      std::int64_t n = 1;
      for (const std::int64_t each : x.shape()) n *= std::min(of(each).kept, kMost + 1);
      return n;
    };
    if (elements() > kMost) length.kept = std::min(length.kept, kMost);
    while (length.kept > 1 && elements() > kMost) --length.kept;
  }

  void cut_sequences(const Tensor& values, const Offsets& offsets) {
    if (whole_) return;  // others must be equal
    whole_ = offsets;
    const std::int64_t count = std::min(offsets.count(), kMostSequences);
    const std::int64_t width = offsets.total() > 0 ? values.size() / offsets.total() : 1;
    const std::int64_t rows = std::max<std::int64_t>(1, kMost / std::max<std::int64_t>(width, 1) / kMostSequences);
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < count; ++i) lengths.push_back(std::min(offsets.length(i), rows));
    cut_ = Offsets(lengths);
    of(offsets.count()).kept = cut_->count();
    of(offsets.total()).kept = cut_->total();
  }

  static constexpr std::int64_t kMostSequences = 4;
  std::vector<Length> lengths_;
  std::optional<Offsets> whole_, cut_;
};

bool is_integer(const Scalar& number) { return number.integral; }

/// `call` cut to few elements, or nothing where that may not be. Integers may be sizes, or places in other inputs.
std::optional<CustomCall> cut_of(const CustomCall& call) {
  if (std::any_of(call.numbers.begin(), call.numbers.end(), is_integer)) return std::nullopt;
  bool small = true;
  for (const Tensor& x : call.inputs) {
    if (!is_floating(x.dtype()) && x.dtype() != bool8) return std::nullopt;
    small = small && x.size() <= kMost;
  }
  if (small) return std::nullopt;
  Cut cut(call);
  CustomCall result = call;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    result.inputs[i] = cut(stop_gradient(call.inputs[i]));
    if (call.offsets[i] && !(result.offsets[i] = cut(*call.offsets[i]))) return std::nullopt;
  }
  return result;
}

/// `call` on f64 copies of its inputs on the CPU.
CustomCall copy_of(const CustomCall& call) {
  CustomCall sample = call;
  sample.real = f64;
  sample.device = Device::cpu();
  for (Tensor& x : sample.inputs)
    x = copied(transferred(stop_gradient(x), Device::cpu()), is_floating(x.dtype()) ? f64 : x.dtype());
  return sample;
}

/// What the check is done on: few elements, if the op takes so few.
CustomCall sample_of(const std::shared_ptr<CustomOpState>& op, const CustomCall& call) {
  if (const std::optional<CustomCall> cut = cut_of(call)) {
    const CustomCall sample = copy_of(*cut);
    try {
      joined_outputs(op, sample, call.device)(floating_of(sample.inputs));
      return sample;
    } catch (const Error&) {  // a shape that is required, say
    }
  }
  return copy_of(call);
}

// --- are all outputs written? -------------------------------------------------------------------------------------------

using Bytes = std::vector<unsigned char>;
constexpr unsigned char kFills[2] = {0xa5, 0x5a};

/// Output memory full of one byte; of floating elements NaN with that payload, which sums keep.
Bytes filled(const Array& y, unsigned char fill) {
  const std::size_t size = size_of(y.dtype);
  Bytes bytes(static_cast<std::size_t>(y.size) * size, fill);
  if (is_floating(y.dtype))
    for (std::size_t i = 0; i < bytes.size(); i += size) {  // little-endian: sign and exponent come last
      bytes[i + size - 1] = 0x7f;
      bytes[i + size - 2] = static_cast<unsigned char>(size == 4 ? 0xc0 | (fill & 0x3f) : 0xf8 | (fill & 0x07));
    }
  return bytes;
}

/// Throws Error where the two differ. `what`: the result, the gradient.
void compare(const CustomCall& call, const char* what, const Tensor& cpu, const Tensor& gpu) {
  const std::vector<double> a = cpu.to_vector<double>(), b = gpu.to_vector<double>();
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool both = i < a.size() && i < b.size();
    if (both && (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                 std::abs(a[i] - b[i]) <= kTolerance * std::max(1.0, std::abs(a[i]))))
      continue;
    std::ostringstream text;
    text.precision(12);
    text << call.op->name << ": the kernel must compute what the loop on the CPU does, but " << what << " has ";
    if (both) text << b[i] << ", not " << a[i] << ", at element " << i;
    else text << b.size() << " elements, not " << a.size();
    throw Error(text.str(), call.where);
  }
}

}  // namespace

void execute_verified(const CustomOpState& op, const CustomCall& call) {
  Ops& ops = backend(call.device, call.where);
  std::vector<Bytes> after;  // of each output with the first fill, then of each with the second
  for (const unsigned char fill : kFills) {
    for (const Tensor& y : call.outputs) {
      const Bytes bytes = filled(y.array(), fill);
      ops.from_host(bytes.data(), y.array().data, static_cast<std::int64_t>(bytes.size()));
    }
    execute(op, call);
    for (const Tensor& y : call.outputs) {
      after.emplace_back(static_cast<std::size_t>(y.size()) * size_of(y.dtype()));
      ops.to_host(y.array().data, after.back().data(), static_cast<std::int64_t>(after.back().size()));
    }
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const Array& y = call.outputs[i].array();
    const Bytes before[2] = {filled(y, kFills[0]), filled(y, kFills[1])};
    const std::size_t size = size_of(y.dtype);
    const auto untouched = [&](std::int64_t element, int k) {
      const std::size_t at = static_cast<std::size_t>(element) * size;
      const Bytes& now = after[i + static_cast<std::size_t>(k) * call.outputs.size()];
      return std::memcmp(&before[k][at], &now[at], size) == 0;
    };
    std::int64_t missing = 0, first = 0;
    for (std::int64_t e = y.size - 1; e >= 0; --e) {
      if (!untouched(e, 0) || !untouched(e, 1)) continue;
      ++missing;
      first = e;
    }
    if (missing == 0) continue;
    std::ostringstream text;
    text << op.name << ": every element of output " << i << ", of shape " << y.shape << ", must be written by the "
         << (call.device.is_cpu() ? "loop" : "kernel") << " (memory is not 0 before), got " << missing
         << " that are not, the first at " << index_text(first, y.shape);
    throw Error(text.str(), call.where);
  }
}

std::function<Tensor(const Tensors&)> joined_outputs(const std::shared_ptr<CustomOpState>& op, const CustomCall& call,
                                                     Device device) {
  return [op, call, device](const Tensors& xs) {
    CustomCall next = call;
    next.device = device;
    next.real = f64;
    next.verify = true;
    std::size_t taken = 0;
    for (Tensor& x : next.inputs) x = to(is_floating(x.dtype()) ? xs[taken++] : x, device);
    const CustomResults results = run(op, next, {next.inputs[0]});
    Tensors parts;
    for (const Tensor& y : floating_of(results.tensors)) parts.push_back(to(cast(flatten(y), f64), Device::cpu()));
    if (parts.empty()) return zeros({0}, {.dtype = f64});
    return parts.size() == 1 ? parts[0] : concatenate(parts);
  };
}

bool check_custom(const std::shared_ptr<CustomOpState>& op, const CustomCall& call) {
  const Pause pause;
  const bool has_gradient = op->backward_op || op->backward_function;
  const bool has_twins = op->cpu && op->has_cuda && !call.device.is_cpu();
  if (!has_gradient && !has_twins) return true;
  try {
    const CustomCall sample = sample_of(op, call);
    const Tensors xs = floating_of(sample.inputs);
    const auto here = joined_outputs(op, sample, call.device);
    if (has_twins) {
      const auto on_cpu = joined_outputs(op, sample, Device::cpu());
      const Tensor y = on_cpu(xs);
      compare(call, "its result", y, here(xs));
      if (has_gradient && !xs.empty()) {
        Generator generator(1);
        const Tensor dy = randn(y.shape(), generator, {.dtype = f64});
        const auto gradients = [&](const std::function<Tensor(const Tensors&)>& f) {
          Tape tape;
          for (const Tensor& x : xs) tape.watch(x);
          return tape.gradient(f(xs), dy, xs);
        };
        const Tensors expected = gradients(on_cpu), got = gradients(here);
        for (std::size_t i = 0; i < xs.size(); ++i)
          compare(call, ("the gradient of floating input " + std::to_string(i)).c_str(), expected[i], got[i]);
      }
    }
    if (!has_gradient || xs.empty()) return true;
    const GradcheckReport report = gradcheck(here, xs, {.order = 1}, call.where);
    if (report.failures == report.holes) return report.passed;
    std::ostringstream text;
    text << op->name << ": backprop must give the gradient of the forward, but " << report;
    throw Error(text.str(), call.where);
  } catch (Error& error) {
    error.prepend("check of the first call, in f64 (.check(false) leaves it out)");
    throw;
  }
}

}  // namespace reel::detail

namespace reel {

GradcheckReport CustomOp::gradcheck(const std::vector<CustomArgument>& arguments, const GradcheckOptions& options,
                                    SourceLocation where) const {
  const detail::CustomCall call = detail::custom_call(*built(where), arguments, where);
  Tensors on_cpu;
  for (const Tensor& x : detail::floating_of(call.inputs)) on_cpu.push_back(detail::transferred(x, Device::cpu()));
  return reel::gradcheck(detail::joined_outputs(state_, call, call.device), on_cpu, options, where);
}

}  // namespace reel
