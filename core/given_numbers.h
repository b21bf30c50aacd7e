#pragma once

// Private to core/ and ops/.

#include <cstddef>

#include "reel/core/dtype.h"
#include "reel/core/running.h"

namespace reel::detail {

/// While it lives, what is recorded was computed with these numbers too: a tape with check_finite tells them among the
/// operands, and takes an infinity among them as given.
class GivenNumbers {
 public:
  GivenNumbers(const Scalar* numbers, std::size_t count) : numbers_(numbers), count_(count), outer_(innermost) {
    innermost = this;
  }
  ~GivenNumbers() { innermost = outer_; }
  GivenNumbers(const GivenNumbers&) = delete;
  GivenNumbers& operator=(const GivenNumbers&) = delete;

  const Scalar* begin() const { return numbers_; }
  const Scalar* end() const { return numbers_ + count_; }

  /// The last that lives in this thread, or null.
  static const GivenNumbers* current() { return innermost; }

 private:
  static thread_local constinit const GivenNumbers* innermost REEL_FAST_TLS;

  const Scalar* numbers_;
  std::size_t count_;
  const GivenNumbers* outer_;
};

}  // namespace reel::detail
