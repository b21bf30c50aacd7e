// Files that are refused.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "reel/tests/expect.h"
#include "reel/tests/safetensors_folder.h"

namespace reel::nn::safetensors {
namespace {

namespace fs = std::filesystem;

std::string entry_text(const std::string& name, const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST_F(Safetensors, MissingFilesAndFoldersAreRefused) {
  expect_refused("cannot be opened: No such file");
  fs::create_directory(path_);
  expect_refused("a regular file is required");
  EXPECT_THROW(write(path_, {}), FileError);
  EXPECT_THROW(write((folder_ / "no" / "x").string(), {}), FileError);
  EXPECT_THROW(write("", {}), FileError);
  const std::string hides = path_ + std::string("\0tail", 5);  // the zero byte would end the error's text
  EXPECT_THROW_WITH(write(hides, {}), FileError, "one with a zero byte", "safetensors_hostile_test.cpp:");
  EXPECT_THROW_WITH(Reader(hides, SourceLocation::current()), FileError, "one with a zero byte", "hostile_test.cpp:");
}

TEST_F(Safetensors, APipeIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused("a regular file is required");
  EXPECT_THROW(write(path_, {}), FileError);
}

TEST_F(Safetensors, HeaderLengthIsBounded) {
  put_bytes("");
  expect_refused("at least 8 bytes of header length are required, got 0");
  put_bytes("1234567");
  expect_refused("got 7");
  put_with_length(UINT64_MAX, "{}", 0);
  expect_refused("at most 100,000,000 bytes is required, got 18446744073709551615");
  put_with_length(kMaxHeaderBytes + 1, "{}", 0);
  expect_refused("at most 100,000,000 bytes");
  put_with_length(kMaxHeaderBytes, "{}", 0);
  expect_refused("got the end of the file after 2");
  put_with_length(3, "{}", 0);
  expect_refused("a header of 3 bytes is required");
  put("", 0);
  expect_refused("begin with '{'");
}

TEST_F(Safetensors, HeaderMustBeTheJsonOfTheFormat) {
  const auto refused = [&](const std::string& header, const char* reason) {
    SCOPED_TRACE(header);
    put(header, 4);
    expect_refused(reason);
  };
  refused(" {}", "begin with '{'");
  refused("\xEF\xBB\xBF{}", "begin with '{'");
  refused("[]", "begin with '{'");
  refused("{", "needs to be JSON in UTF-8; at its byte");
  refused("{} x", "needs to be JSON");
  refused(std::string("{}\0", 3), "needs to be JSON");
  refused("{\"x\xff\":{}}", "needs to be JSON in UTF-8");
  refused("{\"\\ud800\":{}}", "needs to be JSON in UTF-8");
  refused("{\"x\":1}", "tensor 'x' needs to be an object, got a number");
  refused("{\"x\":null}", "got null");
  refused("{\"x\":[]}", "got an array");
  refused("{\"x\":" + std::string(100000, '['), "got an array");
  refused("{\"x\":{}}", "got no dtype");
  refused("{\"x\":{\"dtype\":\"F32\"}}", "got no shape");
  refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", "got no data_offsets");
  refused("{\"x\":{\"dtype\":\"F32\",\"strides\":[1]}}", "got 'strides'");
  refused("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F64\"}}", "tensor 'x' has dtype twice");
  refused("{\"x\":{\"shape\":[],\"shape\":[]}}", "has shape twice");
  refused("{\"x\":{\"dtype\":7}}", "a string as dtype, got a number");
  refused("{\"x\":{\"shape\":4}}", "an array of sizes as shape, got a number");
  refused("{\"x\":{\"shape\":[\"4\"]}}", "an array of sizes as shape, got a string");
  refused("{\"x\":{\"shape\":[[4]]}}", "an array of sizes as shape, got an array");
  refused("{\"x\":{\"shape\":[true]}}", "got a boolean");
  refused("{\"x\":{\"data_offsets\":{}}}", "as data_offsets, got an object");
  refused("{\"__metadata__\":3}", "__metadata__ needs to be an object, got a number");
  refused("{\"__metadata__\":{\"k\":3}}", "__metadata__ needs strings only, got a number");
  refused("{\"__metadata__\":{\"k\":{}}}", "__metadata__ needs strings only, got an object");
}

TEST_F(Safetensors, KeysAreThereOnce) {
  const std::string x = entry_text("x", "F32", "[1]", "[0,4]");
  put("{" + x + "," + x + "}", 4);
  expect_refused("got 'x' twice");
  put("{" + x + "," + entry_text("y", "F32", "[1]", "[4,8]") + "," + entry_text("x", "F32", "[1]", "[8,12]") + "}", 12);
  expect_refused("got 'x' twice");
  put("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0);
  expect_refused("metadata key 'k' is there twice");
  put("{\"__metadata__\":{},\"__metadata__\":{}}", 0);
  expect_refused("__metadata__ is there twice");
}

TEST_F(Safetensors, DtypesAndSizesAreChecked) {
  const auto refused = [&](const char* dtype, const char* shape, const char* offsets, const char* reason) {
    SCOPED_TRACE(std::string(dtype) + shape + offsets);
    put("{" + entry_text("x", dtype, shape, offsets) + "}", 8);
    expect_refused(reason);
  };
  refused("I16", "[4]", "[0,8]",
          "dtype of tensor 'x' needs to be F32, F64, BF16, F16, I32, I64, U8 or BOOL, got 'I16'");
  refused("f32", "[2]", "[0,8]", "got 'f32'");
  refused("", "[2]", "[0,8]", "got ''");
  refused("F32", "[-2]", "[0,8]", "got a negative number");
  refused("F32", "[-0]", "[0,8]", "got a negative number");
  refused("F32", "[2.0]", "[0,8]", "got a number that is not a 64-bit integer");
  refused("F32", "[2e0]", "[0,8]", "got a number that is not a 64-bit integer");
  refused("F32", "[99999999999999999999]", "[0,8]", "got a number that is not a 64-bit integer");
  refused("F32", "[9223372036854775808]", "[0,8]", "sizes below 2^63, got 9223372036854775808");
  refused("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", "at most 8 axes");
  refused("F32", "[4294967296,1073741826]", "[0,8]", "below 2^63 bytes, got f32 [4294967296, 1073741826]");
  refused("F32", "[4294967296,4294967296,4294967296]", "[0,0]", "below 2^63 bytes");
  refused("F32", "[0,4294967296,4294967296]", "[0,0]", "below 2^63 bytes");
  refused("F32", "[4294967296,4294967296,0]", "[0,0]", "below 2^63 bytes");
  refused("F32", "[3]", "[0,8]", "tensor 'x' needs 12 bytes for f32 [3], got data_offsets [0, 8]");
  refused("F32", "[1]", "[0,8]", "needs 4 bytes");
  refused("F64", "[2]", "[0,8]", "needs 16 bytes for f64 [2]");
  refused("F32", "[2]", "[8,0]", "got data_offsets [8, 0]");
  refused("F32", "[2]", "[18446744073709551612,4]", "got data_offsets [18446744073709551612, 4]");  // 8 apart mod 2^64
  refused("F32", "[2]", "[8,18446744073709551616]", "not a 64-bit integer");
  refused("F32", "[2]", "[0]", "data_offsets of tensor 'x' needs 2 numbers, got 1");
  refused("F32", "[2]", "[]", "needs 2 numbers, got 0");
  refused("F32", "[2]", "[0,8,8]", "needs 2 numbers, got 3");
  refused("F32", "[2]", "[0,\"8\"]", "as data_offsets, got a string");
  refused("F32", "[2]", "[-8,0]", "got a negative number");
}

TEST_F(Safetensors, RangesCoverTheDataOnce) {
  const auto two = [&](const char* first, const char* second, std::size_t data_bytes) {
    put("{" + entry_text("x", "F32", "[2]", first) + "," + entry_text("y", "F32", "[1]", second) + "}", data_bytes);
  };
  two("[0,8]", "[8,12]", 12);
  EXPECT_EQ(refusal(), "");
  two("[4,12]", "[0,4]", 12);
  EXPECT_EQ(refusal(), "");
  two("[0,8]", "[4,8]", 8);
  expect_refused("tensor 'y' needs to begin where the one before it ends, at byte 8 of the data, got 4");
  two("[0,8]", "[0,4]", 8);
  expect_refused("at byte 4 of the data, got 0");
  two("[0,8]", "[12,16]", 16);
  expect_refused("at byte 8 of the data, got 12");
  two("[4,12]", "[12,16]", 16);
  expect_refused("tensor 'x' needs to begin where the one before it ends, at byte 0 of the data, got 4");
  two("[0,8]", "[8,12]", 11);
  expect_refused("tensor 'y' needs 12 bytes of data, got a file with 11");
  two("[0,8]", "[8,12]", 0);
  expect_refused("tensor 'x' needs 8 bytes of data, got a file with 0");
  two("[0,8]", "[8,12]", 13);
  expect_refused("at byte 12 of the data, got 1 more");
  put("{}", 1);
  expect_refused("got 1 more");
}

TEST_F(Safetensors, AnEnormousTensorIsRefusedBeforeItIsAllocated) {
  put("{" + entry_text("x", "U8", "[1152921504606846976]", "[0,1152921504606846976]") + "}", 16);
  EXPECT_THROW(Reader reader(path_), FileError);
}

TEST_F(Safetensors, EmptyTensorsShareAPlace) {
  put("{" + entry_text("a", "F32", "[0]", "[0,0]") + "," + entry_text("b", "U8", "[2]", "[0,2]") + "," +
          entry_text("c", "I64", "[5,0]", "[2,2]") + "," + entry_text("d", "F32", "[0]", "[0,0]") + "}",
      2);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Safetensors, ABoolIsZeroOrOne) {
  const std::uint8_t values[] = {1, 0, 2};
  write(path_, {{"mask", bool8, {3}, values}});
  expect_refused("tensor 'mask' needs bools of 0 or 1, got 2");
}

TEST_F(Safetensors, AFileThatShrinksWhileOpenIsRefused) {
  const std::vector<float> values(1000);
  write(path_, {{"x", f32, {1000}, values.data()}});
  const Reader reader(path_);
  fs::resize_file(path_, 1000);
  std::vector<float> back(1000);
  EXPECT_THROW(reader.read(reader.entries()[0], back.data()), FileError);
}

// What happens to a file by accident or on purpose: each byte set to other values, each prefix, each byte left out or
// doubled. Whatever is not refused must be of a size that the file can hold.
TEST_F(Safetensors, NoMutationOfAFileCrashes) {
  const float weights[] = {1, 2, 3, 4};
  const bool flags[] = {true, false, true};
  write(path_, {{"w", f32, {2, 2}, weights}, {"f", bool8, {3}, flags}}, {{"k", "v"}});
  const std::string original = bytes_of_file();
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) {
    put_bytes(bytes);
    try {
      const Reader reader(path_);
      std::uint64_t total = 0;
      for (const Entry& entry : reader.entries()) {
        ASSERT_EQ(entry.bytes(), static_cast<std::uint64_t>(entry.shape.size()) * size_of(entry.dtype));
        total += entry.bytes();
        ASSERT_LE(total, bytes.size());
        std::vector<char> data(entry.bytes());
        reader.read(entry, data.data());
      }
      ++read;
    } catch (const FileError&) {
      ++refused;
    }
  };

  for (std::size_t i = 0; i < original.size(); ++i) {
    for (const int flip : {0x01, 0x02, 0x10, 0x20, 0x80, 0xff}) {
      std::string bytes = original;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      attempt(bytes);
    }
    attempt(original.substr(0, i));
    attempt(original.substr(0, i) + original.substr(i + 1));
    attempt(original.substr(0, i) + original[i] + original.substr(i));
  }

  EXPECT_EQ(refusal().empty(), false);       // the last one has a byte too many
  EXPECT_GT(read, 16 * 5);                   // flipped weights are still weights
  EXPECT_GT(refused, int(original.size()));  // every prefix, at least
}

}  // namespace
}  // namespace reel::nn::safetensors
