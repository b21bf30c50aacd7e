#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/core/parallel.h"
#include "reel/core/parameter.h"
#include "reel/core/ragged.h"
#include "reel/core/scratch.h"
#include "reel/core/tape.h"
#include "reel/ops/gradcheck.h"

namespace reel {

namespace detail {
/// Takes memory from the tensors' cache, so that a warm step calls malloc no more.
template <class T>
struct CachedAllocator {
  using value_type = T;
  CachedAllocator() = default;
  template <class U>
  CachedAllocator(const CachedAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(host_allocate(n * sizeof(T))); }
  void deallocate(T* memory, std::size_t n) { host_free(memory, n * sizeof(T)); }
  bool operator==(const CachedAllocator&) const { return true; }
};
template <class T>
using CachedVector = std::vector<T, CachedAllocator<T>>;

struct CustomCall;
struct CustomOpState;
struct CustomResults;
enum class CustomSpread : std::uint8_t { element, row, sequence, given };

// Of the program that includes this, not of the library: so it is not inline.
#if defined(NDEBUG)
constexpr bool kCheckCustomOps = false;
#else
constexpr bool kCheckCustomOps = true;
#endif
}  // namespace detail

/// What a custom op was called with: tensors (of a Ragged its values, [total, ...]) and numbers.
class REEL_API Inputs {
 public:
  explicit Inputs(const detail::CustomCall& call) : call_(call) {}

  /// Number of tensors.
  int size() const;
  /// IndexError unless 0 <= i < size(), here and below.
  const Shape& shape(int i) const;
  DType dtype(int i) const;
  /// Number of elements.
  std::int64_t elements(int i) const;
  /// Elements in row-major order. Throws DTypeError unless they are T, DeviceError unless they are on the CPU.
  template <class T>
  std::span<const T> get(int i) const {
    return {static_cast<const T*>(data(i, dtype_of<T>)), static_cast<std::size_t>(elements(i))};
  }
  bool is_ragged(int i) const;
  /// The offsets [n + 1] of a Ragged. Throws Error if input i is none.
  std::span<const std::int64_t> offsets(int i) const;
  /// Number i of the call. Throws IndexError.
  double number(int i) const;
  std::int64_t integer(int i) const;
  /// For rules and loops: throws ShapeError, with the line of the call, unless input i has this shape.
  void require_shape(int i, const Shape& expected) const;

 private:
  const void* data(int i, DType dtype) const;
  const detail::CustomCall& call_;
};

/// What a custom op's loop writes; every element must be written.
class REEL_API Outputs {
 public:
  explicit Outputs(const detail::CustomCall& call) : call_(call) {}

  int size() const;
  const Shape& shape(int i) const;
  std::int64_t elements(int i) const;
  /// Throws DTypeError unless the elements are T.
  template <class T>
  std::span<T> get(int i) const {
    return {static_cast<T*>(data(i, dtype_of<T>)), static_cast<std::size_t>(elements(i))};
  }

 private:
  void* data(int i, DType dtype) const;
  const detail::CustomCall& call_;
};

/// What a loop on the CPU may use.
struct CpuContext {
  /// f(begin, end) for parts of [0, count), on several threads: cut by size, so that results do not depend on their number.
  /// chunk: how many make it worth a thread's while.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t chunk, F&& f) const {
    reel::parallel_for(count, chunk, std::forward<F>(f));
  }
  /// For a few operations each.
  template <class F>
  void parallel_for(std::int64_t count, F&& f) const {
    parallel_for(count, 16384, std::forward<F>(f));
  }
};

/// One output. Without a dtype it has that of the floating inputs; with `offsets_of` it is a Ragged with the offsets of that
/// input.
struct CustomOutput {
  Shape shape;
  std::optional<DType> dtype = {};
  int offsets_of = -1;
};

