// Users' kernels compiled by NVRTC for a GPU that need not be there, and kept on the disk.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "reel/backends/cuda/kernel_cache.h"
#include "reel/tests/error_of.h"
#include "reel/tests/expect.h"
#include "reel/tests/page.h"

namespace reel::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int kHopper = 90;
const SourceLocation kHere = {"user.cpp", 7};

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/reel-nvrtc-XXXXXX";
    folder_ = mkdtemp(name);
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    forget_kernels();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<fs::path> cached() {
    std::vector<fs::path> files;
    const fs::path kernels = folder_ / "cache" / "reel" / "kernels";
    if (fs::exists(kernels))
      for (const auto& entry : fs::directory_iterator(kernels)) files.push_back(entry.path());
    return files;
  }

  KernelSource source(const std::string& text, const std::string& kernel, const std::string& parameters) {
    KernelSource s;
    s.op = "my_op";
    s.text = text;
    s.file = folder_ / "my_kernels.cu";
    s.folders = {folder_};
    s.kernel = kernel;
    s.parameters = parameters;
    return s;
  }
  KernelSource example(const std::string& file, const std::string& kernel, const std::string& parameters) {
    return source(read(fs::path(REEL_SOURCE_DIR) / "examples" / file), kernel, parameters);
  }

  fs::path folder_;
};

constexpr const char* kScale = R"(
template <class T> __global__ void scale(long long n, const T* x, T* y, double by) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * T(by);
}
)";
constexpr const char* kScaleFloat = "long long, const float*, float*, double";

/// Whether this is an ELF file of machine code for NVIDIA's GPUs that has such a symbol.
void expect_cubin(const CompiledKernel& kernel) {
  ASSERT_GT(kernel.image.size(), 64u);
  EXPECT_EQ(kernel.image.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(static_cast<unsigned char>(kernel.image[18]), 190);  // EM_CUDA
  EXPECT_NE(kernel.image.find(".text." + kernel.name), std::string::npos) << kernel.name;
}

TEST_F(NvrtcTest, CompilesTemplatesForFloatAndDouble) {
  const auto f = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere);
  const auto d =
      compiled_kernel(source(kScale, "scale<double>", "long long, const double*, double*, double"), kHopper, kHere);
  expect_cubin(*f);
  expect_cubin(*d);
  EXPECT_NE(f->name, d->name);
  EXPECT_NE(f->image, d->image);
}

TEST_F(NvrtcTest, CompilesTheExamples) {
  for (const std::string t : {"float", "double"}) {
    const std::string in = ", const " + t + "*", out = ", " + t + "*";
    expect_cubin(*compiled_kernel(example("ricker.cu", "ricker<" + t + ">", "long long" + in + out), kHopper, kHere));
    expect_cubin(*compiled_kernel(example("ricker.cu", "ricker_backward<" + t + ">", "long long" + in + in + in + out),
                                  kHopper, kHere));
    expect_cubin(*compiled_kernel(example("coulomb.cu", "coulomb<" + t + ">", "long long, long long" + in + out),
                                  kHopper, kHere));
    expect_cubin(*compiled_kernel(
        example("coulomb.cu", "coulomb_backward<" + t + ">", "long long, long long" + in + in + in + out), kHopper,
        kHere));
  }
}

TEST_F(NvrtcTest, CompilesTheKernelsThatTheExecutorRuns) {
  const std::string text = read(fs::path(REEL_SOURCE_DIR) / "tests/cuda_on_cpu/custom_op_kernels.cu");
  const std::string n = "long long", in = ", const float*", index = ", const long long*", out = ", float*";
  const std::pair<const char*, std::string> kernels[] = {
      {"pick<float>", n + in + index + out + ", double, long long"},
      {"row_max<float>", n + ", long long" + in + out + ", long long*"},
      {"sequence_sum<float>", n + ", long long" + in + index + out},
      {"sequence_sum_backward<float>", n + ", long long" + in + in + index + in + out},
      {"transpose<float>", n + in + out + ", long long, long long"},
      {"twice<float>", n + in + out},
      {"thrice_backward<float>", n + in + in + in + out}};
  for (const auto& [kernel, parameters] : kernels)
    expect_cubin(*compiled_kernel(source(text, kernel, parameters), kHopper, kHere));
}

