// Fibers and the order in which they run. A warp runs until all its lanes wait at a barrier of the block or have ended; then
// the next one does. A kernel that relies on more than its barriers order sees warps run far ahead of others.

#include "reel/tests/cuda_on_cpu/executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "reel/tests/cuda_on_cpu/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define __sanitizer_start_switch_fiber(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(save, bottom, size) ((void)(save))
#endif

// Saves the callee's registers on the stack and *save, goes on at `to`. (ucontext would make two system calls.)
extern "C" void cuda_on_cpu_switch(void** save, void* to);
asm(R"(
.text
.globl cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

unsigned lane = 0;

namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024;
constexpr std::size_t kStack = 128 << 10, kMostShared = 48 << 10;
constexpr std::size_t kClosed = 64 << 10;    // behind shared memory, where nobody may touch anything
constexpr std::size_t kSharedBoundary = 16;  // at which shared memory begins
constexpr unsigned char kUntouched = 0xff;   // NaN in every floating type

char* shared_end = nullptr;  // also for the signal handler

enum class State : std::uint8_t { ready, at_block_barrier, at_warp_barrier, done };

struct Fiber {
  dim3 thread;
  unsigned lane;
  State state;
  unsigned mask;     // of the lanes that the warp's barrier waits for
  unsigned parity;   // which of the two slots the next shuffle takes
  bool vote;         // at the block's barrier
  const char* file;  // of the barrier
  int line;
  void* stack_pointer;
  void* fake_stack;  // of the address sanitizer
  std::uint64_t slot[2];
};

struct Executor {
  std::mutex mutex;
  Fiber fibers[kMostThreads];
  unsigned threads = 0;
  bool vote = false;  // of any thread at the block's last barrier
  char* stacks = nullptr;
  char* shared = nullptr;  // as close to shared_end as its boundary allows
  std::size_t shared_bytes = 0;
  void* scheduler = nullptr;  // its stack pointer while a fiber runs
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_size = 0;
  Fiber* running = nullptr;
  void (*body)(const void*) = nullptr;
  const void* context = nullptr;
  std::exception_ptr thrown;
  Schedule schedule = Schedule::in_order;
  std::mt19937_64 random{1};
  std::uint64_t switches = 0;
  std::vector<unsigned> warp_order, lane_order;

  Executor() {
    void* memory = mmap(nullptr, kMostThreads * kStack + kMostShared + kClosed, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stacks = static_cast<char*>(memory);
    shared_end = stacks + kMostThreads * kStack + kMostShared;
    if (mprotect(shared_end, kClosed, PROT_NONE) != 0) throw std::bad_alloc();
    ASAN_POISON_MEMORY_REGION(shared_end - kMostShared, kMostShared + kClosed);
  }

  char* stack_of(const Fiber& fiber) { return stacks + static_cast<std::size_t>(&fiber - fibers) * kStack; }
  void give_way();
  void start(unsigned thread);
  void resume(Fiber& fiber);
  bool release_warp(unsigned first, unsigned last);
  void run_warp(unsigned warp);
  void run_block();
  void open_shared(std::size_t bytes);
  void check_shared();
  void order(std::vector<unsigned>& list, unsigned count);
  [[noreturn]] void report(const std::string& what, const Fiber& fiber);
};

Executor& executor() {
  static Executor* const instance = new Executor;
  return *instance;
}

std::string site(const Fiber& fiber) { return std::string(fiber.file) + ":" + std::to_string(fiber.line); }

/// From a fiber back to the scheduler.
void Executor::give_way() {
  Fiber& fiber = *running;
  ++switches;
  __sanitizer_start_switch_fiber(fiber.state == State::done ? nullptr : &fiber.fake_stack, scheduler_bottom,
                                 scheduler_size);
  cuda_on_cpu_switch(&fiber.stack_pointer, scheduler);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
}

void fiber_main() {
  Executor& e = executor();
  __sanitizer_finish_switch_fiber(nullptr, &e.scheduler_bottom, &e.scheduler_size);
  try {
    e.body(e.context);
  } catch (...) {
    e.thrown = std::current_exception();
  }
  e.running->state = State::done;
  e.give_way();
  __builtin_unreachable();
}

void Executor::start(unsigned thread) {
  Fiber& fiber = fibers[thread];
  const dim3 size = blockDim;
  fiber.thread = dim3(thread % size.x, thread / size.x % size.y, thread / size.x / size.y);
  fiber.lane = thread % kWarp;
  fiber.state = State::ready;
  fiber.parity = 0;
  fiber.fake_stack = nullptr;
  ASAN_UNPOISON_MEMORY_REGION(stack_of(fiber), kStack);
  // As cuda_on_cpu_switch leaves a stack: six registers, then where to return to; 16-byte boundary as after a call.
  auto** top = reinterpret_cast<void**>(stack_of(fiber) + kStack - 16);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void Executor::resume(Fiber& fiber) {
  running = &fiber;
  threadIdx = fiber.thread;
  lane = fiber.lane;
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack_of(fiber), kStack);
  cuda_on_cpu_switch(&scheduler, fiber.stack_pointer);
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
  if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
}

void Executor::order(std::vector<unsigned>& list, unsigned count) {
  list.resize(count);
  std::iota(list.begin(), list.end(), 0u);
  if (schedule == Schedule::reversed) std::reverse(list.begin(), list.end());
  if (schedule == Schedule::random) std::shuffle(list.begin(), list.end(), random);
}

void Executor::report(const std::string& what, const Fiber& fiber) {
  const auto text = [](const dim3& d) {
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
  };
  throw Fault("cuda_on_cpu: " + what + ", in block " + text(blockIdx) + ", thread " + text(fiber.thread));
}

/// Lets the lanes go on that wait for each other and are all there.
bool Executor::release_warp(unsigned first, unsigned last) {
  unsigned waiting = 0;
  for (unsigned i = first; i < last; ++i)
    if (fibers[i].state == State::at_warp_barrier) waiting |= 1u << (i - first);
  const unsigned there = last - first == kWarp ? ~0u : (1u << (last - first)) - 1;
  bool any = false;
  for (unsigned i = first; i < last; ++i) {
    Fiber& fiber = fibers[i];
    if (fiber.state != State::at_warp_barrier || (fiber.mask & there & ~waiting) != 0) continue;
    for (unsigned j = first; j < last; ++j)
      if ((fiber.mask >> (j - first) & 1) != 0 && (fibers[j].mask != fiber.mask || fibers[j].line != fiber.line))
        report("barrier divergence: lanes of a warp wait at " + site(fiber) + " and at " + site(fibers[j]), fiber);
    for (unsigned j = first; j < last; ++j)
      if ((fiber.mask >> (j - first) & 1) != 0) fibers[j].state = State::ready;
    any = true;
  }
  return any;
}

void Executor::run_warp(unsigned warp) {
  const unsigned first = warp * kWarp, last = std::min(first + kWarp, threads);
  order(lane_order, last - first);
  do {
    for (const unsigned i : lane_order)
      if (fibers[first + i].state == State::ready) resume(fibers[first + i]);
  } while (release_warp(first, last));
  for (unsigned i = first; i < last; ++i)
    if (fibers[i].state == State::at_warp_barrier)
      report("barrier divergence: at " + site(fibers[i]) +
                 " a lane waits for others of its warp that ended or wait "
                 "elsewhere",
             fibers[i]);
}

/// A block's shared memory ends where what nobody may touch begins: at the byte with the address sanitizer, else up to
/// kSharedBoundary - 1 bytes behind, which are looked at when the block has ended.
void Executor::open_shared(std::size_t bytes) {
  ASAN_POISON_MEMORY_REGION(shared_end - kMostShared, kMostShared);
  shared_bytes = bytes;
  shared = shared_end - (bytes + kSharedBoundary - 1) / kSharedBoundary * kSharedBoundary;
  ASAN_UNPOISON_MEMORY_REGION(shared, bytes);
#if !defined(__SANITIZE_ADDRESS__)
  std::memset(shared + bytes, kUntouched, static_cast<std::size_t>(shared_end - shared) - bytes);
#endif
}

void Executor::check_shared() {
#if !defined(__SANITIZE_ADDRESS__)
  for (const char* at = shared + shared_bytes; at < shared_end; ++at)
    if (static_cast<unsigned char>(*at) != kUntouched)
      report("out of bounds: byte " + std::to_string(at - shared) + " of " + std::to_string(shared_bytes) +
                 " bytes of shared memory was written",
             fibers[0]);
#endif
}

void Executor::run_block() {
  std::memset(shared, kUntouched, shared_bytes);
  for (unsigned i = 0; i < threads; ++i) start(i);
  for (;;) {
    order(warp_order, (threads + kWarp - 1) / kWarp);
    for (const unsigned warp : warp_order) run_warp(warp);
    const Fiber* waiting = nullptr;
    unsigned done = 0;
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[i];
      if (fiber.state == State::done) {
        ++done;
      } else if (waiting == nullptr) {
        waiting = &fiber;
      } else if (fiber.line != waiting->line || fiber.file != waiting->file) {
        report("barrier divergence: threads wait at " + site(*waiting) + " and at " + site(fiber), fiber);
      }
    }
    if (waiting == nullptr) return check_shared();
    if (done > 0)
      report("barrier divergence: " + std::to_string(done) + " threads had ended at " + site(*waiting), *waiting);
    vote = false;
    for (unsigned i = 0; i < threads; ++i) {
      vote = vote || fibers[i].vote;
      fibers[i].state = State::ready;
    }
  }
}

void wait(State state, unsigned mask, const char* file, int line, bool vote = false) {
  Executor& e = executor();
  Fiber& fiber = *e.running;
  fiber.state = state;
  fiber.mask = mask;
  fiber.vote = vote;
  fiber.file = file;
  fiber.line = line;
  e.give_way();
}

}  // namespace

