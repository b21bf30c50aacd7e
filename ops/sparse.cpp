#include "reel/ops/sparse.h"

#include <string>

#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/offsets.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::record_list;
using detail::record_op;
using detail::taping;

// Which rows are summed, and how: sum over the segments of `offsets` (divided by their lengths if `mean`).
struct Sums {
  Tensor index;  // [total], contiguous
  Offsets offsets;
  bool mean;

  Segments segments() const { return offsets.segments(index.device()); }
};

// The three are linear in each of their tensors, and each one's gradients are the other two:
// y[s] = sum weight[j] table[index[j]]; dtable[index[j]] += weight[j] dy[s]; dweight[j] = table[index[j]] . dy[s].
// table, dy: matrices; weight may be undefined: ones.

Tensor summed(const char* op, const Tensor& table, const Tensor& weight, const Sums& sums, SourceLocation where);
Tensor weight_gradient(const Tensor& table, const Tensor& dy, const Sums& sums);

// x, and the weight if there is one.
Tensors with_weight(const Tensor& x, const Tensor& weight) {
  return weight.defined() ? Tensors{x, weight} : Tensors{x};
}

// Without a weight the gradient needs no x.
Tensors saved(const Tensor& x, const Tensor& weight, const Sums& sums) {
  return weight.defined() ? Tensors{x, weight, sums.index} : Tensors{sums.index};
}
Tensor kept(const Tensor& x, const Tensor& weight) { return weight.defined() ? x : Tensor(); }

// What a kernel takes: contiguous, or null.
class Weight {
 public:
  explicit Weight(const Tensor& weight) : packed_(weight.defined() ? packed(weight) : weight) {}
  operator const Array*() const { return packed_.defined() ? &packed_.array() : nullptr; }

 private:
  Tensor packed_;
};

Tensor table_gradient(const Tensor& dy, const Tensor& weight, const Sums& sums, std::int64_t rows) {
  Tensor dtable = zeros({rows, dy.shape()[1]}, dy.options());
  backend(dy.device())
      .segment_gather_backward_table(packed(dy).array(), sums.index.array(), Weight(weight), sums.segments(), sums.mean,
                                     dtable.array());
  if (taping())
    record_list("embedding_bag_backward", SourceLocation{}, with_weight(dy, weight), Tensors{dtable},
                saved(dy, weight, sums), [dy = kept(dy, weight), weight, sums](Gradients& g) {
                  if (g.needs(0)) g.add(0, summed("embedding_bag", g.dy(), weight, sums, SourceLocation{}));
                  if (weight.defined() && g.needs(1)) g.add(1, weight_gradient(g.dy(), dy, sums));
                });
  return dtable;
}

Tensor weight_gradient(const Tensor& table, const Tensor& dy, const Sums& sums) {
  Tensor dweight = empty({sums.index.size()}, dy.options());
  backend(dy.device())
      .segment_gather_backward_weight(packed(table).array(), sums.index.array(), packed(dy).array(), sums.segments(),
                                      sums.mean, dweight.array());
  if (taping())
    record_op("embedding_bag_backward", SourceLocation{}, {&table, &dy}, dweight, {&table, &dy, &sums.index},
              [table, dy, sums](Gradients& g) {
                if (g.needs(0)) g.add(0, table_gradient(dy, g.dy(), sums, table.shape()[0]));
                if (g.needs(1)) g.add(1, summed("embedding_bag", table, g.dy(), sums, SourceLocation{}));
              });
  return dweight;
}

Tensor summed(const char* op, const Tensor& table, const Tensor& weight, const Sums& sums, SourceLocation where) {
  Tensor y = empty({sums.offsets.count(), table.shape()[1]}, table.options());
  backend(table.device())
      .segment_gather(packed(table).array(), sums.index.array(), Weight(weight), sums.segments(), sums.mean, y.array());
  if (taping())
    record_list(op, where, with_weight(table, weight), Tensors{y}, saved(table, weight, sums),
                [table = kept(table, weight), weight, sums, rows = table.shape()[0]](Gradients& g) {
                  if (g.needs(0)) g.add(0, table_gradient(g.dy(), weight, sums, rows));
                  if (weight.defined() && g.needs(1)) g.add(1, weight_gradient(table, g.dy(), sums));
                });
  return y;
}

