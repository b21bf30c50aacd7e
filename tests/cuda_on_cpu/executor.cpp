// Fibers and the order in which they run. A warp runs until all its lanes wait at a barrier of the block or have ended; then
// the next one does. A kernel that relies on more than its barriers order sees warps run far ahead of others. A thread that ends
// leaves its stack to the next lane that begins, so that threads which never wait are as cheap as calls.

#include "reel/tests/cuda_on_cpu/executor.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "reel/tests/cuda_on_cpu/state.h"

// Looking for uses of stacks after return costs the sanitizer two system calls per stack. (Visible to its library.)
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_stack_use_after_return=0";
}

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
constexpr std::size_t kStack = (128 << 10) + 9 * 64;  // no power of two, else all were in one set of the caches
constexpr std::size_t kMostShared = 48 << 10;
constexpr std::size_t kClosed = 64 << 10;    // behind shared memory, where nobody may touch anything
constexpr std::size_t kSharedBoundary = 16;  // at which shared memory begins
constexpr unsigned char kUntouched = 0xff;   // NaN in every floating type

enum class State : std::uint8_t { ready, at_block_barrier, at_warp_barrier, done };

struct Fiber {
  dim3 thread;
  unsigned lane;
  State state;
  char* stack;       // null: the thread has not begun, or has ended
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
  std::vector<char*> free_stacks;
  char* shared_end = nullptr;
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
  bool ended = true;  // the last launch, and with it each function that had a frame on a stack
  std::vector<unsigned> warp_order, lane_order;
  unsigned first_lane = 0;    // of the warp that runs: number of its thread
  std::size_t next_lane = 0;  // behind the one that runs, in lane_order

  Executor() {
    void* memory = mmap(nullptr, kMostThreads * kStack + kMostShared + kClosed, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stacks = static_cast<char*>(memory);
    shared_end = stacks + kMostThreads * kStack + kMostShared;
    __asan_poison_memory_region(shared_end - kMostShared, kMostShared + kClosed);
    free_all_stacks();
  }

  void free_all_stacks();
  void give_way();
  void prepare(unsigned thread);
  void enter(Fiber& fiber);
  bool enter_next();
  void resume(Fiber& fiber);
  bool release_warp(unsigned first, unsigned last);
  void run_warp(unsigned warp);
  void run_block();
  void open_shared(std::size_t bytes);
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
  __sanitizer_start_switch_fiber(fiber.state == State::done ? nullptr : &fiber.fake_stack, scheduler_bottom,
                                 scheduler_size);
  cuda_on_cpu_switch(&fiber.stack_pointer, scheduler);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
}

void fiber_main() {
  Executor& e = executor();
  __sanitizer_finish_switch_fiber(nullptr, &e.scheduler_bottom, &e.scheduler_size);
  do {
    try {
      e.body(e.context);
    } catch (...) {
      e.thrown = std::current_exception();
    }
    e.running->state = State::done;
  } while (!e.thrown && e.enter_next());
  e.give_way();
  __builtin_unreachable();
}

void Executor::free_all_stacks() {
  __asan_unpoison_memory_region(stacks, kMostThreads * kStack);
  free_stacks.clear();
  for (unsigned i = kMostThreads; i-- > 0;) free_stacks.push_back(stacks + i * kStack);
}

void Executor::prepare(unsigned thread) {
  Fiber& fiber = fibers[thread];
  const dim3 size = blockDim;
  fiber.thread = dim3(thread % size.x, thread / size.x % size.y, thread / size.x / size.y);
  fiber.lane = thread % kWarp;
  fiber.state = State::ready;
  fiber.parity = 0;
  fiber.stack = nullptr;
  fiber.fake_stack = nullptr;
}

void Executor::enter(Fiber& fiber) {
  running = &fiber;
  threadIdx = fiber.thread;
  lane = fiber.lane;
}

/// Goes on to the warp's next lane on the stack of one that has ended, unless that lane has a stack or is not ready.
bool Executor::enter_next() {
  if (next_lane == lane_order.size()) return false;
  Fiber& next = fibers[first_lane + lane_order[next_lane]];
  if (next.state != State::ready || next.stack != nullptr) return false;
  ++next_lane;
  next.stack = std::exchange(running->stack, nullptr);
  enter(next);
  return true;
}

void Executor::resume(Fiber& fiber) {
  if (fiber.stack == nullptr) {
    fiber.stack = free_stacks.back();
    free_stacks.pop_back();
    // As cuda_on_cpu_switch leaves a stack: six registers, then where to return to; 16-byte boundary as after a call.
    auto** top = reinterpret_cast<void**>(fiber.stack + kStack - 16);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.stack_pointer = top;
  }
  enter(fiber);
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber.stack, kStack);
  cuda_on_cpu_switch(&scheduler, fiber.stack_pointer);
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
  if (running->state == State::done) free_stacks.push_back(std::exchange(running->stack, nullptr));
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
  first_lane = first;
  do {
    for (next_lane = 0; next_lane < lane_order.size();) {
      Fiber& fiber = fibers[first + lane_order[next_lane++]];
      if (fiber.state == State::ready) resume(fiber);
    }
  } while (release_warp(first, last));
  for (unsigned i = first; i < last; ++i)
    if (fibers[i].state == State::at_warp_barrier)
      report("barrier divergence: at " + site(fibers[i]) +
                 " a lane waits for others of its warp that ended or wait "
                 "elsewhere",
             fibers[i]);
}

/// A block's shared memory ends where what nobody may touch begins.
void Executor::open_shared(std::size_t bytes) {
  __asan_poison_memory_region(shared_end - kMostShared, kMostShared);
  shared_bytes = bytes;
  shared = shared_end - (bytes + kSharedBoundary - 1) / kSharedBoundary * kSharedBoundary;
  __asan_unpoison_memory_region(shared, bytes);
}

void Executor::run_block() {
  std::memset(shared, kUntouched, shared_bytes);
  for (unsigned i = 0; i < threads; ++i) prepare(i);
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
    if (waiting == nullptr) return;
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

void set_schedule(Schedule schedule, std::uint64_t seed) {
  executor().schedule = schedule;
  executor().random.seed(seed);
}

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
  const OnDevice on_device(device);
  e.body = body;
  e.context = context;
  e.threads = static_cast<unsigned>(threads);
  if (!std::exchange(e.ended, false)) e.free_all_stacks();
  e.open_shared(config.dynamicSmemBytes);
  blockDim = block;
  gridDim = grid;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = e.schedule == Schedule::reversed ? blocks - 1 - i : i;
    blockIdx = dim3(static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                    static_cast<unsigned>(b / grid.x / grid.y));
    e.run_block();
  }
  e.ended = true;
  return cudaSuccess;
}

}  // namespace cuda_on_cpu
