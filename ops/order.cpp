#include "reel/ops/order.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::packed;
using detail::taping;

// In a dtype that the kernels sort.
Tensor sortable(const char* op, const Tensor& x, SourceLocation where) {
  check::defined(op, "x", x, where);
  return packed(x.dtype() == u8 || x.dtype() == bool8 ? cast(x, i32) : x);
}

Sorted first_of(const char* op, const Tensor& x, std::int64_t k, int axis, Order order, SourceLocation where) {
  Shape shape = x.shape();
  shape[axis] = k;
  const Tensor from = sortable(op, x, where);
  Tensor values = empty(shape, {.dtype = from.dtype(), .device = x.device()}),
         which = empty(shape, {.dtype = i64, .device = x.device()});
  backend(x.device()).sort(from.array(), axis, order == Order::descending, values.array(), which.array());
  detail::record_gather(op, where, x, values, axis, which);
  return {cast(values, x.dtype()), which};
}

RaggedSorted sorted_rows(const char* op, const Ragged& x, Order order, SourceLocation where) {
  const Tensor &values = x.values(), from = sortable(op, values, where);
  const Ragged sorted = x.with(empty_like(from)),
               which = x.with(empty(values.shape(), {.dtype = i64, .device = x.device()}));
  backend(x.device())
      .segment_sort(from.array(), x.segments(), order == Order::descending, sorted.values().array(),
                    which.values().array());
  if (taping() && is_floating(x.dtype()))
    detail::record_gather(op, where, values, sorted.values(), 0, detail::rows_in_sequences(op, which, x, where));
  return {cast(sorted, x.dtype()), which};
}

Sorted without_axes(const Sorted& one) { return {reshape(one.values, {}), reshape(one.which, {})}; }

RaggedSorted per_row(const Ragged& x, const Sorted& rows) { return {x.with(rows.values), x.with(rows.which)}; }

bool along_rows(const char* op, const Ragged& x, int axis, SourceLocation where) {
  check::defined(op, "x", x.values(), where);
  return check::axis(op, axis, x.values().rank(), where) == 0;
}

}  // namespace

Sorted sort(const Tensor& x, int axis, Order order, SourceLocation where) {
  check::defined("sort", "x", x, where);
  if (x.rank() == 0) return without_axes(sort(reshape(x, {1}), axis, order, where));
  axis = check::axis("sort", axis, x.rank(), where);
  return first_of("sort", x, x.shape()[axis], axis, order, where);
}

RaggedSorted sort(const Ragged& x, Order order, SourceLocation where) { return sorted_rows("sort", x, order, where); }

RaggedSorted sort(const Ragged& x, int axis, Order order, SourceLocation where) {
  if (along_rows("sort", x, axis, where)) return sort(x, order, where);
  return per_row(x, sort(x.values(), axis, order, where));
}

Tensor argsort(const Tensor& x, int axis, Order order, SourceLocation where) {
  check::defined("argsort", "x", x, where);
  if (x.rank() == 0) return reshape(argsort(reshape(x, {1}), axis, order, where), {});
  axis = check::axis("argsort", axis, x.rank(), where);
  return untaped([&] { return first_of("argsort", x, x.shape()[axis], axis, order, where).which; });
}

Ragged argsort(const Ragged& x, Order order, SourceLocation where) {
  return untaped([&] { return sorted_rows("argsort", x, order, where).which; });
}

Ragged argsort(const Ragged& x, int axis, Order order, SourceLocation where) {
  if (along_rows("argsort", x, axis, where)) return argsort(x, order, where);
  return x.with(argsort(x.values(), axis, order, where));
}

Sorted topk(const Tensor& x, std::int64_t k, int axis, Order order, SourceLocation where) {
  check::defined("topk", "x", x, where);
  if (x.rank() == 0) {
    const Sorted found = topk(reshape(x, {1}), k, axis, order, where);
    return k == 1 ? without_axes(found) : found;
  }
  axis = check::axis("topk", axis, x.rank(), where);
  if (k < 0 || k > x.shape()[axis])
    throw ShapeError("topk: k must be in [0, " + std::to_string(x.shape()[axis]) + "] for axis " +
                         std::to_string(axis) + ", got " + std::to_string(k),
                     where);
  return first_of("topk", x, k, axis, order, where);
}

