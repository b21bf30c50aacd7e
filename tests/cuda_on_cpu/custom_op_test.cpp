// Custom ops with kernels, launched on the executor or (REEL_ON_GPU) on a GPU, where NVRTC compiles them; compiling them
// without a GPU is nvrtc_test.cpp's.

#include "reel/ops/custom_op.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reel/core/error.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

#if !defined(REEL_ON_GPU)
#include "reel/tests/cuda_on_cpu/source_kernels.h"
// `extern __shared__` names one array of the block's: here, one of the program's, as blocks run one after the other.
#define __shared__
double custom_shared[1024];
#include "custom_op_kernels.cu"
#endif

namespace reel {
namespace {

const Device kCuda = Device::cuda();
constexpr const char* kFile = "custom_op_kernels.cu";

#if !defined(REEL_ON_GPU)
template <class T>
void register_for(const std::string& type) {
  using cuda_on_cpu::register_kernel;
  register_kernel("pick<" + type + ">", &::pick<T>);
  register_kernel("row_max<" + type + ">", &::row_max<T>);
  register_kernel("sequence_sum<" + type + ">", &::sequence_sum<T>);
  register_kernel("sequence_sum_backward<" + type + ">", &::sequence_sum_backward<T>);
  register_kernel("transpose<" + type + ">", &::transpose<T>);
  register_kernel("twice<" + type + ">", &::twice<T>);
  register_kernel("thrice_backward<" + type + ">", &::thrice_backward<T>);
}

const bool registered = [] {
  register_for<float>("float");
  register_for<double>("double");
  return true;
}();
#endif

Tensor on_cuda(std::initializer_list<double> values, DType dtype = f64) {
  return to(tensor(values, {.dtype = dtype}), kCuda);
}

TEST(CudaCustomOp, ByElementWithNumbersAndIntegers) {
  const CustomOp op = CustomOp("pick")
                          .output([](const Inputs& in) { return CustomOutput{.shape = in.shape(1)}; })
                          .cuda(kFile, "pick<T>")
                          .by_element(32);
  std::vector<std::int64_t> index(1000);
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(i * 7 % 3);
  const Tensor at = to(from_vector(index, {1000}), kCuda);
  for (const DType dtype : {f32, f64}) {
    const std::vector<double> y = op(on_cuda({1, 2, 4}, dtype), at, 0.5, 10).to_vector<double>();
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 10 + (index[i] == 0 ? 0.5 : index[i] == 1 ? 1 : 2));
  }
  EXPECT_EQ(op(on_cuda({1}), zeros({0}, {.dtype = i64, .device = kCuda}), 0.5, 10).size(), 0);
}

TEST(CudaCustomOp, ByRowWithSharedMemoryAndTwoOutputs) {
  const auto rows = [](const Inputs& in) { return Shape{in.shape(0)[0], in.shape(0)[1]}; };
  const CustomOp op = CustomOp("row_max")
                          .output([rows](const Inputs& in) { return CustomOutput{.shape = rows(in)}; })
                          .output([rows](const Inputs& in) { return CustomOutput{.shape = rows(in), .dtype = i64}; })
                          .cuda(kFile, "row_max<T>")
                          .by_row(0, 64)
                          .shared_bytes([](const Inputs&, DType) { return 64 * 16; });
  Generator generator(4);
  const Tensor x = randn({2, 3, 100}, generator);
  const Tensors ys = op.call<Tensors>(to(x, kCuda));
  EXPECT_EQ(ys[0].to_vector<float>(), amax(x, -1).to_vector<float>());
  EXPECT_EQ(ys[1].to_vector<std::int64_t>(), argmax(x, -1).to_vector<std::int64_t>());
}

CustomOp make_sequence_sum(bool check) {
  const auto rows = [](const Inputs& in) {
    Shape shape = in.shape(0);
    shape[0] = static_cast<std::int64_t>(in.offsets(0).size()) - 1;
    return CustomOutput{.shape = shape};
  };
  return CustomOp("sequence_sum", check)
      .output(rows)
      .cuda(kFile, "sequence_sum<T>")
      .by_sequence(0, 32)
      .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
        const auto y = out.get<T>(0), x = std::span<T>(const_cast<T*>(in.get<T>(0).data()), in.get<T>(0).size());
        const auto offsets = in.offsets(0);
        std::fill(y.begin(), y.end(), T(0));
        if (y.empty()) return;
        const std::size_t width = y.size() / (offsets.size() - 1);
        for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
          for (auto r = static_cast<std::size_t>(offsets[s]); r < static_cast<std::size_t>(offsets[s + 1]); ++r)
            for (std::size_t j = 0; j < width; ++j) y[s * width + j] += x[r * width + j];
      })
      .backprop(CustomOp("sequence_sum_backward")
                    .cuda(kFile, "sequence_sum_backward<T>")
                    .by_sequence(1, 32)
                    .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                      const auto offsets = in.offsets(1);
                      const auto dx = out.get<T>(0);
                      if (dx.empty()) return;
                      const std::size_t width = dx.size() / static_cast<std::size_t>(offsets.back());
                      for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
                        for (auto r = static_cast<std::size_t>(offsets[s]);
                             r < static_cast<std::size_t>(offsets[s + 1]); ++r)
                          for (std::size_t j = 0; j < width; ++j) dx[r * width + j] = in.get<T>(0)[s * width + j];
                    }));
}