TEST_F(NvrtcTest, TakesKernelsThatAreNoTemplates) {
  const auto kernel = compiled_kernel(
      source("extern \"C\" __global__ void plain(long n, const int* x, bool* y) { if (n > 0) *y = *x; }", "plain",
             "long long, const int*, bool*"),
      kHopper, kHere);
  expect_cubin(*kernel);
  EXPECT_EQ(kernel->name, "plain");
}

TEST_F(NvrtcTest, AnErrorGivesFileLineAndTheCompilersLog) {
  EXPECT_THROW_WITH(compiled_kernel(source("\n\n__global__ void bad(long long n) { unknown(n); }", "bad", "long long"),
                                    kHopper, kHere),
                    Error, "my_op: kernel bad must compile with NVRTC ", "sm_90", "my_kernels.cu(3): error:", "unknown",
                    "user.cpp:7");
}

TEST_F(NvrtcTest, ThePagesShowWhatIsThrown) {
  const auto expect_shown = [](const KernelSource& s, const std::string& page, std::size_t at) {
    const std::string text = error_of([&] { compiled_kernel(s, kHopper, kHere); });
    const std::string expected = between(page, "```text\n", "\n```\n", at);
    EXPECT_TRUE(reads(text, expected)) << "the page says:\n" << expected << "\nthrown is:\n" << text;
  };
  const std::string errors = contents(REEL_SOURCE_DIR "/docs/errors.md");
  const std::pair<const char*, const char*> examples[] = {
      {"A kernel that does not compile", "long long, const float*, float*"},
      {"A kernel with other parameters", "long long, const float*, const float*, float*"}};
  for (const auto& [title, parameters] : examples) {
    const std::size_t at = errors.find("\n### " + std::string(title) + "\n");
    KernelSource s = source(between(errors, "```cuda\n", "```\n", at), "scale<float>", parameters);
    s.op = "scale";
    s.file = "scale.cu";
    expect_shown(s, errors, at);
  }
  const std::string custom = contents(REEL_SOURCE_DIR "/docs/custom-ops.md");
  KernelSource s = source("\n\n__global__ void bad(long long n) { unknown(n); }", "bad", "long long");
  s.file = "/home/me/my_kernels.cu";
  expect_shown(s, custom, custom.find("An error in a kernel reads like"));
}

TEST_F(NvrtcTest, ParametersThatTheLaunchDoesNotPassAreRefused) {
  const char* const cases[][2] = {
      {"long long, const float*, float*, long long", "an integer for a double"},
      {"long long, const double*, float*, double", "another element type"},
      {"long long, const float*, const float*, double", "an output that is an input"},
      {"long long, const float*, float*", "too few"},
      {"long long, const float*, float*, double, double", "too many"},
      {"int, const float*, float*, double", "another integer"},
  };
  for (const auto& [parameters, what] : cases) {
    SCOPED_TRACE(what);
    const std::string words = std::string("the kernel must be void scale<float>(") + parameters + ")";
    EXPECT_THROW_WITH(compiled_kernel(source(kScale, "scale<float>", parameters), kHopper, kHere), Error,
                      words.c_str());
  }
}

TEST_F(NvrtcTest, AKernelThatIsNotThereIsNamed) {
  EXPECT_THROW_WITH(compiled_kernel(source(kScale, "shrink<float>", kScaleFloat), kHopper, kHere), Error, "shrink");
}

TEST_F(NvrtcTest, FmaIsWhereItIsWrittenUnlessAskedFor) {
  const auto options = [](const KernelSource& s) {
    std::string all;
    for (const std::string& option : Nvrtc::get(kHere).options(s, kHopper)) all += option + " ";
    return all;
  };
  KernelSource s = source(kScale, "scale<float>", kScaleFloat);
  EXPECT_NE(options(s).find("--fmad=false"), std::string::npos);
  s.options = {"--fmad=true"};
  EXPECT_EQ(options(s).find("--fmad=false"), std::string::npos);
  expect_cubin(*compiled_kernel(s, kHopper, kHere));
}

