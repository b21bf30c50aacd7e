#include "reel/ops/attention.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/matmul.h"
#include "reel/ops/offsets.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;

constexpr const char* kName = "scaled_dot_product_attention";

// The operands as the backend takes them: [rows, heads, width], sequences one after the other.
struct Operands {
  Tensor q, k, v;
  Offsets queries, keys;
  Tensor mask = {};  // undefined, or [heads, queries, keys]
  bool by_head;      // results and gradients have the rows of a head side by side in memory
  bool causal;
  double scale;

  Attention attention() const {
    return {
        .queries = queries.segments(q.device()), .keys = keys.segments(k.device()), .causal = causal, .scale = scale};
  }
  const Array* mask_array() const { return mask.defined() ? &mask.array() : nullptr; }

  // A new tensor [rows, heads, width].
  Tensor room(std::int64_t rows, std::int64_t width) const {
    const TensorOptions like = q.options();
    const std::int64_t heads = q.shape()[1];
    if (!by_head) return empty({rows, heads, width}, like);
    return untaped([&] { return transpose(empty({heads, rows, width}, like), 0, 1); });
  }
};

// Neighbours in the last axis are neighbours in memory.
bool is_lined(const Tensor& x) { return x.shape()[2] == 1 || x.stride(2) == 1; }
Tensor lined(const Tensor& x) { return is_lined(x) ? x : detail::packed(x); }

// --- composed of recorded ops, one sequence at a time, with all scores in memory ---------------------------------------

// Sequence s of x [rows, heads, width] as [heads, length, width].
Tensor sequence(const Tensor& x, const Offsets& offsets, std::int64_t s) {
  return transpose(narrow(x, 0, offsets.span()[static_cast<std::size_t>(s)], offsets.length(s)), 0, 1);
}

// Which keys the queries of sequence s see: bool8, broadcasts to [heads, queries, keys]; undefined: all of them.
Tensor seen_in(const Operands& in, const Tensor& mask, std::int64_t queries, std::int64_t keys) {
  return untaped([&] {
    Tensor seen;
    if (mask.defined()) seen = mask != -INFINITY;
    if (in.causal) {
      const TensorOptions numbers{.dtype = i64, .device = in.q.device()};
      const Tensor causal = arange(keys, numbers) <= unsqueeze(arange(queries, numbers), 1) + (keys - queries);
      seen = seen.defined() ? logical_and(seen, causal) : causal;
    }
    return seen.defined() && all(seen).item() != 0 ? Tensor() : seen;
  });
}

// x, and 0 where `seen` (undefined: everywhere) does not hold, whatever x is there.
Tensor kept(const Tensor& seen, const Tensor& x) { return seen.defined() ? where(seen, x, 0.0) : x; }

// Queries of a sequence, times the scale, and all its keys and values, 0 where none of these queries sees them:
// [heads, queries or keys, width].
struct Part {
  std::int64_t first, count;
  Tensor q, k, v;
  Tensor seen, some;  // [.., queries, keys], and [.., keys, 1]: seen by some query; undefined: all
  Tensor p;           // the probabilities, [heads, queries, keys]

  Part(const Tensor& queries, const Tensor& keys, const Tensor& values, const Tensor& mask, const Tensor& all_seen,
       std::int64_t first_, std::int64_t count_)
      : first(first_), count(count_), q(narrow(queries, 1, first, count)), k(keys), v(values) {
    if (all_seen.defined()) {
      seen = narrow(all_seen, -2, first, count);
      some = untaped([&] { return unsqueeze(any(seen, -2), -1); });
      k = kept(some, k);
      v = kept(some, v);
    }
    Tensor scores = matmul(q, transpose(k));
    if (mask.defined()) scores = scores + narrow(mask, 1, first, count);
    if (seen.defined()) scores = where(seen, scores, -INFINITY);
    p = kept(seen, softmax(scores, 2));
  }
};

// Sequence s as one part; but where a number that is not finite meets a query and a key that do not see each other, a query at
// a time, for 0 times a NaN is NaN. `dy`: undefined, or the result's gradient [heads, queries, value width].
std::vector<Part> parts_of(const Operands& in, std::int64_t s, const Tensor& dy = {}) {
  const std::int64_t queries = in.queries.length(s), keys = in.keys.length(s);
  const Tensor q = in.scale * sequence(in.q, in.queries, s), k = sequence(in.k, in.keys, s);
  const Tensor v = sequence(in.v, in.keys, s);
  const Tensor mask = in.mask.defined() ? narrow(narrow(in.mask, 1, 0, queries), 2, 0, keys) : in.mask;
  const Tensor seen = seen_in(in, mask, queries, keys);
  std::vector<Part> parts;
  parts.emplace_back(q, k, v, mask, seen, 0, queries);
  if (!seen.defined()) return parts;
  const bool finite = untaped([&] {
    for (const Tensor& x : {parts[0].q, parts[0].k, parts[0].v, dy})
      if (x.defined() && all(isfinite(x)).item() == 0) return false;
    return true;
  });
  if (finite) return parts;
  parts.clear();
  for (std::int64_t i = 0; i < queries; ++i) parts.emplace_back(q, k, v, mask, seen, i, 1);
  return parts;
}

