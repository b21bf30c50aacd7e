#include "reel/core/number_text.h"

#include <locale.h>  // newlocale, uselocale

#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace reel::detail {

std::string number_text(double x) {
  if (std::isnan(x)) return "nan";  // also with a sign, which x86 gives to its own
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

std::string formatted(const char* format, ...) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = ::uselocale(plain);
  char text[400];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ::uselocale(before);
  return text;
}

}  // namespace reel::detail
