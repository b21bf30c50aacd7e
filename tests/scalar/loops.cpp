#include "reel/tests/scalar/loops.h"

#include "reel/backends/cpu/activations.h"
#include "reel/backends/cpu/exp_log.h"
#include "reel/backends/cpu/sines.h"
#include "reel/core/scalar/binary.h"
#include "reel/core/scalar/philox.h"

// Compiled once per instruction set, into a namespace of that set; nothing else may have linkage here.
namespace reel::scalar_test::REEL_CPU_ISA {
namespace {

template <class Op, class T>
void forward_formula(const void* x, const void*, void* y, std::int64_t n) {
  const T* const from = static_cast<const T*>(x);
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = Op::forward(from[i]);
}

template <class Op, class T>
void backward_formula(const void* saved, const void* dy, void* dx, std::int64_t n) {
  const T *const from = static_cast<const T*>(saved), *const from_dy = static_cast<const T*>(dy);
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(dx)[i] = from_dy[i] * Op::derivative(from[i]);
}

// The CPU backend has loops of its own of some functions.
template <class Op, class T>
void forward(std::int64_t n, const T* x, T* y) {
  if constexpr (sizeof(T) == sizeof(float) && cpu::REEL_CPU_ISA::kIsActivation<Op>) {
    cpu::REEL_CPU_ISA::run_activation<Op>(n, x, y, false, forward_formula<Op, T>);
  } else if constexpr (cpu::REEL_CPU_ISA::Turns<Op>) {
    cpu::REEL_CPU_ISA::sines(n, x, y, Op::quarters);
  } else if constexpr (cpu::REEL_CPU_ISA::kIsOfVectors<Op, T>) {
    cpu::REEL_CPU_ISA::run_of_vectors<Op>(n, x, y);
  } else {
    forward_formula<Op, T>(x, nullptr, y, n);
  }
}

template <class Op, class T>
void backward(std::int64_t n, const T* saved, const T* dy, T* dx) {
  if constexpr (sizeof(T) == sizeof(float) && cpu::REEL_CPU_ISA::kIsActivationSlope<Op>) {
    cpu::REEL_CPU_ISA::run_activation_backward<Op>(n, saved, dy, dx, false, backward_formula<Op, T>);
  } else if constexpr (cpu::REEL_CPU_ISA::Turns<Op>) {
    cpu::REEL_CPU_ISA::sines_times(n, saved, dy, dx, Op::quarters + 1);
  } else {
    backward_formula<Op, T>(saved, dy, dx, n);
  }
}

template <class Op, class T>
T derivative(T saved) {
  return Op::derivative(saved);
}

template <class T>
void pow_of(std::int64_t n, const T* x, const T* exponent, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = scalar::Pow::forward(x[i], exponent[i]);
}

void normal_f32(std::int64_t n, const std::uint32_t* lanes, float* y) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    const auto pair = scalar::normal_pair(lanes[2 * i], lanes[2 * i + 1]);
    y[2 * i] = pair.first;
    y[2 * i + 1] = pair.second;
  }
}

void normal_f64(std::int64_t n, std::uint64_t seed, std::uint64_t stream, double* y) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    const auto pair = scalar::normal_pair(scalar::philox(seed, stream, static_cast<std::uint64_t>(i)));
    y[2 * i] = pair.first;
    y[2 * i + 1] = pair.second;
  }
}

#define REEL_LOOPS(name, Struct)                                                                            \
  {#name,                                                                                                   \
   scalar::Struct::saved,                                                                                   \
   {&forward<scalar::Struct, float>, &backward<scalar::Struct, float>, &derivative<scalar::Struct, float>}, \
   {&forward<scalar::Struct, double>, &backward<scalar::Struct, double>, &derivative<scalar::Struct, double>}},
constexpr UnaryLoops kLoops[] = {REEL_UNARY_OPS(REEL_LOOPS)};
#undef REEL_LOOPS

}  // namespace

extern const UnaryLoops* const loops = kLoops;
extern const std::int64_t count = sizeof(kLoops) / sizeof(kLoops[0]);
extern const RandomLoops random = {&normal_f32, &normal_f64};
extern const PowLoops powers = {&pow_of<float>, &pow_of<double>};

}  // namespace reel::scalar_test::REEL_CPU_ISA