void sync_threads(const char* file, int line) { wait(State::at_block_barrier, 0, file, line); }

bool sync_threads_or(bool vote, const char* file, int line) {
  wait(State::at_block_barrier, 0, file, line, vote);
  return executor().vote;
}

void sync_warp(unsigned mask, const char* file, int line) { wait(State::at_warp_barrier, mask, file, line); }

// Two slots in turn: no lane writes one again before all have read it, for they meet at the barrier in between.
std::uint64_t shuffle(unsigned mask, std::uint64_t bits, unsigned source, const char* file, int line) {
  Executor& e = executor();
  Fiber& fiber = *e.running;
  const unsigned parity = fiber.parity;
  fiber.parity ^= 1;
  fiber.slot[parity] = bits;
  sync_warp(mask, file, line);
  const auto number = static_cast<unsigned>(&fiber - e.fibers);
  const unsigned other = number - fiber.lane + source % kWarp;
  return other < e.threads ? e.fibers[other].slot[parity] : bits;
}

unsigned ballot(unsigned mask, bool vote, const char* file, int line) {
  Executor& e = executor();
  Fiber& fiber = *e.running;
  const unsigned parity = fiber.parity;
  fiber.parity ^= 1;
  fiber.slot[parity] = vote ? 1 : 0;
  sync_warp(mask, file, line);
  const auto first = static_cast<unsigned>(&fiber - e.fibers) - fiber.lane;
  unsigned votes = 0;
  for (unsigned i = 0; i < kWarp && first + i < e.threads; ++i)
    if ((mask >> i & 1) != 0 && e.fibers[first + i].slot[parity] != 0) votes |= 1u << i;
  return votes;
}

