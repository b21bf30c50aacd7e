// Gradients of views: the first lies where it belongs in the gradient of what the view shows, so that parts of one tensor come
// together without a copy. What no view has a place in is filled with zeros before anybody else reads or adds to it.

#include "reel/core/ops.h"
#include "reel/core/sweep.h"

namespace reel::detail {

// Views of views that have places in each other: more are few, and each is a call.
constexpr int kDeepest = 8;

// The place of an output's gradient, which is not there yet; undefined if it has none.
Tensor Sweep::give_place(std::int64_t slot, int depth) {
  if (slot < begin_ || gradient(slot).defined() || (flags(slot) & kWanted) != 0) return {};
  const SlotInfo& info = list_.slot(slot);
  const Node& node = *info.node;
  if (node.see == nullptr || node.released || node.edges[0].slot < begin_) return {};
  const std::int64_t whole = node.edges[0].slot;
  Tensor& sum = gradient(whole);
  const bool fresh = !sum.defined();
  if (fresh) {
    if (depth < kDeepest) sum = give_place(whole, depth + 1);
    const SlotInfo& of_whole = list_.slot(whole);
    if (!sum.defined()) sum = empty(of_whole.shape(), {.dtype = of_whole.dtype, .device = of_whole.device});
  } else if ((flags(whole) & kOpen) == 0) {
    return {};  // it has values
  }
  const Seen seen = node.see(node.callback, sum, info.shape());
  if (!seen.part.defined() || !take_part(whole, seen, fresh)) {
    if (fresh && (flags(whole) & kPlaced) != 0) backend(sum.device()).fill(sum.array(), 0);
    else if (fresh) sum = Tensor();
    return {};
  }
  flags(whole) |= kHasPlaces;
  flags(slot) |= kPlaced;
  return gradient(slot) = seen.part;
}

// Notes what is written of a gradient from now on. False: that can't be said.
bool Sweep::take_part(std::int64_t whole, const Seen& seen, bool fresh) {
  if (seen.axis < 0) return fresh;
  if (fresh) {
    if (open_count_ == kMostOpen) close();
    open_[open_count_++] = {whole, seen.begin, seen.end, seen.axis};
    set_open(whole, true);
    return true;
  }
  for (int i = 0; i < open_count_; ++i) {
    Open& open = open_[i];
    if (open.slot != whole || open.axis != seen.axis) continue;
    if (seen.begin != open.end && seen.end != open.begin) return false;
    (seen.begin == open.end ? open.end : open.begin) = seen.begin == open.end ? seen.end : seen.begin;
    return true;
  }
  return false;
}

// A gradient, and those in which it has its place.
void Sweep::set_open(std::int64_t slot, bool open) {
  for (;; slot = list_.slot(slot).node->edges[0].slot) {
    if (open) flags(slot) |= kOpen;
    else flags(slot) &= static_cast<std::uint8_t>(~kOpen);
    if ((flags(slot) & kPlaced) == 0) return;
  }
}

// Zeros beside what was written.
void Sweep::close() {
  while (open_count_ > 0) {
    const Open open = open_[--open_count_];
    const Tensor& sum = gradient(open.slot);
    const auto clear = [&](std::int64_t begin, std::int64_t end) {
      Shape shape = sum.shape();
      shape[open.axis] = end - begin;
      const Tensor beside = view(sum, begin * sum.stride(open.axis), shape, sum.array().strides);
      if (end > begin) backend(sum.device()).fill(beside.array(), 0);
    };
    clear(0, open.begin);
    clear(open.end, sum.shape()[open.axis]);
    set_open(open.slot, false);
  }
}

// A gradient of its own in place of a part of another, to which its op's callback will add it.
void Sweep::leave_place(std::int64_t slot) {
  Tensor& part = gradient(slot);
  const Tensor own = copied(part, part.dtype());
  backend(part.device()).fill(part.array(), 0);
  part = own;
  flags(slot) &= static_cast<std::uint8_t>(~kPlaced);
}

Tensor Gradients::place(int input) {
  if (thread_tape.recording || thread_tape.strict || !needs(input)) return {};
  return sweep_.give_place(node_.edges[input].slot, 0);
}

}  // namespace reel::detail
