#include <reel/reel.h>

#include <cstdio>

int main() {
  std::puts(reel::Device::best().name().c_str());
  return 0;
}