// [heads, length, width] of each sequence back to [rows, heads, width].
Tensor joined(const Tensors& parts) {
  Tensors rows;
  for (const Tensor& part : parts) rows.push_back(transpose(part, 0, 1));
  return concatenate(rows);
}

Tensor composed(const Operands& in) {
  Tensors sequences;
  for (std::int64_t s = 0; s < in.queries.count(); ++s) {
    Tensors parts;
    for (const Part& part : parts_of(in, s)) parts.push_back(matmul(part.p, part.v));
    sequences.push_back(parts.size() == 1 ? parts[0] : concatenate(parts, 1));
  }
  return joined(sequences);
}

// `y`: the result. In the order of the kernels, so that overflow shows in the same places.
void recorded_gradients(Gradients& g, const Operands& in, const Tensor& y) {
  Tensors dq, dk, dv;
  for (std::int64_t s = 0; s < in.queries.count(); ++s) {
    const Tensor all_dy = sequence(g.dy(), in.queries, s);
    const Tensor all_dots = sum(sequence(y, in.queries, s) * all_dy, 2, Keep::yes);
    Tensors parts;
    Tensor keys, values;
    for (const Part& part : parts_of(in, s, all_dy)) {
      const Tensor dy = narrow(all_dy, 1, part.first, part.count), dots = narrow(all_dots, 1, part.first, part.count);
      const Tensor dscores = kept(part.seen, part.p * (matmul(dy, transpose(part.v)) - dots));
      const Tensor to_keys = kept(part.some, matmul(transpose(dscores), part.q));
      const Tensor to_values = kept(part.some, matmul(transpose(part.p), dy));
      parts.push_back(in.scale * matmul(dscores, part.k));
      keys = keys.defined() ? keys + to_keys : to_keys;
      values = values.defined() ? values + to_values : to_values;
    }
    dq.push_back(parts.size() == 1 ? parts[0] : concatenate(parts, 1));
    dk.push_back(keys);
    dv.push_back(values);
  }
  g.add(0, joined(dq));
  g.add(1, joined(dk));
  g.add(2, joined(dv));
}

// --- by the backend's kernels --------------------------------------------------------------------------------------------

// Where the gradient of an operand is computed: in its place, if it has one.
struct Result {
  int input;
  Tensor place, memory;

  Result(int input_, const Tensor& place_, const Operands& from, const Tensor& x)
      : input(input_),
        place(place_),
        memory(place.defined() && is_lined(place) ? place : from.room(x.shape()[0], x.shape()[2])) {}
  void give(Gradients& g) const {
    if (!place.defined()) g.add(input, memory);
    else if (!is_lined(place)) backend(place.device()).copy(memory.array(), place.array());
  }
};

// y [query rows, heads, value width]
Tensor attend(const Operands& in, SourceLocation where) {
  if (detail::would_record(kName, in.mask, where)) return composed(in);
  Operands from = in;
  for (Tensor* x : {&from.q, &from.k, &from.v}) *x = lined(*x);
  Ops& ops = backend(in.q.device());
  const Tensor y = from.room(in.queries.total(), in.v.shape()[2]);
  const Tensor state = empty({in.queries.total(), in.q.shape()[1], 2}, in.q.options());
  ops.attention(from.attention(), from.q.array(), from.k.array(), from.v.array(), from.mask_array(), y.array(),
                state.array());
  if (detail::taping())
    detail::record_op(kName, where, {&in.q, &in.k, &in.v}, y, {&in.q, &in.k, &in.v, &y, &in.mask},
                      [in, from, y, state, &ops](Gradients& g) {
                        if (g.recording()) return recorded_gradients(g, in, y);
                        const Tensor dy = lined(g.dy());
                        const Result dq(0, g.place(0), from, in.q), dk(1, g.place(1), from, in.k),
                            dv(2, g.place(2), from, in.v);
                        ops.attention_backward(from.attention(), from.q.array(), from.k.array(), from.v.array(),
                                               from.mask_array(), y.array(), state.array(), dy.array(),
                                               dq.memory.array(), dk.memory.array(), dv.memory.array());
                        for (const Result* result : {&dq, &dk, &dv}) result->give(g);
                      });
  return y;
}

