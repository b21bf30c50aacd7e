#include "reel/nn/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace reel::nn {
namespace {

constexpr std::uint64_t kMaxTransfer = std::uint64_t{1} << 30;  // Linux moves at most 2 GiB a call

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_link(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

// Where a symbolic link leads, if to nothing yet too, so that the link itself survives the rename. Anything else is its own
// target; a link in a circle leads to a link.
std::string resolve(std::string path) {
  for (int links = 0; links < 40 && is_link(path); ++links) {
    char target[4096];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
    if (size <= 0) break;
    const std::string next(target, static_cast<std::size_t>(size));
    path = next[0] == '/' ? next : folder_of(path) + "/" + next;
  }
  return path;
}

// In quotes. What lies behind a zero byte would hide the rest of an error's text.
std::string up_to_zero(const std::string& path) { return std::string("'") + path.c_str() + "'"; }

// A name that no other writer uses: processes differ in number, writers of one process in the count.
std::string temporary_name(const std::string& folder) {
  static std::atomic<unsigned long> count{0};
  return folder + "/.reel-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".tmp";
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, SourceLocation where)
    : path_(path), target_(resolve(path)), where_(where) {
  if (path.empty() || path.find('\0') != std::string::npos)
    throw FileError(up_to_zero(path) + ": a file name is required, got an empty one or one with a zero byte", where);
  struct stat old;
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode))
    throw FileError("'" + path + "': a regular file is required, got something else", where);

  if (is_link(target_)) fail("follow its links", ELOOP);

  const std::string folder = folder_of(target_);
  std::string name;
  do {  // a file of that name may be left over from a process that was killed
    name = temporary_name(folder);
    descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("create a file in its folder", errno);
  temporary_ = std::move(name);
  // Best effort: where permissions cannot be kept (another owner, some file systems), the new file has the usual ones.
  if (exists) (void)!::fchmod(descriptor_, old.st_mode & 0777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min<std::uint64_t>(size, kMaxTransfer));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("flush", errno);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("close", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename", errno);
  temporary_.clear();

  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    if (errno == EACCES) return;  // a folder that may be written but not read: nothing more can be done
    fail("open the folder", errno);
  }
  const int flushed = ::fsync(folder);
  const int error = errno;
  ::close(folder);
  if (flushed != 0 && error != EINVAL) fail("flush the folder", error);  // EINVAL: this file system has no such thing
}

void AtomicFile::fail(const char* action, int error) const {
  throw FileError("'" + path_ + "': cannot " + action + ": " + std::strerror(error), where_);
}

InputFile::InputFile(const std::string& path, SourceLocation where) : path_(path), where_(where) {
  if (path.find('\0') != std::string::npos)
    throw FileError(up_to_zero(path) + ": a file name is required, got one with a zero byte", where);
  // Without O_NONBLOCK a pipe of that name would make this wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status;
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail("a regular file is required, got something else");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* destination, std::uint64_t size) const {
  char* next = static_cast<char*>(destination);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(size, kMaxTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0)
      fail(std::to_string(size) + " more bytes are required at byte " + std::to_string(offset) +
           ", got the end of the file");
    next += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
}

void InputFile::fail(const std::string& what) const { throw FileError("'" + path_ + "': " + what, where_); }

void write_file(const std::string& path, std::string_view text, SourceLocation where) {
  AtomicFile file(path, where);
  file.write(text);
  file.commit();
}

}  // namespace reel::nn
