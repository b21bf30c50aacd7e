#include "reel/backends/cuda/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

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
  std::ostringstream bytes;
  if (fs::file_size(path, error) > 0) bytes << in.rdbuf();
  if (!in || !bytes) return {};
  return std::move(bytes).str();
}

/// What is between the quotes or brackets of #include on this line; empty if it has none.
std::string included(const std::string& line) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == line.npos || line[at] != '#') return {};
  at = line.find_first_not_of(" \t", at + 1);
  if (at == line.npos || line.compare(at, 7, "include") != 0) return {};
  at = line.find_first_not_of(" \t", at + 7);
  if (at == line.npos || (line[at] != '"' && line[at] != '<')) return {};
  const std::size_t end = line.find(line[at] == '<' ? '>' : '"', at + 1);
  return end == line.npos ? std::string() : line.substr(at + 1, end - at - 1);
}

/// Whether a line may include something that `included` does not read: a macro's header, one behind or before a comment, or on the
/// next line, or one that is only asked for.
bool includes_otherwise(const std::string& line) {
  if (line.find("__has_include") != line.npos) return true;
  const std::size_t hash = line.find('#');
  if (hash == line.npos || line.find("//") < hash || !included(line).empty()) return false;
  const std::size_t word = std::min(line.find_first_not_of(" \t", hash + 1), line.size());
  const std::string directive = "include", rest = line.substr(word);
  if (rest.starts_with(directive) || rest.starts_with("/*")) return true;
  const std::size_t end = rest.find('\\');  // within the word
  return end != rest.npos && directive.starts_with(rest.substr(0, end));
}

/// Appends names and contents of all headers that the text may include: of all places that have one of a name, for which one is
/// taken is the compiler's matter. Whether these are all that it can be.
bool add_headers(const std::string& text, const fs::path& folder, const std::vector<std::string>& folders,
                 std::set<fs::path>& seen, std::string& all) {
  bool complete = true;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == text.npos) end = text.size();
    const std::string line = text.substr(begin, end - begin), name = included(line);
    begin = end + 1;
    if (includes_otherwise(line)) complete = false;
    if (name.empty()) continue;
    std::vector<fs::path> places{folder / name};
    for (const std::string& other : folders) places.push_back(fs::path(other) / name);
    for (const fs::path& place : places) {
      const auto header = contents(place);
      if (!header || !seen.insert(place.lexically_normal()).second) continue;
      all += place.string() + '\0' + std::to_string(header->size()) + '\0' + *header;
      complete = add_headers(*header, place.parent_path(), folders, seen, all) && complete;
    }
  }
  return complete;
}

/// Whether an option may lead to headers that the key knows nothing of.
bool leads_elsewhere(const std::string& option) {
  for (const char* begin : {"-I", "--include-path", "-include", "--pre-include", "-pch", "--pch", "-use-pch",
                            "--use-pch", "-create-pch", "--create-pch"})
    if (option.starts_with(begin)) return true;
  return false;
}

/// Nothing if what the machine code depends on is not all known.
std::optional<Key> key_of(const KernelSource& source, int architecture, SourceLocation where) {
  const Nvrtc& nvrtc = Nvrtc::get(where);
  std::string all = nvrtc.version() + '\0' + std::to_string(architecture) + '\0' + source.kernel + '\0';
  for (const std::string& option : nvrtc.options(source, architecture)) all += option + '\0';
  const std::string text = checked_text(source);
  all += std::to_string(text.size()) + '\0' + text;
  std::set<fs::path> seen;
  if (std::any_of(source.options.begin(), source.options.end(), leads_elsewhere)) return {};
  if (!add_headers(source.text, fs::path(source.file).parent_path(), source.folders, seen, all)) return {};
  return hash_of(all);
}

/// Empty: there is none.
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fs::path(cache) / "reel" / "kernels";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? fs::path(home) / ".cache" / "reel" / "kernels" : fs::path();
}

/// Empty: the kernel is not kept.
fs::path file_of(const Key& key) {
  const fs::path folder = cache_folder();
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
  const auto make = [&] {
    ++compilations;
    return std::make_shared<CompiledKernel>(Nvrtc::get(where).compile(source, architecture, where));
  };
  const std::optional<Key> key = key_of(source, architecture, where);
  if (!key) return make();
  const std::lock_guard lock(memory().mutex);
  auto& kernel = memory().kernels[*key];
  if (kernel != nullptr) return kernel;
  const fs::path path = file_of(*key);
  if (auto kept = read_file(path, *key)) return kernel = std::make_shared<CompiledKernel>(std::move(*kept));
  kernel = make();
  if (!path.empty()) write_file(path, *key, *kernel);
  return kernel;
}

std::string cache_file(const KernelSource& source, int architecture, SourceLocation where) {
  const std::optional<Key> key = key_of(source, architecture, where);
  return key ? file_of(*key).string() : "";
}

int kernels_compiled() { return compilations; }

void forget_kernels() {
  const std::lock_guard lock(memory().mutex);
  memory().kernels.clear();
}

}  // namespace reel::cuda