RaggedSorted topk(const Ragged& x, std::int64_t k, Order order, SourceLocation where) {
  if (k < 0) throw ShapeError("topk: k must be at least 0, got " + std::to_string(k), where);
  const RaggedSorted all = sorted_rows("topk", x, order, where);
  return {slice(all.values, 0, k), slice(all.which, 0, k)};
}

RaggedSorted topk(const Ragged& x, std::int64_t k, int axis, Order order, SourceLocation where) {
  if (along_rows("topk", x, axis, where)) return topk(x, k, order, where);
  return per_row(x, topk(x.values(), k, axis, order, where));
}

RaggedUnique unique(const Ragged& x, SourceLocation where) {
  check::rank("unique", "x", x.values(), 1, "[total]", where);
  return untaped([&] {
    const auto [sorted, which] = sorted_rows("unique", x, Order::ascending, where);
    // Where an element differs from the one before it. What follows is counted on the host, that waits for this anyway.
    Tensor changes = zeros({0}, {.dtype = i64});
    if (x.total() > 1)
      changes = detail::positions(slice(sorted.values(), 0, 1, x.total()) != slice(sorted.values(), 0, 0, -1)) + 1;
    changes = detail::transferred(changes, Device::cpu());
    const Tensor from = detail::transferred(which.values(), Device::cpu());
    Tensor inverse = empty_like(from), begins = empty({changes.size() + x.count()}, {.dtype = i64}),
           counts = empty_like(begins);
    const auto change_at = changes.data<std::int64_t>(), from_at = from.data<std::int64_t>();
    const auto inverse_at = inverse.mutable_data<std::int64_t>(), begin_at = begins.mutable_data<std::int64_t>(),
               count_at = counts.mutable_data<std::int64_t>();
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(x.count()));
    std::size_t groups = 0, change = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const std::size_t before = groups;
      const std::int64_t first = x.offsets().span()[s], end = x.offsets().span()[s + 1];
      for (std::int64_t at = first; at < end; ++groups) {
        while (change < change_at.size() && change_at[change] <= at) ++change;
        const std::int64_t next = change == change_at.size() ? end : std::min(change_at[change], end);
        begin_at[groups] = at;
        count_at[groups] = next - at;
        for (; at < next; ++at)
          inverse_at[static_cast<std::size_t>(first + from_at[static_cast<std::size_t>(at)])] =
              static_cast<std::int64_t>(groups - before);
      }
      lengths[s] = static_cast<std::int64_t>(groups - before);
    }
    const auto of_groups = [&](const Tensor& list) {
      return detail::transferred(clone(slice(list, 0, 0, static_cast<std::int64_t>(groups))), x.device());
    };
    const Offsets offsets(lengths, where);
    return RaggedUnique{Ragged(detail::take_rows("unique", sorted.values(), of_groups(begins), where), offsets, where),
                        x.with(detail::transferred(inverse, x.device())), Ragged(of_groups(counts), offsets, where)};
  });
}

Unique unique(const Tensor& x, SourceLocation where) {
  check::defined("unique", "x", x, where);
  const Tensor flat = untaped([&] { return reshape(x, {x.size()}); });
  const RaggedUnique found = unique(Ragged::from_lengths(flat, {x.size()}, where), where);
  return {found.values.values(), detail::reshaped(found.inverse.values(), x.shape()), found.counts.values()};
}

SortedByLength sort_by_length(const Ragged& x, Order order, SourceLocation where) {
  check::defined("sort_by_length", "x", x.values(), where);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(x.count())), inverse(indices.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(), [&](std::int64_t a, std::int64_t b) {
    return order == Order::ascending ? x.length(a) < x.length(b) : x.length(a) > x.length(b);
  });
  for (std::size_t i = 0; i < indices.size(); ++i)
    inverse[static_cast<std::size_t>(indices[i])] = static_cast<std::int64_t>(i);
  Ragged sorted = take(x, indices);
  return {std::move(sorted), std::move(indices), std::move(inverse)};
}

}  // namespace reel
