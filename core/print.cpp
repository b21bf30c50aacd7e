// Printing as numpy does it, with numpy's default options: nested brackets, columns aligned, as few digits as tell the numbers
// apart and at most 8 of a fraction, lines of 75 characters, large tensors summarised by their edges.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <sstream>
#include <vector>

#include "reel/core/number_text.h"
#include "reel/core/ops.h"
#include "reel/core/ragged.h"
#include "reel/core/tensor.h"

namespace reel {

namespace {

constexpr std::int64_t kSummarise = 1000;  // elements
constexpr std::int64_t kEdge = 3;          // shown at each end when summarised
constexpr std::size_t kLine = 75;          // characters
constexpr std::size_t kDigits = 8;         // of a fraction

using Texts = std::vector<std::string>;

// Calls visit(i, left_out) for what is shown of `count`, and once for all that a summary leaves out.
template <class F>
void for_each_shown(bool summarise, std::int64_t count, F visit) {
  const bool cuts = summarise && count > 2 * kEdge;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool left_out = cuts && i == kEdge;
    visit(i, left_out);
    if (left_out) i = count - kEdge - 1;
  }
}

// What a summary shows of x: the ends of its long axes. The rest is not read: there may be no memory that holds all of x.
Tensor ends_of(const Tensor& x) {
  Shape shape, part;
  std::uint32_t cut = 0;  // axes
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = x.shape()[i];
    if (size > 2 * kEdge) cut |= 1u << i;
    shape.push_back(std::min(size, 2 * kEdge));
    part.push_back(size > 2 * kEdge ? kEdge : size);
  }
  const Tensor y = empty(shape, x.options());
  // Each combination of first and last ends.
  for (std::uint32_t last = 0; last < 1u << x.rank(); ++last) {
    if ((last & ~cut) != 0) continue;
    std::int64_t from = 0, to = 0;
    for (int i = 0; i < x.rank(); ++i) {
      if ((last >> i & 1) == 0) continue;
      from += (x.shape()[i] - kEdge) * x.stride(i);
      to += kEdge * y.stride(i);
    }
    backend(x.device())
        .copy(detail::view(x, from, part, x.array().strides).array(),
              detail::view(y, to, part, y.array().strides).array());
  }
  return y;
}

// --- numbers ----------------------------------------------------------------------------------------------------------

// The shortest text that reads back as the same number of its type; an f32's is shorter than that of the equal f64.
std::string shortest(double value, DType dtype, std::chars_format format) {
  char text[400];
  const std::to_chars_result end = dtype == f32
                                       ? std::to_chars(text, text + sizeof text, static_cast<float>(value), format)
                                       : std::to_chars(text, text + sizeof text, value, format);
  return {text, end.ptr};
}

// The number of fewest digits that is the same bf16 or f16; of other types the number itself.
double in_few_digits(double value, DType dtype) {
  if (!is_half(dtype) || !std::isfinite(value)) return value;
  const auto bits = [=](double x) { return dtype == bf16 ? bfloat16(x).bits : float16(x).bits; };
  for (int digits = 0;; ++digits) {
    const std::string text = detail::formatted("%.*e", digits, value);
    double rounded = 0;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    if (bits(rounded) == bits(value)) return rounded;
  }
}

// A number in parts: "-12." "5" "", or "-1." "25" "e+10".
struct Parts {
  std::string whole, fraction, exponent;
};

Parts parts_of(double value, DType dtype, bool scientific) {
  std::string text = shortest(value, dtype, scientific ? std::chars_format::scientific : std::chars_format::fixed);
  const auto cut = [&] {
    const std::size_t exponent = std::min(text.find('e'), text.size());
    const std::size_t point = std::min(text.find('.'), exponent);
    const std::size_t fraction = std::min(point + 1, exponent);
    return Parts{text.substr(0, point) + ".", text.substr(fraction, exponent - fraction), text.substr(exponent)};
  };
  Parts parts = cut();
  if (parts.fraction.size() <= kDigits) return parts;
  text = detail::formatted(scientific ? "%.8e" : "%.8f", value);
  parts = cut();
  parts.fraction.erase(parts.fraction.find_last_not_of('0') + 1);
  return parts;
}

const char* not_finite(double value) { return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf"; }

// Whether exponents are shown, as numpy decides it: in the arithmetic of the type.
bool is_scientific(double smallest, double largest, DType dtype) {
  if (dtype == f64) return largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000;
  return largest >= 1e6 || smallest < 1e-4F || static_cast<float>(largest) / static_cast<float>(smallest) > 1000;
}

Texts formatted(std::vector<double> values, DType dtype) {
  for (double& value : values) value = in_few_digits(value, dtype);
  double largest = 0, smallest = INFINITY;
  for (const double value : values) {
    const double size = std::abs(value);
    if (!std::isfinite(size) || size == 0) continue;
    largest = std::max(largest, size);
    smallest = std::min(smallest, size);
  }
  const bool scientific = largest > 0 && is_scientific(smallest, largest, dtype);
  std::vector<Parts> all;
  std::size_t fraction = 0, exponent = 0;
  for (const double value : values) {
    all.push_back(std::isfinite(value) ? parts_of(value, dtype, scientific) : Parts{});
    fraction = std::max(fraction, all.back().fraction.size());
    exponent = std::max(exponent, all.back().exponent.size());
  }
  Texts texts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      texts.push_back(not_finite(values[i]));
    } else if (scientific) {  // all with as many digits, which are those of the number
      std::string padded = detail::formatted("%#.*e", static_cast<int>(fraction), values[i]);
      const std::size_t digits = padded.find('e') + 2;
      padded.insert(digits, digits - 2 + exponent - padded.size(), '0');
      texts.push_back(padded);
    } else {
      texts.push_back(all[i].whole + all[i].fraction + std::string(fraction - all[i].fraction.size(), ' '));
    }
  }
  return texts;
}

