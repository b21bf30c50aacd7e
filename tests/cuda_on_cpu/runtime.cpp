// The functions of CUDA's runtime that the backend calls, and device memory: a range of addresses that host code may not
// touch, so that every copy has to be asked for. Calls do their work at once, but what is copied to the host arrives there
// only when the host waits for it.

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "reel/tests/cuda_on_cpu/executor.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace cuda_on_cpu {

struct Arrival {
  void* to;
  std::vector<char> bytes;
};
struct Stream {
  std::vector<Arrival> arrivals;
};
struct Event {
  Stream* stream = nullptr;
};

namespace {

constexpr std::size_t kReserved = std::size_t{8} << 30, kBoundary = 256;
constexpr unsigned char kUnknown = 0xff;  // NaN in every floating type

char* arena = nullptr;  // also for the signal handler

struct Device {
  std::mutex mutex;
  std::int64_t waits = 0;                          // of the host
  std::size_t used = 0;                            // of the arena; its pages beyond were never touched
  std::map<std::size_t, std::vector<char*>> free;  // by size
  std::map<const char*, std::size_t> blocks;       // live ones: size as asked for
  std::map<const char*, std::size_t> pinned;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::size_t live = 0, capacity = std::size_t{1} << 30;
  int count = 1;
  int open = 0;
  std::int64_t fail_in = 0;
  cudaError_t failure = cudaErrorUnknown;
  cudaError_t last_error = cudaSuccess;
  bool failed = false;
};

#if !defined(__SANITIZE_ADDRESS__)
void on_segfault(int signal, siginfo_t* info, void*) {
  const char* address = static_cast<const char*>(info->si_addr);
  if (address >= arena && address < arena + kReserved) {
    const char text[] = "cuda_on_cpu: host code touched device memory\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
  }
  ::signal(signal, SIG_DFL);  // and again, for good
}
#endif

Device& device() {
  static Device* const instance = [] {
    void* memory = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    arena = static_cast<char*>(memory);
#if !defined(__SANITIZE_ADDRESS__)
    struct sigaction action = {};
    action.sa_sigaction = on_segfault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
#endif
    return new Device;
  }();
  return *instance;
}

std::size_t rounded(std::size_t bytes) { return (bytes + kBoundary - 1) / kBoundary * kBoundary; }

bool is_device(const void* address) { return address >= arena && address < arena + kReserved && arena != nullptr; }

/// Whether [address, address + bytes) lies in one live block.
bool in_block(const void* address, std::size_t bytes) {
  const auto& blocks = device().blocks;
  auto next = blocks.upper_bound(static_cast<const char*>(address));
  if (next == blocks.begin()) return false;
  --next;
  return static_cast<const char*>(address) + bytes <= next->first + next->second;
}

void check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const auto side = [&](const char* name, const void* address, bool wants_device) {
    if (is_device(address) != wants_device)
      throw Fault(std::string("cuda_on_cpu: wrong-space copy: the ") + name + " must be " +
                  (wants_device ? "device" : "host") + " memory, and is not");
    if (wants_device && !in_block(address, bytes))
      throw Fault(std::string("cuda_on_cpu: a copy of ") + std::to_string(bytes) + " bytes leaves its block, at the " +
                  name);
  };
  side("target", to, kind != cudaMemcpyDeviceToHost);
  side("source", from, kind != cudaMemcpyHostToDevice);
}

void arrive(Stream& stream) {
  for (const Arrival& arrival : stream.arrivals) std::memcpy(arrival.to, arrival.bytes.data(), arrival.bytes.size());
  stream.arrivals.clear();
}

#define REEL_INJECT()                       \
  cudaError_t injected_error = cudaSuccess; \
  if (detail::injected(injected_error)) return detail::failing(injected_error)

}  // namespace

OnDevice::OnDevice() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.open++ == 0 && d.used > 0) mprotect(arena, d.used, PROT_READ | PROT_WRITE);
}

OnDevice::~OnDevice() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (--d.open == 0 && d.used > 0) mprotect(arena, d.used, PROT_NONE);
}

cudaError_t detail::failing(cudaError_t error) {
  device().last_error = error;
  return error;
}

bool detail::injected(cudaError_t& error) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.failed && d.failure == cudaErrorIllegalAddress) {  // the device is lost: every call says so
    error = d.failure;
    return true;
  }
  if (d.fail_in == 0 || --d.fail_in > 0) return false;
  d.failed = true;
  error = d.failure;
  return true;
}

