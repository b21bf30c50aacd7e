#pragma once

#include <cstdint>

namespace reel::cuda {

/// The device word: the first bad index since the host last looked, as kernels on the device report it. `serial` is the
/// number of the check that found it; 0: none.
struct Fault {
  unsigned lock;
  unsigned unused;
  unsigned long long serial;
  long long position, value;
};

class Context;

/// Puts on the stream of `context`: the fault at `incoming` in its memory, if there is one, goes to its device word, unless an
/// earlier one is there.
void join_fault(const Context& context, const Fault* incoming);

/// Puts on the stream of `context`: the fault of check `serial` leaves its device word, if it is there.
void forget_fault(const Context& context, std::uint64_t serial);

}  // namespace reel::cuda
