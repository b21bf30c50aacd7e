#include "reel/backends/cuda/context.h"

#include <algorithm>
#include <cstring>

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
  check(cudaSetDevice(index), "cudaSetDevice");
  return index;
}

}  // namespace

Context::Context(int index) : index_(selected(index)), memory_(stream_.stream), seen_(sizeof(Fault)), checks_(kChecks) {
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, index), "cudaDeviceGetAttribute");
  check(cudaMemsetAsync(fault(), 0, sizeof(Fault), stream()), "cudaMemsetAsync");
}

void Context::use() const {
  check_usable();
  thread_local int current = -1;
  if (current == index_) return;
  check(cudaSetDevice(index_), "cudaSetDevice");
  current = index_;
}

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
    slot.busy = true;
    check(cudaEventRecord(slot.done.event, stream()), "cudaEventRecord");
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
    slot.busy = true;
    check(cudaEventRecord(slot.done.event, stream()), "cudaEventRecord");
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
  throw_fault(fault);
}

std::uint64_t Context::begin_check(const char* op, std::int64_t limit, SourceLocation where) {
  const std::lock_guard lock(checks_mutex_);
  ++serial_;
  checks_[serial_ % kChecks] = {serial_, op, limit, where};
  return serial_;
}

void Context::throw_fault(const Fault& fault) {
  Check check;
  {
    const std::lock_guard lock(checks_mutex_);
    check = checks_[fault.serial % kChecks];
  }
  if (check.serial != fault.serial)  // long ago
    throw IndexError("cuda: indices must be in range, got " + std::to_string(fault.value) + " at position " +
                     std::to_string(fault.position));
  throw_index_error(check.op.c_str(), check.limit, fault.value, fault.position, check.where);
}

}  // namespace reel::cuda
