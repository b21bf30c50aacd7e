#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "reel/core/tensor.h"

namespace reel {

/// A list of tensors, as callbacks return them. Up to four are held inline, without an allocation.
class Tensors {
 public:
  Tensors() = default;
  Tensors(std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) push_back(tensor);
  }
  explicit Tensors(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) push_back(tensor);
  }

  void push_back(Tensor tensor) {
    if (size() < kInline) few_[size()] = std::move(tensor);
    else more_.push_back(std::move(tensor));
    ++size_.count;
  }

  std::size_t size() const { return size_.count; }
  bool empty() const { return size() == 0; }
  /// Throws IndexError.
  REEL_INLINE Tensor& operator[](detail::Index i) {
    check(i);
    return at(static_cast<std::size_t>(i.value));
  }
  REEL_INLINE const Tensor& operator[](detail::Index i) const {
    check(i);
    return at(static_cast<std::size_t>(i.value));
  }

  /// Iterates by position, since the elements are in two places.
  template <class List, class Element>
  struct Iterator {
    List* list;
    std::size_t i;
    Element& operator*() const { return list->at(i); }
    Iterator& operator++() {
      ++i;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i != other.i; }
  };
  Iterator<Tensors, Tensor> begin() { return {this, 0}; }
  Iterator<Tensors, Tensor> end() { return {this, size()}; }
  Iterator<const Tensors, const Tensor> begin() const { return {this, 0}; }
  Iterator<const Tensors, const Tensor> end() const { return {this, size()}; }

 private:
  Tensor& at(std::size_t i) { return i < kInline ? few_[i] : more_[i - kInline]; }
  const Tensor& at(std::size_t i) const { return i < kInline ? few_[i] : more_[i - kInline]; }
  REEL_INLINE void check(detail::Index i) const {
    if (REEL_USER_CODE && static_cast<std::size_t>(i.value) >= size()) [[unlikely]]
      detail::refuse_index("Tensors[]", "position", 0, static_cast<std::int64_t>(size()), i.value, i.where);
  }

  // What is moved away leaves none.
  struct Size {
    std::size_t count = 0;

    Size() = default;
    Size(const Size&) = default;
    Size(Size&& other) noexcept : count(std::exchange(other.count, 0)) {}
    Size& operator=(const Size&) = default;
    Size& operator=(Size&& other) noexcept {
      count = std::exchange(other.count, 0);
      return *this;
    }
  };

  static constexpr std::size_t kInline = 4;
  Tensor few_[kInline];
  std::vector<Tensor> more_;
  Size size_;
};

}  // namespace reel