// --- checks --------------------------------------------------------------------------------------------------------------

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                    SourceLocation where) {
  check::floating(kName, "q", q, where);
  check::like(kName, "k", k, "q", q, where);
  check::like(kName, "v", v, "q", q, where);
  if (options.scale && !std::isfinite(*options.scale))
    throw Error(std::string(kName) + ": scale must be finite, got " + detail::number_text(*options.scale), where);
}

[[noreturn]] void refuse_shapes(const char* form, const Tensor& q, const Tensor& k, const Tensor& v,
                                SourceLocation where) {
  throw ShapeError(std::string(kName) + ": q, k and v must have shapes " + form + ", got " + q.shape().str() + ", " +
                       k.shape().str() + " and " + v.shape().str(),
                   where);
}

double scale_of(const AttentionOptions& options, std::int64_t width) {
  return options.scale.value_or(width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1);
}

// The mask as numbers to add to the scores, of the rank of `scores` and each size that of `scores` or 1; recorded if it is
// of numbers.
Tensor additive(const Tensor& mask, const Tensor& q, const Shape& scores, SourceLocation where) {
  if (!mask.defined()) return mask;
  const Tensor added = mask.dtype() != bool8 ? mask : untaped([&] { return log(cast(mask, q.dtype())); });  // 0 or -inf
  check::like(kName, "mask", added, "q", q, where);
  bool fits = mask.rank() <= scores.rank();
  Shape shape = scores;
  for (int i = scores.rank() - 1, own = mask.rank() - 1; fits && i >= 0; --i, --own) {
    shape[i] = own >= 0 ? mask.shape()[own] : 1;
    fits = shape[i] == 1 || shape[i] == scores[i];
  }
  if (!fits)
    throw ShapeError(std::string(kName) + ": mask must broadcast to " + scores.str() + ", got " + mask.shape().str(),
                     where);
  return reshape(added, shape);
}

std::int64_t product(const Shape& shape, int first, int last) {
  std::int64_t size = 1;
  for (int i = first; i < last; ++i) size *= shape[i];
  return size;
}

// Of x [..., heads, rows, width]: how far it is in memory from one row to the next, through all leading axes, where the heads of a
// row lie together between them. So a layer stores it that splits its width into heads, alone or as a part of one projection
// to queries, keys and values. -1: x is stored otherwise.
std::int64_t row_distance(const Tensor& x) {
  const int rank = x.rank(), heads = rank - 3;
  if (rank < 3 || x.size() == 0 || (x.shape()[rank - 1] > 1 && x.stride(rank - 1) != 1)) return -1;
  std::int64_t distance = 0, reach = 0;  // 0: there is one row so far
  for (int axis = rank - 2; axis >= 0; --axis) {
    if (axis == heads || x.shape()[axis] == 1) continue;
    if (distance == 0) distance = reach = x.stride(axis);
    if (distance <= 0 || x.stride(axis) != reach) return -1;
    reach *= x.shape()[axis];
  }
  const std::int64_t last = x.shape()[heads] > 1 ? x.stride(heads) * (x.shape()[heads] - 1) : 0;
  if (distance == 0) return last + x.shape()[rank - 1];
  return x.stride(heads) >= 0 && last < distance ? distance : -1;
}

// Such an x as [rows of all leading axes, heads, width], on the same memory.
Tensor rows_view(const Tensor& x) {
  const int rank = x.rank();
  const std::int64_t heads = x.shape()[rank - 3], width = x.shape()[rank - 1];
  const std::int64_t strides[] = {row_distance(x), x.stride(rank - 3), x.stride(rank - 1)};
  return detail::view(x, 0, {x.size() / (heads * width), heads, width}, strides);
}

struct RowsGradient {
  void operator()(Gradients& g) const {
    Shape split = g.shape(0);
    std::swap(split[split.rank() - 3], split[split.rank() - 2]);
    g.add(0, transpose(reshape(g.dy(), split), -3, -2));
  }
  detail::Seen see(const Tensor& whole, const Shape&) const {
    return row_distance(whole) > 0 ? detail::Seen{rows_view(whole)} : detail::Seen{};
  }
};

// The same, recorded.
Tensor by_rows(const Tensor& x, SourceLocation where) {
  Tensor y = rows_view(x);
  if (detail::taping()) detail::record_op(kName, where, {&x}, y, {}, RowsGradient{});
  return y;
}