/// How a kernel is spread over the GPU.
struct KernelGrid {
  std::int64_t blocks = 1, blocks_y = 1, blocks_z = 1;
  int threads = 256, threads_y = 1, threads_z = 1;
};

/// What a backprop lambda gets: gradients of the outputs, and what the op was called with. A gradient is undefined where that
/// output was not used; of a Ragged it has the shape of the values.
struct REEL_API CustomBackward {
  Tensors dy, in, out;
  std::span<const Scalar> numbers;
  std::span<const std::optional<Offsets>> offsets;  // of each input, if it is a Ragged
  Needed needed;

  /// Input i as it was given. Throws Error unless that was a Ragged.
  Ragged ragged(int i) const;
  /// Number i of the call. Throws IndexError.
  double number(int i) const;
};

/// An argument of a custom op: a tensor, a Ragged or a number, with the line of the call.
class REEL_API CustomArgument {
 public:
  CustomArgument(const Tensor& tensor, SourceLocation where = SourceLocation::current())
      : tensor_(&tensor), where_(where) {}
  CustomArgument(const Parameter& parameter, SourceLocation where = SourceLocation::current())
      : tensor_(&parameter.value()), where_(where) {}
  CustomArgument(const Ragged& ragged, SourceLocation where = SourceLocation::current())
      : tensor_(&ragged.values()), ragged_(&ragged), where_(where) {}
  template <class N>
  requires std::is_arithmetic_v<N> CustomArgument(N number, SourceLocation where = SourceLocation::current())
      : number_(number), where_(where) {}

  const Tensor* tensor() const { return tensor_; }
  const Ragged* ragged() const { return ragged_; }
  Scalar number() const { return number_; }
  SourceLocation where() const { return where_; }

 private:
  const Tensor* tensor_ = nullptr;
  const Ragged* ragged_ = nullptr;
  Scalar number_ = {};
  SourceLocation where_;
};

namespace detail {

struct CustomTensorArgument : CustomArgument {
  CustomTensorArgument(const Tensor& tensor, SourceLocation where = SourceLocation::current())
      : CustomArgument(tensor, where) {}
  CustomTensorArgument(const Parameter& parameter, SourceLocation where = SourceLocation::current())
      : CustomArgument(parameter, where) {}
};
struct CustomRaggedArgument : CustomArgument {
  CustomRaggedArgument(const Ragged& ragged, SourceLocation where = SourceLocation::current())
      : CustomArgument(ragged, where) {}
};

/// Inputs, then outputs; on the way to a kernel, contiguous.
struct CustomCall {
  const CustomOpState* op = nullptr;
  SourceLocation where = {};
  Tensors inputs = {}, outputs = {};
  CachedVector<std::optional<Offsets>> offsets = {};  // of each input
  CachedVector<Scalar> numbers = {};
  Device device = {};
  DType real = f32;     // of the floating inputs
  bool verify = false;  // that all outputs are written
};

struct CustomResults {
  Tensors tensors;
  CachedVector<std::optional<Offsets>> offsets;
};

using CpuLoop = std::function<void(DType real, const CpuContext& cpu, Inputs in, Outputs out)>;

}  // namespace detail

/// An op of the user's own, with a loop for the CPU and a kernel for GPUs: docs/custom-ops.md. Built in one expression and
/// immutable from then on: CustomOp(op).cpu(...) is another op. Kernels are compiled when they are first launched. Throws
/// Error if it was moved from, here and below.
///
/// Called with tensors (Tensor, Parameter or Ragged, on one device, the floating ones of one dtype) and numbers.
class REEL_API CustomOp {
 public:
  static constexpr bool kTakesLine = true;  // a call may end with the user's line (core/call_at.h)
  /// `check`: see check(). Throws Error if the name is empty.
  explicit CustomOp(std::string name, bool check = detail::kCheckCustomOps,
                    SourceLocation where = SourceLocation::current());

