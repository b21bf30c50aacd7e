#include "reel/core/precision.h"

#include <atomic>

namespace reel {

namespace {
std::atomic<MatmulPrecision> chosen{MatmulPrecision::highest};
thread_local bool exact = false;
}  // namespace

MatmulPrecision matmul_precision() { return exact ? MatmulPrecision::highest : chosen.load(std::memory_order_relaxed); }
void set_matmul_precision(MatmulPrecision precision) { chosen.store(precision, std::memory_order_relaxed); }

detail::ExactProducts::ExactProducts() : before_(exact) { exact = true; }
detail::ExactProducts::~ExactProducts() { exact = before_; }

}  // namespace reel