TEST(CudaCustomOp, BySequenceOfARaggedWithItsGradient) {
  const CustomOp op = make_sequence_sum(true);
  Generator generator(4);
  const Ragged x = Ragged::from_lengths(randn({20, 3}, generator, {.dtype = f64}), {3, 0, 17});
  const Ragged moved = to(x, kCuda);
  Tape tape;
  tape.watch(moved.values());
  const Tensor y = op.call<Tensor>(moved);
  EXPECT_EQ(y.to_vector<double>(), sum(x).to_vector<double>());
  const Tensor dy = randn({3, 3}, generator, {.dtype = f64});
  const Tensor dx = tape.gradient(y, to(dy, kCuda), {moved.values()})[0];
  for (int r = 0; r < 20; ++r)
    EXPECT_EQ(to(dx, Device::cpu())[r].to_vector<double>(), dy[r < 3 ? 0 : 2].to_vector<double>());
  const Ragged none = Ragged::from_lengths(zeros({0, 3}), {});
  EXPECT_EQ(op.call<Tensor>(to(none, kCuda)).shape(), Shape(0, 3));
}

TEST(CudaCustomOp, OnAGridOfItsOwn) {
  const CustomOp op = CustomOp("transpose")
                          .output([](const Inputs& in) {
                            return CustomOutput{.shape = {in.shape(0)[1], in.shape(0)[0]}};
                          })
                          .cuda(kFile, "transpose<T>")
                          .grid([](const Inputs& in) {
                            return KernelGrid{.blocks = (in.shape(0)[1] + 15) / 16,
                                              .blocks_y = (in.shape(0)[0] + 7) / 8,
                                              .threads = 16,
                                              .threads_y = 8};
                          });
  const Tensor x = reshape(arange(35 * 20, {.dtype = f32}), {35, 20});
  EXPECT_EQ(op(to(x, kCuda), 35, 20).to_vector<float>(), contiguous(transpose(x)).to_vector<float>());
  EXPECT_EQ(op(zeros({0, 20}, {.device = kCuda}), 0, 20).shape(), Shape(20, 0));
}

TEST(CudaCustomOp, AGridThatNoGpuTakesIsRefused) {
  KernelGrid grid;
  const CustomOp op = CustomOp("twice").cuda(kFile, "twice<T>").grid([&](const Inputs&) { return grid; });
  for (const KernelGrid& beyond : {KernelGrid{.blocks = (std::int64_t{1} << 32) + 1}, KernelGrid{.blocks_y = 65536},
                                   KernelGrid{.blocks_z = 65536}, KernelGrid{.blocks = -1}}) {
    grid = beyond;
    EXPECT_THROW_WITH(op(on_cuda({1, 2})), DeviceError,
                      "twice: kernel twice<T> must have at most 2147483647 x 65535 x 65535 blocks, got ",
                      std::to_string(beyond.blocks).c_str(), "custom_op_test.cpp:");
  }
}

TEST(CudaCustomOp, WithoutAKernelTheErrorSaysSo) {
  const CustomOp op = CustomOp("cpu_only").cpu([](const CpuContext&, Inputs, Outputs) {});
  EXPECT_THROW_WITH(op(zeros({2}, {.device = kCuda})), DeviceError,
                    "cpu_only: tensors on cuda:0 need a kernel, .cuda(...), which this op was built without",
                    "custom_op_test.cpp:");
}

TEST(CudaCustomOp, DevicesMustAgree) {
  const CustomOp op = CustomOp("pick").cuda(kFile, "pick<T>");
  EXPECT_THROW_WITH(op(zeros({2}, {.device = kCuda}), zeros({2})), DeviceError, "pick: input 1 must be on cuda:0",
                    "got cpu");
}