TEST_F(NvrtcTest, ForAGpuThatItDoesNotKnowItMakesPtx) {
  const auto kernel = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), 999, kHere);
  EXPECT_NE(kernel->image.find(".entry " + kernel->name), std::string::npos);
  // Between two that it knows: of the lower one.
  const auto before = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), 95, kHere);
  EXPECT_NE(before->image.find(".target sm_90"), std::string::npos) << before->image.substr(0, 300);
}

TEST_F(NvrtcTest, AnOpMayHaveAnyName) {
  for (const char* name : {"my \"op\"", "C:\\new\\x", "two\nlines"}) {
    KernelSource s = source(kScale, "scale<float>", kScaleFloat);
    s.op = name;
    expect_cubin(*compiled_kernel(s, kHopper, kHere));
  }
}

TEST_F(NvrtcTest, HeadersAreFoundBesideTheFileAndInFolders) {
  fs::create_directory(folder_ / "include");
  write("beside.h", "#include \"other.h\"\n");
  write("include/other.h", "template <class T> __device__ T twice(T x) { return x + x; }\n");
  KernelSource s = source("#include \"beside.h\"\n__global__ void k(long long n, float* y) { *y = twice(1.5f); }", "k",
                          "long long, float*");
  s.folders.push_back(folder_ / "include");
  expect_cubin(*compiled_kernel(s, kHopper, kHere));
}

// --- the cache ------------------------------------------------------------------------------------------------------------

TEST_F(NvrtcTest, MemoryAndDiskSpareCompilations) {
  const int before = kernels_compiled();
  const auto first = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere);
  EXPECT_EQ(kernels_compiled(), before + 1);
  EXPECT_EQ(compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere), first);  // another source
  forget_kernels();
  const auto again = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere);
  EXPECT_EQ(kernels_compiled(), before + 1);
  EXPECT_NE(again, first);
  EXPECT_EQ(again->image, first->image);
  EXPECT_EQ(again->name, first->name);
  EXPECT_EQ(cached().size(), 1u);
}

TEST_F(NvrtcTest, WhatTheMachineCodeDependsOnTellsKernelsApart) {
  fs::create_directory(folder_ / "include");
  write("a.h", "#  include <b.h>\n");
  write("include/b.h", "#define FACTOR 2\n");
  const std::string text = "#include \"a.h\"\n" + std::string(kScale);
  const auto make = [&] {
    KernelSource s = source(text, "scale<float>", kScaleFloat);
    s.folders.push_back(folder_ / "include");
    return s;
  };
  std::vector<std::string> files;
  const auto add = [&](const KernelSource& s, int architecture) {
    files.push_back(cache_file(s, architecture, kHere));
  };
  add(make(), kHopper);
  add(make(), 80);
  KernelSource other = make();
  other.text += " ";
  add(other, kHopper);
  other = make();
  other.options = {"-DX=1"};
  add(other, kHopper);
  other = make();
  other.kernel = "scale<double>";
  add(other, kHopper);
  write("include/b.h", "#define FACTOR 3\n");
  add(make(), kHopper);
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(files[i], files[j]) << i << " and " << j;
  write("include/b.h", "#define FACTOR 2\n");
  EXPECT_EQ(cache_file(make(), kHopper, kHere), files[0]);
  // Headers that an option leads to are not read: nothing is kept that they might change.
  for (const char* option :
       {"-I/usr/include", "--include-path=/usr/include", "-include=b.h", "--pre-include=b.h", "--use-pch=b.pch"}) {
    other = make();
    other.options = {option};
    EXPECT_EQ(cache_file(other, kHopper, kHere), "") << option;
  }
}

