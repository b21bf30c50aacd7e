#pragma once

// What the headers in ops/ declare for users, read from their text.

#include <string>
#include <vector>

namespace reel::test {

struct Declaration {
  std::string name, header;
  bool type = false;    // an exported class, not a function
  bool ragged = false;  // takes a Ragged
  bool axes = false;    // along axes that the caller names
};

/// Functions and exported classes in the public namespaces of every header of `folder`; operators are not listed.
std::vector<Declaration> public_declarations(const std::string& folder);

}  // namespace reel::test