TEST(CudaCustomOp, AFileThatIsNotThereIsNamed) {
  const CustomOp op = CustomOp("lost").cuda("nowhere.cu", "lost<T>");
  EXPECT_THROW_WITH(op(zeros({2}, {.device = kCuda})), FileError, "lost: the kernel's file must be readable",
                    "beside the program", "tests/cuda_on_cpu/nowhere.cu", "custom_op_test.cpp:");
  const CustomOp folder = CustomOp("folder").cuda("include", "lost<T>");
  EXPECT_THROW_WITH(folder(zeros({2}, {.device = kCuda})), FileError, "folder: the kernel's file must be readable");
}

TEST(CudaCustomOp, AKernelWithOtherParametersIsRefused) {
  const CustomOp op = CustomOp("twice").cuda(kFile, "twice<T>");
  EXPECT_THROW_WITH(op(on_cuda({1}), 0.5), Error,
                    "twice: ", "the kernel must be void twice<double>(long long, const double*, double*, double)");
}

TEST(CudaCustomOp, ATextNeedsNoFile) {
  const CustomOp op = CustomOp("twice").cuda_source(R"(
template <class T> __global__ void twice(long long n, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
})",
                                                    "twice<T>");
  EXPECT_EQ(op(on_cuda({1, 2})).to_vector<double>(), (std::vector<double>{2, 4}));
}

#if !defined(REEL_ON_GPU)
TEST(CudaCustomOp, FoldersAndOptionsReachTheCompiler) {
  const CustomOp op = CustomOp("twice")
                          .cuda(kFile, "twice<T>")
                          .include_folder("include")
                          .include_folder("/opt/x")
                          .option("--use_fast_math");
  op(on_cuda({1, 2}));
  const cuda::KernelSource& source = cuda_on_cpu::last_source();
  const auto ends_with = [](const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
  };
  EXPECT_TRUE(ends_with(source.file, std::string("tests/cuda_on_cpu/") + kFile)) << source.file;
  EXPECT_NE(source.text.find("twice"), source.text.npos);
  ASSERT_EQ(source.folders.size(), 3u);
  EXPECT_TRUE(ends_with(source.folders[0], "tests/cuda_on_cpu")) << source.folders[0];
  EXPECT_TRUE(ends_with(source.folders[1], "tests/cuda_on_cpu/include")) << source.folders[1];
  EXPECT_EQ(source.folders[2], "/opt/x");
  EXPECT_EQ(source.options, std::vector<std::string>{"--use_fast_math"});
}
#endif

// --- the check of the first call ------------------------------------------------------------------------------------------

template <int factor>
CustomOp times_on_cpu(const char* name) {
  return CustomOp(name, true).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    for (std::size_t i = 0; i < out.get<T>(0).size(); ++i) out.get<T>(0)[i] = factor * in.get<T>(0)[i];
  });
}

TEST(CudaCustomOpCheck, AKernelThatIsNotTheLoopIsFound) {
  const CustomOp op = times_on_cpu<3>("thrice").cuda(kFile, "twice<T>");
  EXPECT_THROW_WITH(
      op(on_cuda({1, 2})), Error, "check of the first call",
      "thrice: the kernel must compute what the loop on the CPU does, but its result has 2, not 3, at element 0",
      "custom_op_test.cpp:");
}

TEST(CudaCustomOpCheck, AGradientKernelThatIsNotTheLoopIsFound) {
  const CustomOp op = times_on_cpu<2>("twice")
                          .cuda(kFile, "twice<T>")
                          .backprop(times_on_cpu<2>("twice_backward").cuda(kFile, "thrice_backward<T>"));
  EXPECT_THROW_WITH(op(on_cuda({1, 2}, f32)), Error, "check of the first call", "the gradient of floating input 0 has");
}

TEST(CudaCustomOpCheck, WithoutALoopTheGradientIsCheckedOnTheDevice) {
  const auto make = [](const char* backward) {
    return CustomOp("twice", true).cuda(kFile, "twice<T>").backprop(CustomOp("back").cuda(kFile, backward));
  };
  EXPECT_THROW_WITH(make("thrice_backward<T>")(on_cuda({1, 2})), Error, "twice: backprop must give the gradient");
}

TEST(CudaCustomOpCheck, IsRunOnEachKindOfDevice) {
  const CustomOp op = times_on_cpu<3>("thrice").cuda(kFile, "twice<T>");
  EXPECT_EQ(op(tensor({1, 2})).to_vector<float>(), (std::vector<float>{3, 6}));
  EXPECT_THROW_WITH(op(on_cuda({1, 2})), Error, "check of the first call");
}

}  // namespace
}  // namespace reel