TEST_F(NvrtcTest, AChangedHeaderIsSeenHoweverItIsIncluded) {
  fs::create_directory(folder_ / "sub");
  const auto image = [&](const std::string& includes) {
    const std::string text = includes + "\n__global__ void k(long long n, float* y) { y[n] = FACTOR; }";
    return compiled_kernel(source(text, "k", "long long, float*"), kHopper, kHere)->image;
  };
  const auto expect_seen = [&](const std::string& includes, const std::string& header) {
    write(header, "#define FACTOR 2.5f\n");
    const std::string first = image(includes);
    write(header, "#define FACTOR 3.5f\n");
    EXPECT_NE(image(includes), first) << includes;
    fs::remove(folder_ / header);
  };
  write("sub/outer.h", "#include <conf.h>\n");
  write("conf.h", "#define FACTOR 1.5f\n");
  expect_seen("#include \"a.h\"", "a.h");
  expect_seen("#define H \"b.h\"\n#include H  // \"a.h\"", "b.h");
  expect_seen("/**/ #include \"c.h\"", "c.h");
  expect_seen("#include \\\n\"d.h\"", "d.h");
  expect_seen("#\\\ninclude \"e.h\"", "e.h");
  expect_seen("#include \"sub/outer.h\"", "conf.h");

  const std::string asks = "#if __has_include(\"f.h\")\n#define FACTOR 1\n#else\n#define FACTOR 2\n#endif";
  const std::string without = image(asks);
  write("f.h", "");
  EXPECT_NE(image(asks), without);

  // What only looks like that does not keep a kernel from the disk.
  for (const char* harmless : {"#if 1 && \\\n1\n#endif", "// #include \"old.h\"", "#pragma once  // include guard",
                               "#define TWO \\\n2", "#error_of_include"})
    EXPECT_NE(cache_file(source(harmless, "k", "long long"), kHopper, kHere), "") << harmless;

  // One header in two places: which one is taken is not said, so either tells kernels apart.
  write("conf.h", "#define FACTOR 1.5f\n");
  const auto file = [&] { return cache_file(source("#include \"sub/outer.h\"", "k", "long long"), kHopper, kHere); };
  write("sub/conf.h", "#define FACTOR 2.5f\n");
  const std::string first = file();
  EXPECT_NE(first, "");
  write("sub/conf.h", "#define FACTOR 3.5f\n");
  EXPECT_NE(file(), first);
}

TEST_F(NvrtcTest, ADamagedFileIsMadeAnew) {
  const KernelSource s = source(kScale, "scale<float>", kScaleFloat);
  const auto first = compiled_kernel(s, kHopper, kHere);
  const fs::path path = cache_file(s, kHopper, kHere);
  const std::string whole = read(path);
  int compiled = kernels_compiled();
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  std::string long_name = whole;
  long_name[46] = '\xff';  // the length of the name
  for (const std::string& bytes : {std::string(), whole.substr(0, 20), whole.substr(0, whole.size() - 1), flipped,
                                   long_name, std::string(100, 'x'), whole + "x"}) {
    std::ofstream(path, std::ios::binary) << bytes;
    forget_kernels();
    EXPECT_EQ(compiled_kernel(s, kHopper, kHere)->image, first->image);
    EXPECT_EQ(kernels_compiled(), ++compiled);
    EXPECT_EQ(read(path), whole);
  }
}

TEST_F(NvrtcTest, AFolderThatCannotBeWrittenIsDoneWithout) {
  setenv("XDG_CACHE_HOME", "/dev/null/no", 1);
  expect_cubin(*compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere));
}

TEST_F(NvrtcTest, ProcessesMayRace) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = false;
      try {
        good = compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere)->image.size() > 64;
      } catch (...) {
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const std::vector<fs::path> files = cached();
  ASSERT_EQ(files.size(), 1u);  // and nothing half-written
  const int before = kernels_compiled();
  expect_cubin(*compiled_kernel(source(kScale, "scale<float>", kScaleFloat), kHopper, kHere));
  EXPECT_EQ(kernels_compiled(), before);
}

}  // namespace
}  // namespace reel::cuda
