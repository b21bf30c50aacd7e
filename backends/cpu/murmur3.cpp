#include "reel/core/scalar/murmur3.h"

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::murmur3(const Array& keys, std::uint32_t seed, const Array& y) {
  const int64_t n = y.shape[0], words = keys.shape[1];
  const int64_t* key = keys.as<int64_t>();
  int64_t* to = y.as<int64_t>();
  parallel_for(n, kGrain / 16 / (words + 1) + 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(key + i * words);
      const scalar::Murmur3Hash hash = scalar::murmur3(bytes, words * 8, seed);
      for (int j = 0; j < 4; ++j) to[4 * i + j] = hash.lane(j);
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
