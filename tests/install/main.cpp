// Uses a little of everything that crosses the library's boundary: objects, templates, a callback, an exception.

#include <reel/reel.h>

#include <cstdio>

using namespace reel;

int main() {
  Parameter w(full({3}, 2.0), "w");
  {
    Tape tape;
    tape.backward(sum(w * w));
  }
  if (sum(w.gradient()).item() != 12.0) return 1;

  try {
    matmul(zeros({2, 3}), zeros({2, 3}));
    return 1;
  } catch (const ShapeError& error) {
    std::puts(error.what());
  }
  return 0;
}
