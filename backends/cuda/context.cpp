#include "reel/backends/cuda/context.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "reel/backends/cuda/status.h"
#include "reel/core/error.h"
#include "reel/core/index_error.h"

namespace reel::cuda {

StreamOwner::StreamOwner() {
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
StreamOwner::~StreamOwner() { cudaStreamDestroy(stream); }

EventOwner::EventOwner() {
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}
EventOwner::~EventOwner() { cudaEventDestroy(event); }

PinnedOwner::PinnedOwner(std::size_t bytes) { check(cudaMallocHost(&data, bytes), "cudaMallocHost"); }
PinnedOwner::~PinnedOwner() { cudaFreeHost(data); }

namespace {

int selected(int index) {
  use_gpu(index);
  return index;
}

/// What checks of indices have begun, on all GPUs: a fault may be told by another one than its own.
struct Checks {
  struct Check {
    std::uint64_t serial = 0;
    std::string op;
    std::int64_t limit = 0;
    SourceLocation where;
  };
  static constexpr std::size_t kRemembered = 4096;  // older ones are told without their op

  std::mutex mutex;
  std::vector<Check> last = std::vector<Check>(kRemembered);
  std::uint64_t serial = 0;
};

Checks& checks() {
  static Checks* const instance = new Checks;
  return *instance;
}

/// The first one of each GPU: tests make more.
constinit std::atomic<const Context*> contexts[kMostGpus] = {};

/// `index`: the GPU that tells it.
[[noreturn]] void throw_fault(const Fault& fault, int index) {
  Checks::Check check;
  {
    const std::lock_guard lock(checks().mutex);
    check = checks().last[fault.serial % Checks::kRemembered];
  }
  if (check.serial != fault.serial)  // long ago
    throw IndexError(Device::cuda(index).name() + ": indices must be in range, got " + std::to_string(fault.value) +
                     " at position " + std::to_string(fault.position));
  throw_index_error(check.op.c_str(), check.limit, fault.value, fault.position, check.where);
}

}  // namespace

std::uint64_t begin_check(const char* op, std::int64_t limit, SourceLocation where) {
  Checks& all = checks();
  const std::lock_guard lock(all.mutex);
  ++all.serial;
  all.last[all.serial % Checks::kRemembered] = {all.serial, op, limit, where};
  return all.serial;
}

Context::Context(int index) : index_(selected(index)), memory_(index, stream_.stream), seen_(sizeof(Fault)) {
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, index), "cudaDeviceGetAttribute");
  check(cudaMemsetAsync(fault(), 0, sizeof(Fault), stream()), "cudaMemsetAsync");
  const Context* none = nullptr;
  contexts[index].compare_exchange_strong(none, this);
}

Context::~Context() {
  const Context* own = this;
  contexts[index_].compare_exchange_strong(own, nullptr);
}

void Context::use() const { use_gpu(index_); }

Context::Slot& Context::next_slot() {
  if (slots_.size() < kSlots) {
    slots_.push_back(std::make_unique<Slot>());
    return *slots_.back();
  }
  Slot& slot = *slots_[turn_++ % kSlots];
  if (slot.busy) check(cudaEventSynchronize(slot.done.event), "cudaEventSynchronize");
  slot.busy = false;
  return slot;
}

// The slot's copy is on the stream. If the event fails, the copy has ended when the error is told: nobody would wait for it.
void Context::mark_in_flight(Slot& slot) {
  slot.busy = true;
  const cudaError_t error = cudaEventRecord(slot.done.event, stream());
  if (error == cudaSuccess) return;
  cudaStreamSynchronize(stream());
  slot.busy = false;
  check(error, "cudaEventRecord");
}

void Context::from_host(const void* host, void* device, std::int64_t bytes) {
  use();
  const std::lock_guard lock(transfers_);
  for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kSlotBytes, bytes - begin));
    Slot& slot = next_slot();
    std::memcpy(slot.memory.data, static_cast<const char*>(host) + begin, count);
    check(
        cudaMemcpyAsync(static_cast<char*>(device) + begin, slot.memory.data, count, cudaMemcpyHostToDevice, stream()),
        "cudaMemcpyAsync");
    mark_in_flight(slot);
  }
}

