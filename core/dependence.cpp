#include "reel/core/dependence.h"

#include <vector>

namespace reel::detail {

const Node* link_before(const NodeList& list, std::int64_t first, std::int64_t last, std::int64_t y_slot,
                        const TensorState& x) {
  if (first == 0) return nullptr;
  const std::int64_t base = list.node(0).slot, begin = list.node(first).slot;
  std::vector<bool> linked(
      static_cast<std::size_t>(list.slot_end() - base));  // before `first` to x, from there on to y
  const auto is_linked = [&](std::int64_t slot) { return linked[static_cast<std::size_t>(slot - base)]; };
  if (x.list.load(std::memory_order_relaxed) == &list && x.slot >= base) is_linked(x.slot) = true;
  for (std::int64_t i = 0; i < first; ++i) {
    const Node& node = list.node(i);
    for (int e = 0; e < node.edge_count; ++e) {
      const Edge& edge = node.edges[e];
      if (edge.slot == kParameter ? edge.tensor != &x : edge.slot < base || !is_linked(edge.slot)) continue;
      for (int o = 0; o < node.output_count; ++o) is_linked(node.slot + o) = true;
      break;
    }
  }
  is_linked(y_slot) = true;
  for (std::int64_t i = last; i >= first; --i) {
    const Node& node = list.node(i);
    bool on_the_way = false;
    for (int o = 0; o < node.output_count; ++o) on_the_way = on_the_way || is_linked(node.slot + o);
    if (!on_the_way) continue;
    for (int e = 0; e < node.edge_count; ++e) {
      const std::int64_t slot = node.edges[e].slot;
      if (slot >= base && slot < begin && is_linked(slot)) return list.slot(slot).node;
      if (slot >= begin) is_linked(slot) = true;
    }
  }
  return nullptr;
}

}  // namespace reel::detail
