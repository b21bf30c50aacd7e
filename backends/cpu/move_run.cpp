#include "reel/backends/cpu/move_run.h"

#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class T>
void move_elements(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t count) {
  if (y_stride != 1) {
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
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = x[i * x_stride];
  }
}

}  // namespace

void move_run(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t count, int64_t element_size) {
  if (x_stride == 1 && y_stride == 1) {
    __builtin_memcpy(y, x, static_cast<std::size_t>(count * element_size));
    return;
  }
  dispatch_bytes(static_cast<std::size_t>(element_size), [&]<class T>() {
    move_elements(static_cast<const T*>(x), x_stride, static_cast<T*>(y), y_stride, count);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