  /// The loop for tensors on the CPU: f(const CpuContext&, Inputs, Outputs), or a template of the floating type,
  /// []<class T>(const CpuContext&, Inputs, Outputs), which is called for float and for double. Throws Error if it is a
  /// std::function or a pointer without a function.
  template <class F>
  CustomOp&& cpu(F f, SourceLocation where = SourceLocation::current()) && {
    if constexpr (std::is_constructible_v<F, std::nullptr_t>)
      if (f == nullptr) return std::move(*this).cpu_loop(nullptr, where);
    return std::move(*this).cpu_loop(
        [f](DType real, const CpuContext& cpu, Inputs in, Outputs out) {
          if constexpr (std::is_invocable_v<const F&, const CpuContext&, Inputs, Outputs>) f(cpu, in, out);
          else if (real == DType::f32) f.template operator()<float>(cpu, in, out);
          else f.template operator()<double>(cpu, in, out);
        },
        where);
  }

  /// The kernel for tensors on a GPU: a __global__ function of a file, whose path is relative to the folder of the calling
  /// source file; one that is not there (any more) is looked for beside the program. In the kernel's name T stands for the
  /// floating type: "cube<T>" is cube<float> or cube<double>. It gets
  ///   size(s), inputs..., outputs..., numbers...
  /// sizes as by_element, by_row, ... say, long long; a tensor as a pointer to its contiguous elements, an input that is a
  /// Ragged as two: values and long long offsets [n + 1]; numbers as double or long long. A kernel with other parameters
  /// does not compile. Throws Error, here and below, if one of the two strings is empty.
  CustomOp&& cuda(std::string file, std::string kernel, SourceLocation where = SourceLocation::current()) &&;
  /// The same, of a source text.
  CustomOp&& cuda_source(std::string text, std::string kernel, SourceLocation where = SourceLocation::current()) &&;
  /// Where the kernel's headers are, relative as above. That of the file itself is known.
  CustomOp&& include_folder(const std::string& folder, SourceLocation where = SourceLocation::current()) &&;
  /// For NVRTC, as "--use_fast_math". Reel's own are --std=c++20 and --fmad=false.
  CustomOp&& option(std::string option) &&;

  /// The next output; without any rule there is one that is like input 0 (for the backprop of another op: one like each of
  /// its floating inputs). Throws Error, like all that take a function, if there is none in it.
  CustomOp&& output(std::function<CustomOutput(const Inputs& in)> rule,
                    SourceLocation where = SourceLocation::current()) &&;

  /// A thread for each of the n elements of output 0; the size is n. The default. Throws Error, here and below, unless
  /// blocks have 1 to 1024 threads.
  CustomOp&& by_element(int threads = 256, SourceLocation where = SourceLocation::current()) &&;
  /// A block for each row, along the last axis, of an input; sizes: rows and their length.
  CustomOp&& by_row(int input = 0, int threads = 256, SourceLocation where = SourceLocation::current()) &&;
  /// A block for each sequence of a Ragged; sizes: the number of sequences, and of elements of a row [1, ...] of values.
  CustomOp&& by_sequence(int input = 0, int threads = 256, SourceLocation where = SourceLocation::current()) &&;
  /// Any other grid; the size is the number of elements of output 0. No blocks, no launch.
  CustomOp&& grid(std::function<KernelGrid(const Inputs& in)> rule,
                  SourceLocation where = SourceLocation::current()) &&;
  /// Dynamic shared memory, in bytes. `real` is the floating type.
  CustomOp&& shared_bytes(std::function<std::int64_t(const Inputs& in, DType real)> rule,
                          SourceLocation where = SourceLocation::current()) &&;

  /// The gradient by another custom op. Its inputs: the gradients of the floating outputs (zeros where one was not used), the
  /// inputs, the outputs; of these only the inputs are Ragged. Its outputs: a gradient for each floating input. It gets the
  /// numbers too. If it has a backprop itself, there are second derivatives.
  CustomOp&& backprop(CustomOp backward) &&;
  /// The gradient by a function of ops: one per input, undefined for none. Of any order if the ops are.
  CustomOp&& backprop(std::function<Tensors(const CustomBackward& g)> backward,
                      SourceLocation where = SourceLocation::current()) &&;

