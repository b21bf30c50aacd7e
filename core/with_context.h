#pragma once

// Private to core/ and ops/: errors of code that is the user's are told with the op that called it.

#include <stdexcept>
#include <utility>

#include "reel/core/error.h"

namespace reel::detail {

/// Calls f. What Reel throws in it passes through `reel_error(error)`; the standard's own errors, which have a text that
/// can be replaced, get `text_of(what)` as theirs and stay what they are: whoever throws a type of his own, derived from
/// one of these, catches that type. Others have no text that could be added to.
template <class F, class ReelError, class TextOf>
void with_context(F&& f, ReelError&& reel_error, TextOf&& text_of) {
  try {
    std::forward<F>(f)();
  } catch (Error& error) {
    reel_error(error);
    throw;
  } catch (std::runtime_error& error) {
    error = std::runtime_error(text_of(error.what()));
    throw;
  } catch (std::logic_error& error) {
    error = std::logic_error(text_of(error.what()));
    throw;
  }
}

}  // namespace reel::detail
