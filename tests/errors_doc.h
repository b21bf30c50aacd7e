#pragma once

// The examples of docs/errors.md.

#include <vector>

namespace reel {

struct Example {
  const char* title;  // on the page, and in the comment above `run`
  void (*run)();      // its lines are counted from the first, in "train.cpp"
  const char* file;   // of tests/, where the code stands
};

std::vector<Example> examples_of_values();
std::vector<Example> examples_of_tapes();

}  // namespace reel
