// The memory of devices: ranges of addresses that host code may not touch, nor kernels of another device, so that every copy
// has to be asked for.

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "reel/tests/cuda_on_cpu/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace cuda_on_cpu {

using detail::kMostDevices;
using detail::kUnknown;
using detail::Runtime;
using detail::runtime;
using detail::Space;

namespace {

constexpr std::size_t kReserved = std::size_t{8} << 30, kBoundary = 256;  // per device

char* arena = nullptr;                // also for the signal handler
std::atomic<int> running_device{-1};  // whose kernel runs

#if !defined(__SANITIZE_ADDRESS__)
void say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void on_segfault(int signal, siginfo_t* info, void*) {
  if (detail::is_behind_shared(info->si_addr)) {
    say("cuda_on_cpu: a kernel touched what lies behind its shared memory\n");
  } else if (const int device = detail::device_of(info->si_addr); device >= 0) {
    if (const int running = running_device; running >= 0) {
      char text[] = "cuda_on_cpu: a kernel of device 0 touched memory of device 0\n";
      text[sizeof "cuda_on_cpu: a kernel of device " - 1] = static_cast<char>('0' + running);
      text[sizeof text - 3] = static_cast<char>('0' + device);
      say(text);
    } else {
      say("cuda_on_cpu: host code touched device memory\n");
    }
  }
  ::signal(signal, SIG_DFL);  // and again, for good
}
#endif

std::size_t rounded(std::size_t bytes) { return (bytes + kBoundary - 1) / kBoundary * kBoundary; }

char* begin_of(int device) { return arena + static_cast<std::size_t>(device) * kReserved; }

/// Opening and closing the pages costs as much as there are of them.
void give_back_pages(char* block, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(block) + kPage - 1) / kPage * kPage,
                       end = (reinterpret_cast<std::uintptr_t>(block) + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void protect(int device, int access) {
  const std::size_t used = runtime().spaces[device].used;
  if (used > 0) mprotect(begin_of(device), used, access);
}

}  // namespace

Runtime& detail::runtime() {
  static Runtime* const instance = [] {
    void* memory =
        mmap(nullptr, kMostDevices * kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    arena = static_cast<char*>(memory);
#if !defined(__SANITIZE_ADDRESS__)
    struct sigaction action = {};
    action.sa_sigaction = on_segfault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
#endif
    return new Runtime;
  }();
  return *instance;
}

int detail::device_of(const void* address) {
  const char* place = static_cast<const char*>(address);
  if (arena == nullptr || place < arena || place >= arena + kMostDevices * kReserved) return -1;
  return static_cast<int>(static_cast<std::size_t>(place - arena) / kReserved);
}

bool detail::in_block(const void* address, std::size_t bytes) {
  const auto& blocks = runtime().spaces[device_of(address)].blocks;
  auto next = blocks.upper_bound(static_cast<const char*>(address));
  if (next == blocks.begin()) return false;
  --next;
  return static_cast<const char*>(address) + bytes <= next->first + next->second;
}

OnDevice::OnDevice() : OnDevice(detail::current()) {}

OnDevice::OnDevice(int device) : device_(device) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (r.spaces[device].open++ == 0) protect(device, PROT_READ | PROT_WRITE);
}

OnDevice::~OnDevice() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (--r.spaces[device_].open == 0) protect(device_, PROT_NONE);
}

detail::KernelRuns::KernelRuns(int device) : on_device_(device) { running_device = device; }
detail::KernelRuns::~KernelRuns() { running_device = -1; }

void set_guard(bool on) {
  static std::vector<std::unique_ptr<OnDevice>> open;
  if (on) {
    open.clear();
  } else if (open.empty()) {
    for (int device = 0; device < kMostDevices; ++device) open.push_back(std::make_unique<OnDevice>(device));
  }
}

void set_capacity(std::size_t bytes) { runtime().capacity = bytes; }

void block_handed_out(void* block, std::size_t bytes, std::size_t room) {
  const OnDevice on_device(detail::device_of(block));
  ASAN_UNPOISON_MEMORY_REGION(block, room);
  std::memset(block, kUnknown, room);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, room - bytes);
}

void block_returned(void* block, std::size_t bytes, std::size_t room) {
  const OnDevice on_device(detail::device_of(block));
  ASAN_UNPOISON_MEMORY_REGION(block, room);
  const auto* rest = static_cast<const unsigned char*>(block);
  for (std::size_t i = bytes; i < room; ++i)
    if (rest[i] != kUnknown)
      throw Fault("cuda_on_cpu: out of bounds: byte " + std::to_string(i) + " of a block of " + std::to_string(bytes) +
                  " was written");
  ASAN_POISON_MEMORY_REGION(block, room);
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  Runtime& r = runtime();
  const std::size_t live = r.spaces[detail::current()].live;
  *available = r.capacity > live ? r.capacity - live : 0;
  *total = r.capacity;
  return cudaSuccess;
}

// From the pool of the stream's device, whichever the thread's is.
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  REEL_INJECT(stream->device);
  detail::put_on(*stream);
  Runtime& r = runtime();
  Space& space = r.spaces[stream->device];
  const std::size_t room = rounded(bytes);
  {
    const std::lock_guard lock(r.mutex);
    if (space.live + bytes > r.capacity) return detail::failing(cudaErrorMemoryAllocation);
    std::vector<char*>& list = space.free[room];
    if (!list.empty()) {
      *block = list.back();
      list.pop_back();
    } else if (space.used + room + kBoundary > kReserved) {
      return detail::failing(cudaErrorMemoryAllocation);
    } else {
      *block = begin_of(stream->device) + space.used;
      space.used += room + kBoundary;  // a strip that belongs to nobody
      if (space.open > 0) protect(stream->device, PROT_READ | PROT_WRITE);
      ASAN_POISON_MEMORY_REGION(static_cast<char*>(*block) + room, kBoundary);
    }
    space.blocks[static_cast<char*>(*block)] = bytes;
    space.live += bytes;
  }
  block_handed_out(*block, bytes, room);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  detail::put_on(*stream);
  Runtime& r = runtime();
  std::size_t bytes = 0;
  const int device = detail::device_of(block);
  if (device >= 0 && device != stream->device)
    throw Fault("cuda_on_cpu: a block of device " + std::to_string(device) + " was freed on a stream of device " +
                std::to_string(stream->device));
  {
    const std::lock_guard lock(r.mutex);
    const auto& blocks = r.spaces[stream->device].blocks;
    const auto found = blocks.find(static_cast<char*>(block));
    if (found == blocks.end()) throw Fault("cuda_on_cpu: cudaFreeAsync of what is no block");
    bytes = found->second;
  }
  block_returned(block, bytes, rounded(bytes));
  give_back_pages(static_cast<char*>(block), rounded(bytes));
  const std::lock_guard lock(r.mutex);
  Space& space = r.spaces[device];
  space.blocks.erase(static_cast<char*>(block));
  space.live -= bytes;
  space.free[rounded(bytes)].push_back(static_cast<char*>(block));
  return cudaSuccess;
}
