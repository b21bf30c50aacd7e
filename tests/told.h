#pragma once

#include <gtest/gtest.h>

#include <string>

#include "reel/tests/error_of.h"

namespace reel {

/// "train_test.cpp:7)", as the text of an error about that line ends.
inline std::string end_of_error(const std::string& file, int line) {
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(line) + ")";
}

/// The error of f reads "op: ..." and names the line of this call.
template <class F>
void expect_told(const std::string& op, F f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::string text = error_of(f);
  EXPECT_EQ(text.rfind(op + ": ", 0), 0u) << text;
  EXPECT_NE(text.find(end_of_error(file, line)), std::string::npos) << text;
}

}  // namespace reel
