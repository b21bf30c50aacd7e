#include "reel/core/checkpoint.h"

#include <algorithm>
#include <string>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/random_scope.h"
#include "reel/core/running.h"
#include "reel/core/sweep.h"

namespace reel::detail {

namespace {

bool same(const Edge& a, const Edge& b) { return a.slot == b.slot && a.tensor == b.tensor; }

void add_distinct(std::vector<Edge>& edges, const Edge& edge) {
  if (std::none_of(edges.begin(), edges.end(), [&](const Edge& other) { return same(edge, other); }))
    edges.push_back(edge);
}

// What the results, and the nodes from `mark` on, take from before them.
std::vector<Edge> edges_into(const Mark& mark, const Tensors& ys, SourceLocation where) {
  std::vector<Edge> edges;
  for (std::int64_t i = mark.node; i < mark.list->node_count(); ++i) {
    const Node& node = mark.list->node(i);
    for (int e = 0; e < node.edge_count; ++e) {
      const Edge& edge = node.edges[e];
      const bool parameter = edge.slot == kParameter && edge.tensor != nullptr;  // null: of a checkpoint's inside
      if (parameter || (edge.slot >= 0 && edge.slot < mark.slot)) add_distinct(edges, edge);
    }
  }
  for (const Tensor& y : ys) {
    const std::int64_t slot = slot_on(mark.list, *y.state(), "checkpoint", where);
    if (slot >= 0 && slot < mark.slot) add_distinct(edges, {slot, nullptr});
    if (slot == kConstant && is_trainable(*y.state())) add_distinct(edges, {kParameter, y.state()});
  }
  return edges;
}

Mark here(NodeList& list) {
  return {&list, list.node_count(), list.slot_end(), list.live_tapes, true, thread_tape.strict};
}

}  // namespace

// The callback of a checkpoint: computes f once more, recorded, and sweeps over that.
struct Recompute {
  Recomputed f;
  Tensors xs;
  RandomPlaces random;
  SourceLocation where;

  void operator()(Gradients& g) {
    struct Restore {
      ThreadTape before = thread_tape;
      ~Restore() { thread_tape = before; }
    } const restore;
    const bool recording = g.recording();
    NodeList& list = g.sweep_.list_;
    const Mark mark = here(list);
    thread_tape.list = &list;
    thread_tape.recording = true;

    const Tensor joined = again(g);
    if (is_tracked(joined)) {
      thread_tape.recording = recording;
      const Tensors none;
      Sweep sweep(mark, "checkpoint", joined, &none, {.keep = true}, where);
      std::vector<int> wanted;
      for (int i = 0; i < g.node_.edge_count; ++i) {
        if (!g.needs(i)) continue;
        sweep.want(g.node_.edges[i]);
        wanted.push_back(i);
      }
      sweep.run(joined);
      for (std::size_t i = 0; i < wanted.size(); ++i) g.add(wanted[i], sweep.taken(i));
    }
    if (!recording) list.discard_from(mark.node);  // else a tape outside goes on from there
  }

  // One tensor that depends on all results, and sends each its gradient.
  Tensor again(const Gradients& g) {
    const Tensors dys = g.dys();
    RandomScope scope(random, true);
    const Tensors ys = f(xs, nullptr);
    if (ys.size() != dys.size())
      throw Error("f must give " + std::to_string(dys.size()) + " results each time that it is called, got " +
                  std::to_string(ys.size()));
    for (std::size_t i = 0; i < ys.size(); ++i)
      if (dys[i].defined() && !(dys[i].shape() == ys[i].shape()))
        throw ShapeError("f must give result " + std::to_string(i) + " the shape " + dys[i].shape().str() +
                         " each time that it is called, got " + ys[i].shape().str());
    const Tensor memory = empty({}), joined = view(memory, 0, {}, nullptr);  // a view: no Trace shall note it
    *memory.array().as<float>() = 0;                                         // nobody's, but a tape may look at it
    record_list("checkpoint", where, ys, {joined}, {}, [dys](Gradients& inner) {
      for (std::size_t i = 0; i < dys.size(); ++i) inner.add(static_cast<int>(i), dys[i]);
    });
    return joined;
  }
};

Tensors checkpointed(const Recomputed& f, const Tensors& xs, void* first, SourceLocation where) {
  now_running("checkpoint", where);
  for (const Tensor& x : xs)
    if (!x.defined()) throw Error("checkpoint: its inputs must be defined", where);
  if (!thread_tape.recording) return f(xs, first);

  const Mark mark = here(*thread_tape.list);
  Recompute recompute{f, xs, {}, where};
  Tensors ys;
  {
    RandomScope scope(recompute.random, false);
    ys = f(xs, first);
  }
  const SourceLocation line = where.known() ? where : running.where;
  recompute.where = line;
  for (const Tensor& y : ys)
    if (!y.defined()) throw Error("checkpoint: f's results must be defined", line);
  const std::vector<Edge> edges = edges_into(mark, ys, line);
  mark.list->discard_from(mark.node);
  if (edges.empty()) return ys;

  // Results of their own, which lead straight to what f took from outside.
  Tensors results;
  for (const Tensor& y : ys) results.push_back(view(y, 0, y.shape(), y.array().strides));
  Tensors saved = xs;
  for (const Edge& edge : edges)
    if (edge.tensor != nullptr) {
      retain(edge.tensor);
      saved.push_back(Tensor(edge.tensor));
    }

  const Pointers outputs(results), keep(saved);
  Node& node = mark.list->reserve(edges.size(), saved.size(), sizeof(Recompute), outputs.data(), outputs.size());
  mark.list->append(node, outputs.data());
  node.op = "checkpoint";
  node.where = line;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    node.edges[i] = edges[i];
    if (edges[i].tensor != nullptr) retain(edges[i].tensor);
  }
  NodeList::save(node, keep.data());
  fill_node(&node, std::move(recompute));
  return results;
}

}  // namespace reel::detail
