// Custom ops on a GPU: the kernel's source, arguments and grid.

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "reel/core/error.h"
#include "reel/ops/custom_op_state.h"

namespace reel::detail {

namespace {

const char* cuda_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i32:
      return "int";
    case DType::i64:
      return "long long";
    case DType::u8:
      return "unsigned char";
    case DType::bool8:
      break;
  }
  return "bool";
}

/// The kernel's name with the floating type for T.
std::string instance_of(const std::string& kernel, DType real) {
  const auto in_name = [&](std::size_t i) {
    return i < kernel.size() && (std::isalnum(static_cast<unsigned char>(kernel[i])) != 0 || kernel[i] == '_');
  };
  std::string name;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] == 'T' && !in_name(i + 1) && (i == 0 || !in_name(i - 1))) name += cuda_name(real);
    else name += kernel[i];
  }
  return name;
}

namespace fs = std::filesystem;

/// Where a path that stands in the program leads at run time. Compilers may write sources' paths relative to the folder that
/// they run in, in which or above which the program lies; and a program may be elsewhere than its sources.
std::string found(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return path;
  if (path[0] != '/')
    for (fs::path folder = program; folder.has_relative_path(); folder = folder.parent_path())
      if (fs::exists(folder / path, error)) return (folder / path).lexically_normal();
  const fs::path beside = program / fs::path(path).filename();
  return fs::exists(beside, error) ? beside.string() : path;
}

/// Reads the kernel's file, once.
void read_source(CustomOpState& op, SourceLocation where) {
  op.source.file = found(op.source.file);
  std::ifstream in(op.source.file, std::ios::binary);
  op.source.text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  if (!in || op.source.text.empty())
    throw FileError(std::string(op.name) + ": the kernel's file must be readable and not empty, there or beside the " +
                        "program, got " + op.source.file,
                    where);
}

/// The arguments of a launch: their values, and their types.
class Arguments {
 public:
  void add(const void* elements, DType dtype, bool is_input) {
    push({.pointer = elements}, dtype, is_input ? Form::input : Form::output);
  }
  void add(const Tensor& x, bool is_input) { add(x.array().data, x.dtype(), is_input); }
  void add(std::int64_t number) { push({.integer = number}, i64, Form::number); }
  void add(Scalar number) {
    if (number.integral) add(number.integer);
    else push({.real = number.real}, f64, Form::number);
  }

  /// As CUDA's code spells them: "long long, const float*, float*".
  std::string types() const {
    std::string text;
    for (const auto& [dtype, form] : types_)
      text += (text.empty() ? "" : ", ") + std::string(form == Form::input ? "const " : "") + cuda_name(dtype) +
              (form == Form::number ? "" : "*");
    return text;
  }
  /// Tells lists of types apart.
  std::uint64_t key() const {
    std::uint64_t key = 0xcbf29ce484222325u;
    for (const auto& [dtype, form] : types_)
      key = (key ^ (static_cast<std::uint64_t>(dtype) * 4 + static_cast<std::uint64_t>(form))) * 0x100000001b3u;
    return key;
  }
  CachedVector<void*> addresses() {
    CachedVector<void*> result;
    for (Value& value : values_) result.push_back(&value);
    return result;
  }

 private:
  union Value {
    const void* pointer;
    std::int64_t integer;
    double real;
  };
  enum class Form : std::uint8_t { input, output, number };
  void push(Value value, DType dtype, Form form) {
    values_.push_back(value);
    types_.emplace_back(dtype, form);
  }
  CachedVector<Value> values_;
  CachedVector<std::pair<DType, Form>> types_;
};

/// The op's kernel for these types; read and named once.
const KernelSource& source_of(CustomOpState& op, const CustomCall& call, const Arguments& arguments) {
  const std::lock_guard lock(op.sources_mutex);
  std::unique_ptr<KernelSource>& source = op.sources[arguments.key() * 2 + (call.real == f64 ? 1 : 0)];
  if (source == nullptr) {
    if (op.source.text.empty()) read_source(op, call.where);
    auto made = std::make_unique<KernelSource>();
    made->op = op.name;
    made->text = op.source.text;
    made->file = op.source.file;
    made->kernel = instance_of(op.source.kernel, call.real);
    made->parameters = arguments.types();
    if (!op.text_given) made->folders.push_back(fs::absolute(op.source.file).parent_path().string());
    for (const std::string& folder : op.source.folders) made->folders.push_back(found(folder));
    made->options = op.source.options;
    source = std::move(made);
  }
  return *source;
}

}  // namespace

void launch_custom(CustomOpState& op, const CustomCall& call) {
  const Inputs in(call);
  Arguments arguments;
  KernelLaunch launch;
  launch.threads[0] = op.threads;
  switch (op.spread) {
    case CustomSpread::element:
    case CustomSpread::given: {
      const std::int64_t n = call.outputs[0].size();
      arguments.add(n);
      launch.blocks[0] = (n + op.threads - 1) / op.threads;
      break;
    }
    case CustomSpread::row: {
      const Shape& shape = in.shape(op.spread_input);
      const std::int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
      std::int64_t rows = 1;
      for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
      arguments.add(rows);
      arguments.add(width);
      launch.blocks[0] = rows;
      break;
    }
    case CustomSpread::sequence: {
      const std::int64_t count = static_cast<std::int64_t>(in.offsets(op.spread_input).size()) - 1;
      const Shape& shape = in.shape(op.spread_input);
      std::int64_t width = 1;
      for (int i = 1; i < shape.rank(); ++i) width *= shape[i];
      arguments.add(count);
      arguments.add(width);
      launch.blocks[0] = count;
      break;
    }
  }
  if (op.spread == CustomSpread::given) {
    const KernelGrid grid = op.grid(in);
    launch = {{grid.blocks, grid.blocks_y, grid.blocks_z}, {grid.threads, grid.threads_y, grid.threads_z}, 0, nullptr};
  }
  for (const std::int64_t blocks : launch.blocks)
    if (blocks == 0) return;
  if (op.shared_bytes) launch.shared_bytes = static_cast<std::size_t>(op.shared_bytes(in, call.real));

  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    arguments.add(call.inputs[i], true);
    if (call.offsets[i]) arguments.add(call.offsets[i]->segments(call.device).offsets, DType::i64, true);
  }
  for (const Tensor& y : call.outputs) arguments.add(y, false);
  for (const Scalar& number : call.numbers) arguments.add(number);
  CachedVector<void*> addresses = arguments.addresses();
  launch.arguments = addresses.data();
  launch_kernel(call.device, source_of(op, call, arguments), launch, call.where);
}

}  // namespace reel::detail
