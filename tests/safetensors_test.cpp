#include "reel/nn/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <numeric>

#include "reel/tests/safetensors_folder.h"

namespace reel::nn::safetensors {
namespace {

namespace fs = std::filesystem;

/// While it lives, files cannot grow beyond `bytes`: a full disk, as far as write() is concerned.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit old_;
};

TEST_F(Safetensors, EveryDtypeAndMetadataComeBack) {
  const float floats[] = {1.5f, -0.0f, 3e38f, 1e-40f, 0, 7};
  const double doubles[] = {0.1};
  const std::int32_t ints[] = {-1, 2};
  const std::int64_t longs[] = {INT64_MIN};
  const std::uint8_t bytes[] = {0, 255, 7};
  const bool bools[] = {true, false};
  const bfloat16 brains[] = {bfloat16(1.5), bfloat16(-3e38)};
  const float16 halves[] = {float16(0.1), float16(65504.0), float16(6e-8)};
  const std::vector<Source> sources = {
      {"bytes", u8, {3}, bytes},      {"head.weight", f32, {2, 3}, floats}, {"d\"\\\n\xC3\xA9", f64, {}, doubles},
      {"ints", i32, {1, 2, 1}, ints}, {"longs", i64, {1}, longs},           {"bools", bool8, {2}, bools},
      {"brains", bf16, {2}, brains},  {"halves", f16, {3, 1}, halves},      {"none", f32, {4, 0}, nullptr}};
  const Metadata metadata = {{"step", "12"}, {"", "\t\xE2\x82\xAC"}};

  write(path_, sources, metadata);
  const Reader reader(path_);

  EXPECT_EQ(reader.metadata(), metadata);
  ASSERT_EQ(reader.entries().size(), sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Entry& entry = reader.entries()[i];
    EXPECT_EQ(entry.name, sources[i].name);
    EXPECT_EQ(entry.dtype, sources[i].dtype);
    EXPECT_EQ(entry.shape, sources[i].shape);
    EXPECT_EQ(reader.find(sources[i].name), &entry);
    std::vector<char> data(entry.bytes());
    reader.read(entry, data.data());
    const auto* written = static_cast<const char*>(sources[i].data);
    EXPECT_EQ(data, std::vector<char>(written, written + data.size())) << entry.name;
  }
  EXPECT_EQ(reader.find("head"), nullptr);
  EXPECT_EQ(reader.find("zzz"), nullptr);
}

TEST_F(Safetensors, SizesAroundBlocksComeBack) {
  for (const int n : {0, 1, 31, 32, 33, 255, 257, 1025}) {
    std::vector<std::int32_t> values(n), back(n);
    std::iota(values.begin(), values.end(), 1);
    write(path_, {{"x", i32, {n}, values.data()}});
    const Reader reader(path_);
    reader.read(reader.entries().at(0), back.data());
    EXPECT_EQ(back, values);
  }
}

TEST_F(Safetensors, NoTensorsAtAllIsAFile) {
  write(path_, {});
  const Reader reader(path_);
  EXPECT_TRUE(reader.entries().empty());
  EXPECT_TRUE(reader.metadata().empty());
}

TEST_F(Safetensors, BytesAreTheFormatsAndTheSameEveryTime) {
  const std::uint8_t byte = 9;
  const float value = 1;
  const std::vector<Source> sources = {{"b", u8, {1}, &byte}, {"a", f32, {}, &value}};
  const std::string header = R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(header.size() + padding.size());
  expected += header + padding + std::string("\0\0\x80\x3f\x09", 5);

  write(path_, sources, {{"k", "v"}});

  EXPECT_EQ(bytes_of_file(), expected);
  EXPECT_EQ((header.size() + padding.size()) % 8, 0u);
}

TEST_F(Safetensors, EveryTensorIsAlignedToItsElements) {
  const double zeros[4] = {};
  write(path_, {{"a", u8, {3}, zeros}, {"b", f32, {1}, zeros}, {"c", bool8, {1}, zeros}, {"d", f64, {2}, zeros}});
  const Reader reader(path_);
  for (const Entry& entry : reader.entries()) EXPECT_EQ(entry.begin % size_of(entry.dtype), 0u) << entry.name;
}

TEST_F(Safetensors, BadNamesAreNotWritten) {
  const float value = 1;
  const auto refused = [&](const std::vector<Source>& sources, const Metadata& metadata, const char* reason) {
    try {
      write(path_, sources, metadata);
      FAIL() << reason;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
    EXPECT_EQ(files_in_folder(), 0);
  };
  refused({{"x", f32, {}, &value}, {"y", f32, {}, &value}, {"x", f32, {}, &value}}, {}, "got 'x' twice");
  refused({{"__metadata__", f32, {}, &value}}, {}, "other than __metadata__");
  refused({{"x\xff", f32, {}, &value}}, {}, "a tensor's name needs to be UTF-8, got 'x\\xff'");
  refused({}, {{"k", "\xc0\x80"}}, "a metadata value needs to be UTF-8");
  refused({{"x", f32, {-1}, &value}}, {}, "sizes that can be counted, got [-1]");
  refused({{"x", f32, {INT64_MAX, 2}, &value}}, {}, "sizes that can be counted");
}

TEST_F(Safetensors, AFailedWriteLeavesTheOldFileAndNoOther) {
  const float value = 1;
  write(path_, {{"x", f32, {}, &value}});
  const std::string before = bytes_of_file();
  {
    AtomicFile file(path_);
    file.write("half of a fi");
    EXPECT_EQ(files_in_folder(), 2);
  }  // an exception between write and commit ends here
  EXPECT_EQ(bytes_of_file(), before);
  EXPECT_EQ(files_in_folder(), 1);
}

TEST_F(Safetensors, AFullDiskLeavesTheOldFileAndNoOther) {
  write_file(path_, "old");
  const FileSizeLimit limit(64 * 1024);
  const std::vector<char> much(1 << 20);
  EXPECT_THROW(write(path_, {{"x", u8, {1 << 20}, much.data()}}), FileError);
  EXPECT_EQ(bytes_of_file(), "old");
  EXPECT_EQ(files_in_folder(), 1);
}

TEST_F(Safetensors, AWriteKeepsPermissionsAndLinks) {
  write_file(path_, "old");
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  const fs::path link = folder_ / "latest";
  fs::create_symlink("net.safetensors", link);

  write_file(link.string(), "new");

  EXPECT_EQ(bytes_of_file(), "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0640));
  EXPECT_EQ(files_in_folder(), 2);
}

TEST_F(Safetensors, AWriteThroughALinkToNothingMakesTheFileThere) {
  const fs::path link = folder_ / "latest", second = folder_ / "first", circle = folder_ / "circle";
  fs::create_directory(folder_ / "disk");
  fs::create_symlink("disk/run.safetensors", link);
  fs::create_symlink(link, second);
  write_file(second.string(), "new");
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(second));
  EXPECT_TRUE(fs::is_regular_file(folder_ / "disk/run.safetensors"));
  fs::create_symlink("circle", circle);
  EXPECT_THROW(write_file(circle.string(), "new"), FileError);
  EXPECT_TRUE(fs::is_symlink(circle));
}

}  // namespace
}  // namespace reel::nn::safetensors
