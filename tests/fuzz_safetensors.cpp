// libFuzzer entry: any bytes as a safetensors file are either read or refused with a FileError.
// Run as: fuzz_safetensors -max_len=4096 <folder of corpus>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "reel/nn/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace reel;
  static const int file = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ::ftruncate(file, 0) != 0 || ::pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) return 0;
  try {
    const nn::safetensors::Reader reader(path);
    for (const nn::safetensors::Entry& entry : reader.entries()) {
      if (entry.bytes() > size || reader.find(entry.name) != &entry) std::abort();
      std::vector<char> data(entry.bytes());
      reader.read(entry, data.data());
    }
  } catch (const FileError&) {
  }
  return 0;
}
