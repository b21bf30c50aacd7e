// The functions of CUDA's runtime that the backend calls, but for device memory's. Calls do their work at once, but what is
// copied to the host arrives there only when the host waits for it. That a copy between two devices comes after what it has to
// come after, and before what it has to come before, is checked: events say what comes before what.

#include <algorithm>

#include "reel/tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

using detail::runtime;
using detail::Runtime;

namespace {

void arrive(Stream& stream) {
  for (const Arrival& arrival : stream.arrivals) std::memcpy(arrival.to, arrival.bytes.data(), arrival.bytes.size());
  stream.arrivals.clear();
}

void join(Known& known, const Known& more) {
  for (const auto& [stream, pieces] : more) known[stream] = std::max(known[stream], pieces);
}

/// How much of `other` comes before the next piece of `stream`.
std::uint64_t known_of(const Stream& stream, std::uint64_t other) {
  const Known& host = runtime().host;
  const auto direct = stream.before.find(other), waited = host.find(other);
  return std::max(direct != stream.before.end() ? direct->second : 0, waited != host.end() ? waited->second : 0);
}

/// All that has been put on a stream, and what comes before that.
Known all_of(const Stream& stream) {
  Known known = stream.before;
  known[stream.number] = stream.pieces;
  return known;
}

void check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const Stream& stream) {
  const auto side = [&](const char* name, const void* address, bool wants_device) {
    const int device = detail::device_of(address);
    if ((device >= 0) != wants_device)
      throw Fault(std::string("cuda_on_cpu: wrong-space copy: the ") + name + " must be " +
                  (wants_device ? "device" : "host") + " memory, and is not");
    if (wants_device && device != stream.device)
      throw Fault(std::string("cuda_on_cpu: wrong-space copy: the ") + name + " is memory of device " +
                  std::to_string(device) + ", and the stream is of device " + std::to_string(stream.device));
    if (wants_device && !detail::in_block(address, bytes))
      throw Fault(std::string("cuda_on_cpu: a copy of ") + std::to_string(bytes) + " bytes leaves its block, at the " +
                  name);
  };
  side("target", to, kind != cudaMemcpyDeviceToHost);
  side("source", from, kind != cudaMemcpyHostToDevice);
}

void check_peer(const char* name, const void* address, int device, std::size_t bytes) {
  if (detail::device_of(address) != device)
    throw Fault(std::string("cuda_on_cpu: wrong-space copy: the ") + name + " must be memory of device " +
                std::to_string(device) + ", and is not");
  if (!detail::in_block(address, bytes))
    throw Fault(std::string("cuda_on_cpu: a copy of ") + std::to_string(bytes) + " bytes leaves its block, at the " +
                name);
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int& detail::current() {
  thread_local int device = 0;
  return device;
}

cudaError_t detail::failing(cudaError_t error) {
  last_error = error;
  return error;
}

bool detail::injected(int device, cudaError_t& error) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (r.failed && r.failure == cudaErrorIllegalAddress && r.lost == device) {  // every call for it says so
    error = r.failure;
    return true;
  }
  if (r.fail_in == 0 || --r.fail_in > 0) return false;
  r.failed = true;
  r.lost = device;
  error = r.failure;
  return true;
}

void detail::put_on(Stream& stream) {
  const std::lock_guard lock(runtime().mutex);
  const std::thread::id thread = std::this_thread::get_id();
  for (const Stream::Owed& owed : stream.owed)
    if (owed.thread == thread && known_of(stream, owed.stream) < owed.piece)
      throw Fault("cuda_on_cpu: work of device " + std::to_string(stream.device) +
                  " may come before the end of a copy by device " + std::to_string(owed.device) +
                  " from or to its memory");
  std::erase_if(stream.owed, [&](const Stream::Owed& owed) { return owed.thread == thread; });
  stream.last[thread] = ++stream.pieces;
}

void fail_call(std::int64_t n, cudaError_t error) {
  Runtime& r = runtime();
  r.fail_in = n;
  r.failure = error;
  r.failed = false;
}
bool library_call(cudaStream_t stream) { return detail::put_kernel(stream) == cudaSuccess; }
std::uint64_t work() {
  const std::lock_guard lock(runtime().mutex);
  std::uint64_t sum = 0;
  for (const Stream* stream : runtime().streams) sum += stream->pieces;
  return sum;
}
bool call_failed() { return runtime().failed; }

void set_device_count(int count) { runtime().count = count; }
void set_capability(int device, int capability) { runtime().capability[device] = capability; }
std::int64_t waits() { return runtime().waits; }