void fail_call(std::int64_t n, cudaError_t error) {
  Device& d = device();
  d.fail_in = n;
  d.failure = error;
  d.failed = false;
}
bool call_failed() { return device().failed; }

void set_guard(bool on) {
  static const OnDevice* open = nullptr;
  if (on) delete std::exchange(open, nullptr);
  else if (open == nullptr) open = new OnDevice;
}

void set_capacity(std::size_t bytes) { device().capacity = bytes; }
void set_device_count(int count) { device().count = count; }
std::int64_t waits() { return device().waits; }

Inventory inventory() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  return {static_cast<std::int64_t>(d.blocks.size()), static_cast<std::int64_t>(d.live),
          static_cast<std::int64_t>(d.pinned.size()), static_cast<std::int64_t>(d.streams.size()),
          static_cast<std::int64_t>(d.events.size())};
}

std::string Inventory::str() const {
  return "cuda_on_cpu: leak: " + std::to_string(device_blocks) + " device blocks of " + std::to_string(device_bytes) +
         " bytes, " + std::to_string(pinned_blocks) + " pinned blocks, " + std::to_string(streams) + " streams, " +
         std::to_string(events) + " events";
}

void block_handed_out(void* block, std::size_t bytes, std::size_t room) {
  const OnDevice on_device;
  ASAN_UNPOISON_MEMORY_REGION(block, room);
  std::memset(block, kUnknown, room);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, room - bytes);
}

void block_returned(void* block, std::size_t bytes, std::size_t room) {
  const OnDevice on_device;
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

cudaError_t cudaGetLastError() { return std::exchange(device().last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device().count;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int index) { return index < device().count ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  REEL_INJECT();
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 1;  // few, so that loops over the grid turn round
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  Device& d = device();
  *available = d.capacity > d.live ? d.capacity - d.live : 0;
  *total = d.capacity;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  REEL_INJECT();
  *stream = new Stream;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  REEL_INJECT();
  ++device().waits;
  arrive(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  device().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  REEL_INJECT();
  *event = new Event;
  device().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  REEL_INJECT();
  event->stream = stream;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  REEL_INJECT();
  if (event->stream != nullptr) arrive(*event->stream);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  device().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t) {
  REEL_INJECT();
  Device& d = device();
  const std::size_t room = rounded(bytes);
  {
    const std::lock_guard lock(d.mutex);
    if (d.live + bytes > d.capacity) return detail::failing(cudaErrorMemoryAllocation);
    std::vector<char*>& list = d.free[room];
    if (!list.empty()) {
      *block = list.back();
      list.pop_back();
    } else if (d.used + room + kBoundary > kReserved) {
      return detail::failing(cudaErrorMemoryAllocation);
    } else {
      *block = arena + d.used;
      d.used += room + kBoundary;  // a strip that belongs to nobody
      if (d.open > 0) mprotect(arena, d.used, PROT_READ | PROT_WRITE);
      ASAN_POISON_MEMORY_REGION(static_cast<char*>(*block) + room, kBoundary);
    }
    d.blocks[static_cast<char*>(*block)] = bytes;
    d.live += bytes;
  }
  block_handed_out(*block, bytes, room);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t) {
  Device& d = device();
  const auto found = d.blocks.find(static_cast<char*>(block));
  if (found == d.blocks.end()) throw Fault("cuda_on_cpu: cudaFreeAsync of what is no block");
  const std::size_t bytes = found->second;
  block_returned(block, bytes, rounded(bytes));
  const std::lock_guard lock(d.mutex);
  d.blocks.erase(found);
  d.live -= bytes;
  d.free[rounded(bytes)].push_back(static_cast<char*>(block));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  REEL_INJECT();
  *block = ::operator new(bytes);
  std::memset(*block, kUnknown, bytes);
  device().pinned[static_cast<char*>(*block)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) {
  for (Stream* stream : device().streams) arrive(*stream);  // it waits for the device
  device().pinned.erase(static_cast<char*>(block));
  ::operator delete(block);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  REEL_INJECT();
  check_copy(to, from, bytes, kind);
  const OnDevice on_device;
  if (kind == cudaMemcpyDeviceToHost) {
    const char* source = static_cast<const char*>(from);
    stream->arrivals.push_back({to, std::vector<char>(source, source + bytes)});
  } else {
    std::memmove(to, from, bytes);
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t) {
  REEL_INJECT();
  if (!is_device(block) || !in_block(block, bytes))
    throw Fault("cuda_on_cpu: cudaMemsetAsync of what is no block of device memory");
  const OnDevice on_device;
  std::memset(block, value, bytes);
  return cudaSuccess;
}