void* shared_memory() { return executor().shared; }

bool detail::is_behind_shared(const void* address) {
  const char* place = static_cast<const char*>(address);
  return shared_end != nullptr && place >= shared_end && place < shared_end + kClosed;
}

void set_schedule(Schedule schedule, std::uint64_t seed) {
  executor().schedule = schedule;
  executor().random.seed(seed);
}

std::uint64_t switches() { return executor().switches; }

cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), const void* context) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMostThreads || blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535 || config.dynamicSmemBytes > kMostShared)
    return detail::failing(cudaErrorInvalidConfiguration);
  if (const cudaError_t error = detail::put_kernel(config.stream); error != cudaSuccess) return error;
  Executor& e = executor();
  const std::lock_guard lock(e.mutex);
  int device = 0;
  cudaGetDevice(&device);
  const detail::KernelRuns runs(device);
  e.body = body;
  e.context = context;
  e.threads = static_cast<unsigned>(threads);
  e.open_shared(config.dynamicSmemBytes);
  blockDim = block;
  gridDim = grid;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = e.schedule == Schedule::reversed ? blocks - 1 - i : i;
    blockIdx = dim3(static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                    static_cast<unsigned>(b / grid.x / grid.y));
    e.run_block();
  }
  return cudaSuccess;
}

}  // namespace cuda_on_cpu