Offsets equal_lengths(std::int64_t count, std::int64_t length) {
  const Tensor lengths = untaped([&] { return full({count}, length, {.dtype = i64}); });
  return Offsets(lengths.data<std::int64_t>());
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                    SourceLocation where) {
  check_operands(q, k, v, options, where);
  const int rank = q.rank(), leading = rank - 2;
  bool fits = rank >= 2 && k.rank() == rank && v.rank() == rank;
  for (int i = 0; fits && i < leading; ++i) fits = k.shape()[i] == q.shape()[i] && v.shape()[i] == q.shape()[i];
  if (!fits || k.shape()[rank - 1] != q.shape()[rank - 1] || v.shape()[rank - 2] != k.shape()[rank - 2])
    refuse_shapes("[..., queries, width], [..., keys, width] and [..., keys, value width]", q, k, v, where);
  const std::int64_t queries = q.shape()[rank - 2], keys = k.shape()[rank - 2];
  Shape scores = q.shape();
  scores[rank - 1] = keys;
  const Tensor mask = additive(options.mask, q, scores, where);

  // Rows of all heads side by side: a batch is a list of sequences. Otherwise the batch is more heads of one sequence.
  const bool by_row = row_distance(q) > 0 && row_distance(k) > 0 && row_distance(v) > 0 &&
                      (!mask.defined() || product(mask.shape(), 0, leading - 1) == 1);
  const std::int64_t heads = by_row ? q.shape()[leading - 1] : product(q.shape(), 0, leading);
  const std::int64_t batch = by_row ? product(q.shape(), 0, leading - 1) : 1;
  const auto rows_of = [&](const Tensor& x) {
    const std::int64_t length = x.shape()[rank - 2], width = x.shape()[rank - 1];
    if (by_row) return by_rows(x, where);
    return transpose(reshape(x, {heads, length, width}), 0, 1);
  };
  Operands in{.q = rows_of(q),
              .k = rows_of(k),
              .v = rows_of(v),
              .queries = equal_lengths(batch, queries),
              .keys = equal_lengths(batch, keys),
              .by_head = !by_row,
              .causal = options.causal,
              .scale = scale_of(options, q.shape()[rank - 1])};
  if (mask.defined()) {
    const std::int64_t rows = mask.shape()[rank - 2], columns = mask.shape()[rank - 1];
    Shape each = q.shape();
    each[rank - 2] = rows;
    each[rank - 1] = columns;
    const bool shared = product(mask.shape(), 0, leading) == 1;
    const Tensor by_heads = by_row || shared ? reshape(mask, {product(mask.shape(), 0, leading), rows, columns})
                                             : reshape(expand(mask, each), {heads, rows, columns});
    in.mask = expand(by_heads, {heads, queries, keys});
  }
  const Tensor y = attend(in, where);
  Shape shape = q.shape();
  shape[rank - 1] = v.shape()[rank - 1];
  if (!by_row) return reshape(transpose(y, 0, 1), shape);
  std::swap(shape[rank - 3], shape[rank - 2]);
  return transpose(reshape(y, shape), -3, -2);
}

Ragged scaled_dot_product_attention(const Ragged& q, const Ragged& k, const Ragged& v, const AttentionOptions& options,
                                    SourceLocation where) {
  check_operands(q.values(), k.values(), v.values(), options, where);
  check::same_lengths(kName, k, v, where);
  if (q.count() != k.count())
    throw ShapeError(std::string(kName) + ": q and k must have as many sequences, got " + std::to_string(q.count()) +
                         " and " + std::to_string(k.count()),
                     where);
  const Shape &qs = q.values().shape(), &ks = k.values().shape(), &vs = v.values().shape();
  if (qs.rank() != 3 || ks.rank() != 3 || vs.rank() != 3 || ks[1] != qs[1] || vs[1] != qs[1] || ks[2] != qs[2])
    refuse_shapes("[total, heads, width], [total, heads, width] and [total, heads, value width]", q.values(),
                  k.values(), v.values(), where);
  Operands in{.q = q.values(),
              .k = k.values(),
              .v = v.values(),
              .queries = q.offsets(),
              .keys = k.offsets(),
              .by_head = false,
              .causal = options.causal,
              .scale = scale_of(options, qs[2])};
  // As one that is empty, so that gradients of what there is none of depend on what they would be made of.
  if (q.count() == 0) in.queries = in.keys = equal_lengths(1, 0);
  const Shape scores{qs[1], q.offsets().max_length(), k.offsets().max_length()};
  if (options.mask.defined()) in.mask = expand(additive(options.mask, q.values(), scores, where), scores);
  return q.with(attend(in, where));
}

}  // namespace reel
