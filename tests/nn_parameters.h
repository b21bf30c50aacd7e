#pragma once

// For tests of optimisers: parameters of f64 with random values and gradients.

#include <cstdint>
#include <vector>

#include "reel/core/random.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"

namespace reel {

inline std::vector<double> numbers(std::int64_t n, std::uint64_t seed) {
  Generator generator(seed);
  return randn({n}, generator, {.dtype = f64}).to_vector<double>();
}

inline Parameter parameter_of(const std::vector<double>& values, const char* name = "") {
  return Parameter(from_vector(values), name);
}

inline std::vector<double> values_of(const Parameter& p) { return p.value().to_vector<double>(); }

inline void give_gradient(Parameter p, std::uint64_t seed) { p.set_gradient(from_vector(numbers(p.size(), seed))); }

}  // namespace reel
