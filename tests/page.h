#pragma once

// What the tests of documentation pages share.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace reel {

inline std::string contents(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// What stands in `text` behind `begin` and before `end`, both of which come after `at`.
inline std::string between(const std::string& text, const std::string& begin, const std::string& end, std::size_t at) {
  const std::size_t first = text.find(begin, at);
  if (at == text.npos || first == text.npos) return "nothing";
  return text.substr(first + begin.size(), text.find(end, first + begin.size()) - first - begin.size());
}

// Three dots in `expected` stand for anything: addresses, bytes that other tests left.
inline bool reads(const std::string& text, const std::string& expected) {
  std::size_t at = 0, begin = 0;
  for (;;) {
    const std::size_t dots = expected.find("...", begin);
    const std::string part = expected.substr(begin, dots == expected.npos ? dots : dots - begin);
    const std::size_t found = dots == expected.npos ? text.size() - part.size() : text.find(part, at);
    if (text.size() < part.size() || found == text.npos || found < at || (begin == 0 && found != 0)) return false;
    if (text.compare(found, part.size(), part) != 0) return false;
    if (dots == expected.npos) return true;
    at = found + part.size();
    begin = dots + 3;
  }
}

}  // namespace reel
