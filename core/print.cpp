// Printing as numpy does it: nested brackets, columns aligned, large tensors summarised by their edges.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <sstream>

#include "reel/core/ragged.h"
#include "reel/core/tensor.h"

namespace reel {

namespace {

constexpr std::int64_t kSummarise = 1000;  // elements
constexpr std::int64_t kEdge = 3;          // shown at each end when summarised

struct Layout {
  Shape shape;
  bool summarise = false;

  bool hidden(int axis, std::int64_t i) const {
    return summarise && shape[axis] > 2 * kEdge && i >= kEdge && i < shape[axis] - kEdge;
  }
};

// The flat positions that are shown, in order.
void shown(const Layout& layout, int axis, std::int64_t flat, std::vector<std::int64_t>& positions) {
  if (axis == layout.shape.rank()) {
    positions.push_back(flat);
    return;
  }
  for (std::int64_t i = 0; i < layout.shape[axis]; ++i)
    if (!layout.hidden(axis, i)) shown(layout, axis + 1, flat * layout.shape[axis] + i, positions);
}

std::string trimmed(double value, int digits, bool scientific) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  std::snprintf(text, sizeof text, scientific ? "%.*e" : "%.*f", digits, value);
  return text;
}

int decimals_needed(double value, int most, bool scientific) {
  if (!std::isfinite(value)) return 0;
  std::string text = trimmed(value, most, scientific);
  const std::size_t exponent = std::min(text.find('e'), text.size());
  std::size_t end = exponent;
  while (end > 0 && text[end - 1] == '0') --end;
  return static_cast<int>(end - text.find('.') - 1);
}

std::vector<std::string> formatted(const std::vector<double>& values) {
  double largest = 0, smallest = INFINITY;
  for (const double value : values) {
    const double size = std::abs(value);
    if (!std::isfinite(size) || size == 0) continue;
    largest = std::max(largest, size);
    smallest = std::min(smallest, size);
  }
  const bool scientific =
      largest >= 1e8 || (largest > 0 && smallest < 1e-4) || (largest > 0 && largest / smallest > 1e6);
  int digits = 0;
  for (const double value : values) digits = std::max(digits, decimals_needed(value, scientific ? 4 : 6, scientific));
  std::vector<std::string> texts;
  for (const double value : values) {
    std::string text = trimmed(value, digits, scientific);
    if (std::isfinite(value) && digits == 0 && !scientific) text += '.';
    if (std::isfinite(value) && !scientific)  // zeros behind the last digit of each are left blank
      for (std::size_t i = text.size(); i-- > 0 && text[i] == '0' && text.find('.') < i;) text[i] = ' ';
    texts.push_back(std::move(text));
  }
  return texts;
}

class Printer {
 public:
  Printer(std::ostream& out, const Layout& layout, const std::vector<std::string>& texts, int indent)
      : out_(out), layout_(layout), texts_(texts), indent_(indent) {
    for (const std::string& text : texts) width_ = std::max(width_, text.size());
  }

  void print(int axis = 0) {
    if (axis == layout_.shape.rank()) {
      const std::string& text = texts_[next_++];
      out_ << std::string(width_ - text.size(), ' ') << text;
      return;
    }
    out_ << '[';
    bool first = true;
    for (std::int64_t i = 0; i < layout_.shape[axis]; ++i) {
      if (layout_.hidden(axis, i)) {
        if (i == kEdge) {
          separate(axis);
          out_ << "...";
        }
        continue;
      }
      if (!first) separate(axis);
      first = false;
      print(axis + 1);
    }
    out_ << ']';
  }

 private:
  void separate(int axis) {
    const int inner = layout_.shape.rank() - axis - 1;
    if (inner == 0) {
      out_ << ' ';
      return;
    }
    out_ << std::string(static_cast<std::size_t>(inner), '\n')
         << std::string(static_cast<std::size_t>(indent_ + axis + 1), ' ');
  }

  std::ostream& out_;
  const Layout& layout_;
  const std::vector<std::string>& texts_;
  int indent_;
  std::size_t width_ = 0;
  std::size_t next_ = 0;
};

void print_tensor(std::ostream& out, const Tensor& x, int indent) {
  if (x.size() == 0) {
    out << "[]";
    return;
  }
  const Layout layout{x.shape(), x.size() > kSummarise};
  std::vector<std::int64_t> positions;
  shown(layout, 0, 0, positions);
  std::vector<std::string> texts;
  if (is_floating(x.dtype())) {
    const std::vector<double> all = x.to_vector<double>();
    std::vector<double> values;
    for (const std::int64_t position : positions) values.push_back(all[static_cast<std::size_t>(position)]);
    texts = formatted(values);
  } else {
    const std::vector<std::int64_t> all = x.to_vector<std::int64_t>();
    for (const std::int64_t position : positions) {
      const std::int64_t value = all[static_cast<std::size_t>(position)];
      texts.push_back(x.dtype() != bool8 ? std::to_string(value) : value != 0 ? "True" : "False");
    }
  }
  Printer(out, layout, texts, indent).print();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x.defined()) return out << "undefined";
  detail::now_running_somewhere("operator<<");
  print_tensor(out, x, 0);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Ragged& x) {
  if (!x.defined()) return out << "undefined";
  detail::now_running_somewhere("operator<<");
  out << "Ragged[";
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (i > 0) out << ",\n       ";
    const Tensor& values = x.values();
    Shape shape = values.shape();
    shape[0] = x.length(i);
    const std::int64_t offset = x.offsets().span()[static_cast<std::size_t>(i)] * values.stride(0);
    print_tensor(out, detail::view(values, offset, shape, values.array().strides), 7);
  }
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

}  // namespace reel
