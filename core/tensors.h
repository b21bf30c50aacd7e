#pragma once

#include <cstddef>
#include <initializer_list>
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
    if (size_ < kInline) few_[size_] = std::move(tensor);
    else more_.push_back(std::move(tensor));
    ++size_;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Tensor& operator[](std::size_t i) { return i < kInline ? few_[i] : more_[i - kInline]; }
  const Tensor& operator[](std::size_t i) const { return i < kInline ? few_[i] : more_[i - kInline]; }

  /// Iterates by position, since the elements are in two places.
  template <class List, class Element>
  struct Iterator {
    List* list;
    std::size_t i;
    Element& operator*() const { return (*list)[i]; }
    Iterator& operator++() {
      ++i;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i != other.i; }
  };
  Iterator<Tensors, Tensor> begin() { return {this, 0}; }
  Iterator<Tensors, Tensor> end() { return {this, size_}; }
  Iterator<const Tensors, const Tensor> begin() const { return {this, 0}; }
  Iterator<const Tensors, const Tensor> end() const { return {this, size_}; }

 private:
  static constexpr std::size_t kInline = 4;
  Tensor few_[kInline];
  std::vector<Tensor> more_;
  std::size_t size_ = 0;
};

}  // namespace reel