void check_table(const char* op, const char* name, const Tensor& table, SourceLocation where) {
  check::floating(op, name, table, where);
  if (table.rank() < 1)
    throw ShapeError(std::string(op) + ": " + name + " must have shape [rows, ...], got " + table.shape().str(), where);
}

// Sums of a table of any rank: leading axes `lead` and the table's other ones.
Tensor sums_of(const char* op, const Tensor& table, const Tensor& weight, const Sums& sums, Shape lead,
               SourceLocation where) {
  std::int64_t width = 1;
  for (int i = 1; i < table.rank(); ++i) {
    if (lead.rank() == kMaxRank) throw ShapeError(std::string(op) + ": the result would have more than 8 axes", where);
    width *= table.shape()[i];
    lead.push_back(table.shape()[i]);
  }
  const Tensor matrix = table.rank() == 2 ? table : reshape(table, {table.shape()[0], width});
  const Tensor y = summed(op, matrix, weight, sums, where);
  return y.shape() == lead ? y : reshape(y, lead);
}

// What a user calls the two factors.
struct Names {
  const char *op, *table, *weights;
};

Tensor bags(const Names& names, const Tensor& table, const Ragged& index, const Ragged* weights, Bag bag,
            SourceLocation where) {
  const char* op = names.op;
  check_table(op, names.table, table, where);
  check::index(op, "index", index.values(), where);
  check::rank(op, "index", index.values(), 1, "[total]", where);
  Tensor weight;
  if (weights != nullptr) {
    check::like(op, names.weights, weights->values(), names.table, table, where);
    check::rank(op, names.weights, weights->values(), 1, "[total]", where);
    check::same_lengths(op, index, *weights, where);
    weight = weights->values();
  }
  const Tensor at = detail::checked_index(op, index.values(), table.shape()[0], table, where);
  return sums_of(op, table, weight, {at, index.offsets(), bag == Bag::mean}, {index.count()}, where);
}

constexpr Names kBag{"embedding_bag", "table", "weights"}, kProduct{"spmm", "dense", "values"};

}  // namespace

Tensor gather_add(const Tensor& table, const Tensor& index, SourceLocation where) {
  check_table("gather_add", "table", table, where);
  check::index("gather_add", "index", index, where);
  if (index.rank() < 1) throw ShapeError("gather_add: index must have shape [..., k], got []", where);
  Shape lead = index.shape();
  const std::int64_t k = lead.back();
  lead.pop_back();
  const Tensor at = detail::checked_index("gather_add", index, table.shape()[0], table, where);
  detail::HostList<std::int64_t> lengths(lead.size());
  for (std::int64_t i = 0; i < lead.size(); ++i) lengths.push_back(k);
  return sums_of("gather_add", table, Tensor(), {detail::reshaped(at, {at.size()}), Offsets(lengths, where), false},
                 lead, where);
}

Ragged gather_add(const Tensor& table, const Ragged& index, SourceLocation where) {
  check::rank("gather_add", "index", index.values(), 2, "[total, k]", where);
  return index.with(gather_add(table, index.values(), where));
}

Tensor embedding_bag(const Tensor& table, const Ragged& index, Bag bag, SourceLocation where) {
  if (bag != Bag::max) return bags(kBag, table, index, nullptr, bag, where);
  check_table("embedding_bag", "table", table, where);
  check::rank("embedding_bag", "index", index.values(), 1, "[total]", where);
  if (!(index.device() == table.device()))
    throw DeviceError(
        "embedding_bag: index must be on " + table.device().name() + " like table, got " + index.device().name(),
        where);
  const Tensor at = detail::checked_index("embedding_bag", index.values(), table.shape()[0], table, where);
  return max(index.with(detail::take_rows("embedding_bag", table, at, SourceLocation{})));
}

Tensor embedding_bag(const Tensor& table, const Ragged& index, const Ragged& weights, Bag bag, SourceLocation where) {
  if (bag == Bag::max) throw Error("embedding_bag: weights go with a sum or a mean, got Bag::max", where);
  return bags(kBag, table, index, &weights, bag, where);
}

Tensor spmm(const Ragged& index, const Ragged& values, const Tensor& dense, SourceLocation where) {
  return bags(kProduct, dense, index, &values, Bag::sum, where);
}

}  // namespace reel