void Context::to_host(const void* device, void* host, std::int64_t bytes) {
  use();
  const std::lock_guard lock(transfers_);
  struct Part {
    Slot* slot = nullptr;
    char* to = nullptr;
    std::size_t count = 0;
  } before;
  const auto finish = [](const Part& part) {
    if (part.slot == nullptr) return;
    check(cudaEventSynchronize(part.slot->done.event), "cudaEventSynchronize");
    std::memcpy(part.to, part.slot->memory.data, part.count);
    part.slot->busy = false;
  };
  // While one part is copied on by the host, the next one is on its way.
  for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kSlotBytes, bytes - begin));
    Slot& slot = next_slot();
    check(cudaMemcpyAsync(slot.memory.data, static_cast<const char*>(device) + begin, count, cudaMemcpyDeviceToHost,
                          stream()),
          "cudaMemcpyAsync");
    mark_in_flight(slot);
    finish(before);
    before = {&slot, static_cast<char*>(host) + begin, count};
  }
  finish(before);
  wait();
}

void Context::synchronize() {
  use();
  const std::lock_guard lock(transfers_);
  wait();
}

void Context::wait() {
  check(cudaMemcpyAsync(seen_.data, this->fault(), sizeof(Fault), cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  Fault fault;
  std::memcpy(&fault, seen_.data, sizeof fault);
  if (fault.serial == 0) return;
  check(cudaMemsetAsync(this->fault(), 0, sizeof(Fault), stream()), "cudaMemsetAsync");
  forget_elsewhere(fault.serial);
  throw_fault(fault, index_);
}

void Context::forget_elsewhere(std::uint64_t serial) const {
  for (const std::atomic<const Context*>& place : contexts) {
    const Context* other = place.load();
    if (other == nullptr || other == this) continue;
    try {
      forget_fault(*other, serial);
    } catch (const Error&) {  // it tells that itself
    }
  }
  use();
}

// The two contexts share no lock: a thread may copy in one direction while another copies in the other one.
void Context::follow(Context& other) {
  const std::lock_guard lock(other.reached_mutex_);
  other.use();
  check(cudaEventRecord(other.reached_.event, other.stream()), "cudaEventRecord");
  use();
  check(cudaStreamWaitEvent(stream(), other.reached_.event, 0), "cudaStreamWaitEvent");
}

// Copies work without it, through the host's memory if need be: what fails here does no harm.
void Context::open_way_from(const Context& source) {
  if (open_[source.index_].exchange(true)) return;
  int can = 0;
  cudaMemPool_t pool = nullptr;
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = index_;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  cudaError_t status = cudaDeviceCanAccessPeer(&can, index_, source.index_);
  if (status != cudaSuccess || can == 0) return;
  status = cudaDeviceGetMemPool(&pool, source.index_);
  if (status == cudaSuccess) status = cudaMemPoolSetAccess(pool, &access, 1);
  if (status != cudaSuccess) cudaGetLastError();
}

void Context::from_peer(Context& source, const void* from, void* to, std::size_t bytes) {
  use();
  open_way_from(source);
  // As the source's stream has come to it: later work there may find another fault while this one is on its way.
  source.use();
  const Workspace fault_there(source.memory(), sizeof(Fault));
  check(
      cudaMemcpyAsync(fault_there.as<void>(), source.fault(), sizeof(Fault), cudaMemcpyDeviceToDevice, source.stream()),
      "cudaMemcpyAsync");
  use();
  const Workspace fault_here(memory(), sizeof(Fault));
  follow(source);
  try {
    check(cudaMemcpyPeerAsync(to, index_, from, source.index_, bytes, stream()), "cudaMemcpyPeerAsync");
    check(cudaMemcpyPeerAsync(fault_here.as<void>(), index_, fault_there.as<void>(), source.index_, sizeof(Fault),
                              stream()),
          "cudaMemcpyPeerAsync");
    join_fault(*this, fault_here.as<Fault>());
    source.follow(*this);
  } catch (...) {
    cudaStreamSynchronize(stream());  // else the source's memory could be written while it is read
    throw;
  }
}

}  // namespace reel::cuda
