#include "reel/core/precision.h"

#include <atomic>

namespace reel {

namespace {
std::atomic<MatmulPrecision> chosen{MatmulPrecision::highest};
}

MatmulPrecision matmul_precision() { return chosen.load(std::memory_order_relaxed); }
void set_matmul_precision(MatmulPrecision precision) { chosen.store(precision, std::memory_order_relaxed); }

}  // namespace reel
