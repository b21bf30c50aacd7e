// A user's program: says which device it got, and why no other.

#include <reel/reel.h>

#include <cstdio>

using namespace reel;

int main() {
  const Device device = Device::best();
  std::printf("%s\n", device.name().c_str());
  try {
    const Tensor x = ones({3}, {.device = Device::cuda()});
    std::printf("sum %g\n", sum(x * 2).item());
  } catch (const DeviceError& error) {
    std::puts(error.what());
  }
}
