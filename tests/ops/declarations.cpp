#include "reel/tests/ops/declarations.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace reel::test {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Without comments and directives.
std::string code_of(std::istream& in) {
  std::string code, line;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) continue;
    code += line.substr(0, line.find("//")) + ' ';
  }
  return code;
}

// The declarations between the braces of namespaces, each up to its ';' or its body.
std::vector<std::string> statements(const std::string& code) {
  std::vector<std::string> found;
  std::vector<bool> internal;  // for each open namespace
  std::string text;
  int parentheses = 0;
  const auto public_here = [&] { return std::find(internal.begin(), internal.end(), true) == internal.end(); };
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '(') ++parentheses;
    if (c == ')') --parentheses;
    if (parentheses > 0 || (c != ';' && c != '{' && c != '}')) {
      if (c != ' ' || !text.empty()) text += c;
      continue;
    }
    if (c == '}') {
      internal.pop_back();
    } else if (c == '{' && text.starts_with("namespace")) {
      internal.push_back(text.find("detail") != text.npos || text.find("check") != text.npos);
    } else {
      if (public_here() && !text.empty()) found.push_back(text);
      if (c == '{')
        for (int depth = 1; depth > 0;) {
          ++i;
          depth += (code[i] == '{') - (code[i] == '}');
        }
    }
    text.clear();
  }
  return found;
}

std::string word_before(const std::string& text, std::size_t end) {
  while (end > 0 && text[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

}  // namespace

std::vector<Declaration> public_declarations(const std::string& folder) {
  std::vector<Declaration> declarations;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    const std::string header = file.path().filename().string();
    for (const std::string& text : statements(code_of(in))) {
      if (text.starts_with("struct ") || text.starts_with("class ")) {
        if (text.find("REEL_API") != text.npos)
          declarations.push_back({.name = word_before(text, text.size()), .header = header, .type = true});
        continue;
      }
      // A constraint of a template has parentheses too.
      std::size_t open = text.find('(');
      if (open != text.npos && word_before(text, open) == "requires") {
        int depth = 1;
        while (depth > 0) {
          ++open;
          depth += (text[open] == '(') - (text[open] == ')');
        }
        open = text.find('(', open);
      }
      if (open == text.npos || text.find("operator") < open || text.starts_with("using ")) continue;
      const std::string parameters = text.substr(open);
      declarations.push_back(
          {.name = word_before(text, open),
           .header = header,
           .ragged = parameters.find("Ragged") != parameters.npos,
           .axes = parameters.find("int axis") != parameters.npos || parameters.find("Axes& axes") != parameters.npos});
    }
  }
  return declarations;
}

}  // namespace reel::test