// A number that stands alone shows all its digits, as Python's floats do.
std::string scalar_text(double value, DType dtype) {
  if (!std::isfinite(value)) return not_finite(value);
  value = in_few_digits(value, dtype);
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-4 || size >= (dtype == f64 ? 1e16 : 1e6)))
    return shortest(value, dtype, std::chars_format::scientific);
  const std::string text = shortest(value, dtype, std::chars_format::fixed);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

// --- layout -----------------------------------------------------------------------------------------------------------

class Printer {
 public:
  Printer(std::ostream& out, const Shape& shape, bool summarise, Texts texts, std::size_t indent)
      : out_(out), shape_(shape), summarise_(summarise), texts_(std::move(texts)), indent_(indent) {
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  void print(int axis = 0) {
    if (axis == shape_.rank() - 1) return print_row();
    const auto separate = [&] {
      out_ << std::string(static_cast<std::size_t>(shape_.rank() - axis - 1), '\n') << std::string(inset(axis), ' ');
    };
    out_ << '[';
    for_each_shown(summarise_, shape_[axis], [&](std::int64_t i, bool left_out) {
      if (i > 0) separate();
      if (left_out) out_ << "...";
      else print(axis + 1);
    });
    out_ << ']';
  }

 private:
  std::size_t inset(int axis) const { return indent_ + static_cast<std::size_t>(axis) + 1; }

  // Words are put on a line while there is room for them and all the brackets that may follow.
  void print_row() {
    const int axis = shape_.rank() - 1;
    const std::size_t room = kLine - static_cast<std::size_t>(shape_.rank());
    std::string line = "[";
    std::size_t start = inset(axis) - 1;  // of the line
    for_each_shown(summarise_, shape_[axis], [&](std::int64_t i, bool left_out) {
      const std::string& text = left_out ? kDots : texts_[next_++];
      const std::size_t length = left_out ? text.size() : width_;
      if (i > 0 && start + line.size() + 1 + length > room) {
        out_ << line.erase(line.find_last_not_of(' ') + 1) << '\n';
        line.assign(inset(axis), ' ');
        start = 0;
      } else if (i > 0) {
        line += ' ';
      }
      line += std::string(length - text.size(), ' ') + text;
    });
    out_ << line << ']';
  }

  inline static const std::string kDots = "...";
  std::ostream& out_;
  const Shape& shape_;
  bool summarise_;
  Texts texts_;
  std::size_t indent_;
  std::size_t width_ = 0;
  std::size_t next_ = 0;
};

std::string integer_text(std::int64_t value, DType dtype) {
  return dtype != bool8 ? std::to_string(value) : value != 0 ? "True" : "False";
}

void print_tensor(std::ostream& out, const Tensor& x, std::size_t indent) {
  if (x.rank() == 0) {
    out << (is_floating(x.dtype()) ? scalar_text(x.item(), x.dtype())
                                   : integer_text(x.item<std::int64_t>(), x.dtype()));
    return;
  }
  if (x.size() == 0) {
    out << "[]";
    return;
  }
  const bool summarise = x.size() > kSummarise;
  const Tensor seen = summarise ? ends_of(x) : x;
  Texts texts;
  if (is_floating(x.dtype())) texts = formatted(seen.to_vector<double>(), x.dtype());
  else
    for (const std::int64_t value : seen.to_vector<std::int64_t>()) texts.push_back(integer_text(value, x.dtype()));
  if (x.dtype() == bool8)
    for (std::string& text : texts) text.insert(0, 5 - text.size(), ' ');  // as wide as "False", even if there is none
  Printer(out, x.shape(), summarise, std::move(texts), indent).print();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.name(); }

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x.defined()) return out << "undefined";
  detail::now_running_somewhere("operator<<");
  print_tensor(out, x, 0);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Ragged& x) {
  if (!x.defined()) return out << "undefined";
  detail::now_running_somewhere("operator<<");
  const Tensor& values = x.values();
  const bool summarise = values.size() > kSummarise || x.count() > kSummarise;
  out << "Ragged[";
  for_each_shown(summarise, x.count(), [&](std::int64_t i, bool left_out) {
    if (i > 0) out << ",\n       ";
    if (left_out) {
      out << "...";
      return;
    }
    Shape shape = values.shape();
    shape[0] = x.length(i);
    const std::int64_t offset = x.offsets().span()[static_cast<std::size_t>(i)] * values.stride(0);
    print_tensor(out, detail::view(values, offset, shape, values.array().strides), 7);
  });
  return out << ']';
}

std::string to_string(const Tensor& x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

std::string to_string(const Ragged& x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

void print(const Tensor& x) { std::cout << x << '\n'; }
void print(const Ragged& x) { std::cout << x << '\n'; }

}  // namespace reel