  /// On: the first call on each kind of device checks the op in f64, on copies of its inputs: the gradient against
  /// differences, and the kernel against the CPU's loop; and its first run, that every element of the outputs is written.
  /// What is wrong is thrown as Error. The copies are cut to at most 64 elements each, axes of one length alike, unless
  /// there are integers among the inputs or numbers, which may be sizes or places in them, or the rules refuse it: a length
  /// that the code relies on must be required by a rule. Where the op is not differentiable, or not finite, it is checked
  /// at the next call. In debug builds (without NDEBUG) it is on.
  CustomOp&& check(bool on) &&;

  /// Computes and records; one output. Throws Error if the op has no code for the device; what the shape rules and gradcheck
  /// throw. Backward keeps inputs and outputs.
  template <class... Rest>
  requires(std::is_constructible_v<CustomArgument, const Rest&, SourceLocation>&&...) Tensor operator()(
      const detail::CustomTensorArgument& first, const Rest&... rest) const {
    return call<Tensor>(first, rest...);
  }
  /// The same, for an output that is a Ragged.
  template <class... Rest>
  requires(std::is_constructible_v<CustomArgument, const Rest&, SourceLocation>&&...) Ragged operator()(
      const detail::CustomRaggedArgument& first, const Rest&... rest) const {
    return call<Ragged>(first, rest...);
  }
  /// For who calls it with somebody else's line, as pullback does.
  Tensor operator()(const Tensor& x, SourceLocation where) const { return call<Tensor>(CustomArgument(x, where)); }
  Ragged operator()(const Ragged& x, SourceLocation where) const { return call<Ragged>(CustomArgument(x, where)); }
  /// Says what the result is: Tensor or Ragged for one output, Tensors for any number.
  template <class Result, class... Rest>
  Result call(const CustomArgument& first, const Rest&... rest) const {
    const detail::CustomResults results = run({first, CustomArgument(rest, first.where())...}, first.where());
    if constexpr (std::is_same_v<Result, Tensors>) return results.tensors;
    else if constexpr (std::is_same_v<Result, Ragged>) return only_ragged(results, first.where());
    else return only_tensor(results, first.where());
  }

  /// gradcheck of this op at the arguments of a call, {x, ragged, 0.5}, on any device; the differences are taken on the CPU,
  /// several outputs are joined. Throws Error if an element of an output is not written.
  GradcheckReport gradcheck(const std::vector<CustomArgument>& arguments, const GradcheckOptions& options = {},
                            SourceLocation where = SourceLocation::current()) const;
  /// The same for a list of tensors.
  template <std::same_as<Tensors> List>
  GradcheckReport gradcheck(const List& inputs, const GradcheckOptions& options = {},
                            SourceLocation where = SourceLocation::current()) const {
    std::vector<CustomArgument> arguments;
    for (const Tensor& x : inputs) arguments.emplace_back(x, where);
    return gradcheck(arguments, options, where);
  }

  const std::string& name(SourceLocation where = SourceLocation::current()) const;

 private:
  detail::CustomOpState& own();
  const std::shared_ptr<detail::CustomOpState>& built(SourceLocation where) const;
  CustomOp&& cpu_loop(detail::CpuLoop loop, SourceLocation where) &&;
  CustomOp&& spread(detail::CustomSpread how, int input, int threads, SourceLocation where) &&;
  detail::CustomResults run(std::initializer_list<CustomArgument> arguments, SourceLocation where) const;
  Tensor only_tensor(const detail::CustomResults& results, SourceLocation where) const;
  Ragged only_ragged(const detail::CustomResults& results, SourceLocation where) const;

  std::shared_ptr<detail::CustomOpState> state_;
};

}  // namespace reel
