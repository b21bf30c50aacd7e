#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "reel/nn/safetensors.h"

namespace reel::nn::safetensors {

/// A folder for one test, in it the path of a file that the test makes.
class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "reel-safetensors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = (folder_ / "net.safetensors").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Puts a file there by hand: the header's length, the header, `data_bytes` bytes of data.
  void put(const std::string& header, std::size_t data_bytes) { put_with_length(header.size(), header, data_bytes); }
  void put_with_length(std::uint64_t length, const std::string& header, std::size_t data_bytes) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    put_bytes(bytes + header + std::string(data_bytes, '\1'));
  }
  void put_bytes(const std::string& bytes) {
    std::filesystem::remove(path_);  // some file systems wait for the disk when a file is truncated and written again
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  std::string bytes_of_file() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The text with which the file is refused, or "" if it is read.
  std::string refusal() {
    try {
      Reader reader(path_);
      for (const Entry& entry : reader.entries()) {
        std::vector<char> data(entry.bytes());
        reader.read(entry, data.data());
      }
      return "";
    } catch (const FileError& error) {
      return error.what();
    }
  }

  /// Expects a refusal that names the file, this test and `reason`.
  void expect_refused(const std::string& reason) {
    const std::string text = refusal();
    EXPECT_NE(text.find(reason), std::string::npos) << "got: " << text;
    EXPECT_NE(text.find("net.safetensors"), std::string::npos) << text;
    EXPECT_NE(text.find("safetensors_folder.h:"), std::string::npos) << text;
  }

  int files_in_folder() const {
    return static_cast<int>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  std::filesystem::path folder_;
  std::string path_;
};

}  // namespace reel::nn::safetensors
