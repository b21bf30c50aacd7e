#include "reel/backends/cuda/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "reel/core/scalar/murmur3.h"

namespace reel::cuda {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'R', 'E', 'E', 'L', 'K', 'R', 'N', '1'};
std::atomic<int> compilations{0};

struct Key {
  std::uint64_t word[2];
  bool operator<(const Key& other) const {
    return word[0] != other.word[0] ? word[0] < other.word[0] : word[1] < other.word[1];
  }
  bool operator==(const Key& other) const { return word[0] == other.word[0] && word[1] == other.word[1]; }
};

Key hash_of(const std::string& bytes) {
  const auto hash =
      scalar::murmur3(reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<std::int64_t>(bytes.size()), 0);
  return {{hash.word[0], hash.word[1]}};
}

std::optional<std::string> contents(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// What is between the quotes or brackets of #include on this line; empty if it has none.
std::string included(const std::string& line) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == line.npos || line[at] != '#') return {};
  at = line.find_first_not_of(" \t", at + 1);
  if (at == line.npos || line.compare(at, 7, "include") != 0) return {};
  at = line.find_first_of("\"<", at + 7);
  if (at == line.npos) return {};
  const std::size_t end = line.find(line[at] == '<' ? '>' : '"', at + 1);
  return end == line.npos ? std::string() : line.substr(at + 1, end - at - 1);
}

/// Appends names and contents of all headers that the text may include, found as the compiler finds them.
void add_headers(const std::string& text, const fs::path& folder, const std::vector<std::string>& folders,
                 std::set<fs::path>& seen, std::string& all) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == text.npos) end = text.size();
    const std::string name = included(text.substr(begin, end - begin));
    begin = end + 1;
    if (name.empty()) continue;
    std::vector<fs::path> places{folder / name};
    for (const std::string& other : folders) places.push_back(fs::path(other) / name);
    for (const fs::path& place : places) {
      const auto header = contents(place);
      if (!header) continue;
      if (!seen.insert(place.lexically_normal()).second) break;
      all += name + '\0' + std::to_string(header->size()) + '\0' + *header;
      add_headers(*header, place.parent_path(), folders, seen, all);
      break;
    }
  }
}

Key key_of(const KernelSource& source, int architecture, SourceLocation where) {
  const Nvrtc& nvrtc = Nvrtc::get(where);
  std::string all = nvrtc.version() + '\0' + std::to_string(architecture) + '\0' + source.kernel + '\0';
  for (const std::string& option : nvrtc.options(source, architecture)) all += option + '\0';
  const std::string text = checked_text(source);
  all += std::to_string(text.size()) + '\0' + text;
  std::set<fs::path> seen;
  add_headers(source.text, fs::path(source.file).parent_path(), source.folders, seen, all);
  return hash_of(all);
}

/// Empty: there is none.
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fs::path(cache) / "reel" / "kernels";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? fs::path(home) / ".cache" / "reel" / "kernels" : fs::path();
}

/// Whether an option may lead to headers that the key knows nothing of.
bool leads_elsewhere(const std::string& option) {
  for (const char* begin : {"-I", "--include-path", "-include", "--pre-include"})
    if (option.starts_with(begin)) return true;
  return false;
}

/// Empty: the kernel is not kept.
fs::path file_of(const KernelSource& source, const Key& key) {
  const fs::path folder = cache_folder();
  if (std::any_of(source.options.begin(), source.options.end(), leads_elsewhere)) return {};
  if (folder.empty()) return {};
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx.kernel", static_cast<unsigned long long>(key.word[0]),
                static_cast<unsigned long long>(key.word[1]));
  return folder / name;
}

// A file: kMagic, the key, the hash of the rest, the length of the name (8 bytes each word), the name, the image.
struct Header {
  char magic[8];
  Key key, hash;
  std::uint64_t name_size;
};

std::optional<CompiledKernel> read_file(const fs::path& path, const Key& key) {
  const auto bytes = contents(path);
  Header header;
  if (!bytes || bytes->size() < sizeof header) return {};
  std::memcpy(&header, bytes->data(), sizeof header);
  const std::string rest = bytes->substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || !(header.key == key) || header.name_size > rest.size() ||
      !(header.hash == hash_of(rest)))
    return {};
  return CompiledKernel{rest.substr(0, header.name_size), rest.substr(header.name_size)};
}

/// Best effort: a kernel that cannot be kept is compiled again next time.
void write_file(const fs::path& path, const Key& key, const CompiledKernel& kernel) {
  static std::atomic<unsigned> count{0};
  const std::string rest = kernel.name + kernel.image;
  Header header = {{}, key, hash_of(rest), kernel.name.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path temporary =
      path.parent_path() / (".new-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".tmp");
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(rest.data(), static_cast<std::streamsize>(rest.size()));
  out.close();
  if (out) fs::rename(temporary, path, error);
  if (!out || error) fs::remove(temporary, error);
}

struct Memory {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const CompiledKernel>> kernels;
};

Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

}  // namespace

std::shared_ptr<const CompiledKernel> compiled_kernel(const KernelSource& source, int architecture,
                                                      SourceLocation where) {
  const Key key = key_of(source, architecture, where);
  const std::lock_guard lock(memory().mutex);
  auto& kernel = memory().kernels[key];
  if (kernel != nullptr) return kernel;
  const fs::path path = file_of(source, key);
  if (auto kept = read_file(path, key)) return kernel = std::make_shared<CompiledKernel>(std::move(*kept));
  auto made = std::make_shared<CompiledKernel>(Nvrtc::get(where).compile(source, architecture, where));
  ++compilations;
  if (!path.empty()) write_file(path, key, *made);
  return kernel = std::move(made);
}

std::string cache_file(const KernelSource& source, int architecture, SourceLocation where) {
  return file_of(source, key_of(source, architecture, where)).string();
}

int kernels_compiled() { return compilations; }

void forget_kernels() {
  const std::lock_guard lock(memory().mutex);
  memory().kernels.clear();
}

}  // namespace reel::cuda
