// The memory of devices: ranges of addresses that host code may not touch, nor kernels of another device, so that every copy
// has to be asked for.

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <memory>

#include "reel/tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

using detail::kMostDevices;
using detail::kUnknown;
using detail::Runtime;
using detail::runtime;
using detail::Space;

namespace {

constexpr std::size_t kReserved = std::size_t{8} << 30, kBoundary = 256;  // per device

char* arena = nullptr;

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
  __asan_unpoison_memory_region(block, room);
  std::memset(block, kUnknown, room);
  __asan_poison_memory_region(static_cast<char*>(block) + bytes, room - bytes);
}

void block_returned(void* block, std::size_t room) {
  const OnDevice on_device(detail::device_of(block));
  __asan_poison_memory_region(block, room);
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
      __asan_poison_memory_region(static_cast<char*>(*block) + room, kBoundary);
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
  block_returned(block, rounded(bytes));
  give_back_pages(static_cast<char*>(block), rounded(bytes));
  const std::lock_guard lock(r.mutex);
  Space& space = r.spaces[device];
  space.blocks.erase(static_cast<char*>(block));
  space.live -= bytes;
  space.free[rounded(bytes)].push_back(static_cast<char*>(block));
  return cudaSuccess;
}