Inventory inventory() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  Inventory sum{.pinned_blocks = static_cast<std::int64_t>(r.pinned.size()),
                .streams = static_cast<std::int64_t>(r.streams.size()),
                .events = static_cast<std::int64_t>(r.events.size())};
  for (const detail::Space& space : r.spaces) {
    sum.device_blocks += static_cast<std::int64_t>(space.blocks.size());
    sum.device_bytes += static_cast<std::int64_t>(space.live);
  }
  return sum;
}

std::int64_t device_bytes(int device) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  return static_cast<std::int64_t>(r.spaces[device].live);
}

std::string Inventory::str() const {
  return "cuda_on_cpu: leak: " + std::to_string(device_blocks) + " device blocks of " + std::to_string(device_bytes) +
         " bytes, " + std::to_string(pinned_blocks) + " pinned blocks, " + std::to_string(streams) + " streams, " +
         std::to_string(events) + " events";
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

// --- devices ----------------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = runtime().count;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = detail::current();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= runtime().count) return detail::failing(cudaErrorInvalidDevice);
  REEL_INJECT(device);
  detail::current() = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  REEL_INJECT(device);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 2;  // few, so that loops over the grid turn round
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = runtime().capability[device] / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = runtime().capability[device] % 10;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  REEL_INJECT(device);
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  REEL_INJECT(device);
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  REEL_INJECT(detail::current());
  return cudaSuccess;
}

// --- streams and events -----------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  REEL_INJECT(detail::current());
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  *stream = new Stream{.device = detail::current(), .number = ++r.streams_made};
  r.streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  REEL_INJECT(stream->device);
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  ++r.waits;
  arrive(*stream);
  join(r.host, all_of(*stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  REEL_INJECT(stream->device);
  const std::lock_guard lock(runtime().mutex);
  join(stream->before, event->before);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  REEL_INJECT(detail::current());
  const std::lock_guard lock(runtime().mutex);
  *event = new Event{.device = detail::current()};
  runtime().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  REEL_INJECT(stream->device);
  if (event->device != stream->device) return detail::failing(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(runtime().mutex);
  event->stream = stream;
  event->before = all_of(*stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  REEL_INJECT(event->device);
  const std::lock_guard lock(runtime().mutex);
  if (event->stream != nullptr) arrive(*event->stream);
  join(runtime().host, event->before);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(runtime().mutex);
  runtime().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t detail::put_kernel(Stream* stream) {
  REEL_INJECT(detail::current());
  if (stream == nullptr || stream->device != current()) return failing(cudaErrorInvalidResourceHandle);
  put_on(*stream);
  return cudaSuccess;
}

// --- pinned memory and copies -----------------------------------------------------------------------------------------------

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  REEL_INJECT(detail::current());
  *block = ::operator new(bytes);
  std::memset(*block, detail::kUnknown, bytes);
  const std::lock_guard lock(runtime().mutex);
  runtime().pinned[static_cast<char*>(*block)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) {
  const std::lock_guard lock(runtime().mutex);
  for (Stream* stream : runtime().streams) arrive(*stream);  // it waits for the devices
  runtime().pinned.erase(static_cast<char*>(block));
  ::operator delete(block);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  REEL_INJECT(stream->device);
  check_copy(to, from, bytes, kind, *stream);
  detail::put_on(*stream);
  const OnDevice on_device(stream->device);
  if (kind == cudaMemcpyDeviceToHost) {
    const char* source = static_cast<const char*>(from);
    Arrival arrival{to, std::vector<char>(source, source + bytes)};
    const std::lock_guard lock(runtime().mutex);
    stream->arrivals.push_back(std::move(arrival));
  } else {
    std::memmove(to, from, bytes);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  REEL_INJECT(stream->device);
  check_peer("target", to, to_device, bytes);
  check_peer("source", from, from_device, bytes);
  detail::put_on(*stream);
  const OnDevice target(to_device), source(from_device);
  const std::lock_guard lock(runtime().mutex);
  const std::thread::id thread = std::this_thread::get_id();
  for (Stream* other : runtime().streams) {
    if (other == stream || (other->device != to_device && other->device != from_device)) continue;
    const auto last = other->last.find(thread);
    if (last != other->last.end() && known_of(*stream, other->number) < last->second)
      throw Fault("cuda_on_cpu: a copy from device " + std::to_string(from_device) + " to device " +
                  std::to_string(to_device) + " may come before the end of what device " +
                  std::to_string(other->device) + " was given earlier");
    other->owed.push_back({stream->number, stream->pieces, thread, stream->device});
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  REEL_INJECT(stream->device);
  if (detail::device_of(block) != stream->device || !detail::in_block(block, bytes))
    throw Fault("cuda_on_cpu: cudaMemsetAsync of what is no block of memory of the stream's device");
  detail::put_on(*stream);
  const OnDevice on_device(stream->device);
  std::memset(block, value, bytes);
  return cudaSuccess;
}
