// Values for the debugger to show; see printers.py.

#include <reel/reel.h>

using namespace reel;

// Where the debugger stops: the values are looked at in the caller.
__attribute__((noinline)) void look(const Tensor&) { asm volatile(""); }

int main() {
  const Tensor nothing;
  const Tensor matrix = tensor({0.5, 1, -2, 3, 4, 5}, {2, 3});
  const Tensor turned = transpose(matrix, 0, 1);
  const Tensor mask = matrix > 0;
  const Tensor halves = tensor({0.5, -3, 1e5}, {.dtype = bf16}), smaller = tensor({0.5, -3, 1e5}, {.dtype = f16});
  const Tensor scalar = full({}, 7, {.dtype = i64});
  const Tensor longer = arange(1000);
  const Ragged ragged = Ragged::from_lengths(tensor({1, 2, 3}, {.dtype = f64}), {1, 0, 2});
  const Parameter weight(ones({2}), "conv.weight");
  const Shape shape{4, 5};
  const Tensors list{scalar, matrix, scalar, scalar, mask};
  look(matrix);
  return static_cast<int>(list.size() + shape.size() + weight.size() + ragged.count()) +
                     (nothing.defined()
                          ? 1
                          : static_cast<int>(turned.size() + longer.size() + halves.size() + smaller.size())) >
                 0
             ? 0
             : 1;
}
