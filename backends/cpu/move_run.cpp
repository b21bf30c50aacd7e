#include "reel/backends/cpu/move_run.h"

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class T>
void move_elements(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t count) {
  if (y_stride != 1) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) y[i * y_stride] = x[i * x_stride];
  } else if (x_stride == 0) {
    const T value = *x;
    if (value == 0) {  // the library's way of clearing large blocks reads nothing
      __builtin_memset(y, 0, static_cast<std::size_t>(count) * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < count; ++i) y[i] = value;
  } else if (x_stride == -1) {
    for (int64_t i = 0; i < count; ++i) y[i] = x[-i];
  } else if (x_stride == 2) {
#pragma omp simd
    for (int64_t i = 0; i < count - 1; ++i) y[i] = x[2 * i];
    if (count > 0) y[count - 1] = x[2 * (count - 1)];  // what vectors read beside the last is nobody's
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = x[i * x_stride];
  }
}

}  // namespace

void move_run(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t count, int64_t element_size) {
  if (x_stride == 1 && y_stride == 1) {
    copy_bytes(x, y, count * element_size);
    return;
  }
  dispatch_bytes(static_cast<std::size_t>(element_size), [&]<class T>() {
    move_elements(static_cast<const T*>(x), x_stride, static_cast<T*>(y), y_stride, count);
  });
}

void copy_bytes(const void* from, void* to, int64_t bytes) {
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  constexpr int64_t vectors = 4, step = vectors * kVectorBytes;
  if (bytes >= 2048) {
    using Bytes = Vec<float>;
    const auto load = [](const char* p) { return Bytes::load(reinterpret_cast<const float*>(p)); };
    const auto store = [](Bytes v, char* p) { v.store(reinterpret_cast<float*>(p)); };
    const int64_t before = -reinterpret_cast<std::intptr_t>(to) & (kVectorBytes - 1);
    store(load(source), target);
    source += before, target += before, bytes -= before;
    for (; bytes >= step; source += step, target += step, bytes -= step) {
      Bytes some[vectors];
#pragma GCC unroll 4
      for (int64_t k = 0; k < vectors; ++k) some[k] = load(source + k * kVectorBytes);
#pragma GCC unroll 4
      for (int64_t k = 0; k < vectors; ++k) store(some[k], target + k * kVectorBytes);
    }
  }
  __builtin_memcpy(target, source, static_cast<std::size_t>(bytes));
}

}  // namespace reel::cpu::REEL_CPU_ISA
