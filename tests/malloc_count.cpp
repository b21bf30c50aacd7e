// Counts allocations by standing in front of glibc's allocator. Only for test programs that link this file.

#include "reel/tests/malloc_count.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace reel {
namespace {
std::atomic<std::int64_t> calls{0}, blocks_left{INT64_MAX}, before_failure{-1};
}
std::int64_t malloc_calls() { return calls.load(); }
void limit_aligned_blocks(std::int64_t count) { blocks_left = count; }
void fail_malloc_after(std::int64_t count) { before_failure = count; }
void fail_no_malloc() { before_failure = -1; }
}  // namespace reel

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REEL_COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define REEL_COUNTS_MALLOC 0
#else
#define REEL_COUNTS_MALLOC 1
#endif
#else
#define REEL_COUNTS_MALLOC 1
#endif

bool reel::malloc_is_counted() { return REEL_COUNTS_MALLOC != 0; }

#if REEL_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++reel::calls;
  if (reel::before_failure.load(std::memory_order_relaxed) >= 0 && reel::before_failure-- == 0) return nullptr;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++reel::calls;
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  ++reel::calls;
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++reel::calls;
  if (reel::blocks_left.load() <= 0) return nullptr;
  --reel::blocks_left;
  return __libc_memalign(alignment, bytes);
}
}
#endif
