#include "reel/tests/ops/reduction_cases.h"

#include "reel/tests/ops/sequences.h"

namespace reel::test {

namespace {

struct Form {
  const char* variant;
  Axes axes;
  std::uint32_t mask;
  Keep keep;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {{"", {}, 7, Keep::no},
                                        {"/all_kept", {}, 7, Keep::yes},
                                        {"/last", -1, 4, Keep::no},
                                        {"/first", 0, 1, Keep::no},
                                        {"/middle", 1, 2, Keep::yes},
                                        {"/outer_pair", {0, 2}, 5, Keep::no},
                                        {"/inner_pair", {1, 2}, 6, Keep::no}};
  return all;
}

std::vector<BadCall> misuse(const std::string& name, const ReduceOp& op) {
  return {{[op] {
             op(ones({2, 3}), 2, Keep::no, SourceLocation::current());
           },
           {name, "axis must be in [-2, 2), got 2", "cases.cpp"}},
          {[op] {
             op(ones({2, 3}), {0, -2}, Keep::no, SourceLocation::current());
           },
           {name, "axis 0 twice"}},
          {[op] { op(Tensor(), {}, Keep::no, SourceLocation::current()); }, {name, "x must be defined"}}};
}

// An op on x [rows, cols] as sequences; bits have no gradient.
OpCase of_sequences(const std::string& name, Numbers numbers, std::int64_t least_cols) {
  OpCase row{.name = name,
             .inputs =
                 [=](Maker& make, Size size) {
                   const Extent n = extent_of(size);
                   return Tensors{made(make, {n.rows, n.cols + least_cols - 1}, numbers)};
                 },
             .call = {},
             .reference = {},
             .tolerance = 40};
  if (numbers == Numbers::bits) {
    row.order = 0;
    row.differentiable = {};
  }
  return row;
}

}  // namespace

Tensor made(Maker& make, const Shape& shape, Numbers numbers) {
  if (numbers == Numbers::bits) return make.index(shape, 2);
  if (numbers == Numbers::near_one) return make.uniform(shape, 0.96875, 1.03125);
  return numbers == Numbers::distinct ? make.distinct(shape) : make.uniform(shape);
}

Ref folded(const Ref& x, std::uint32_t mask, bool keep, const Fold& fold) {
  Shape kept, result;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const bool gone = (mask >> i & 1) != 0;
    kept.push_back(gone ? 1 : x.shape[i]);
    if (keep || !gone) result.push_back(gone ? 1 : x.shape[i]);
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.size()));
  for (std::int64_t e = 0; e < x.shape.size(); ++e) {
    std::vector<std::int64_t> index = index_of(e, x.shape);
    for (int i = 0; i < x.shape.rank(); ++i)
      if ((mask >> i & 1) != 0) index[static_cast<std::size_t>(i)] = 0;
    groups[static_cast<std::size_t>(flat_of(index, kept))].push_back(x.v[static_cast<std::size_t>(e)]);
  }
  Ref y{result, {}};
  for (const auto& group : groups) y.v.push_back(fold(group));
  return y;
}

OpCase& add_reduction(std::vector<OpCase>& rows, const Reduction& reduction) {
  const bool smooth = reduction.numbers != Numbers::bits;
  const std::size_t first = rows.size();
  for (const Form& form : forms())
    rows.push_back(
        {.name = reduction.name + form.variant,
         .inputs =
             [numbers = reduction.numbers](Maker& make, Size size) {
               const Extent n = extent_of(size);
               return Tensors{made(make, {n.rows, 2, n.cols}, numbers)};
             },
         .call = [op = reduction.op,
                  form](const Tensors& in) { return op(in[0], form.axes, form.keep, SourceLocation::current()); },
         .reference =
             [fold = reduction.fold, form](const std::vector<Ref>& in) {
               return folded(in[0], form.mask, form.keep == Keep::yes, fold);
             },
         .order = smooth ? 2 : 0,
         .differentiable = smooth ? std::vector<int>{0} : std::vector<int>{},
         .tolerance = 40,
         .skip = reduction.skip});
  rows[first].bad = misuse(reduction.name, reduction.op);
  return rows[first];
}

OpCase per_sequence(const std::string& name, std::function<Tensor(const Ragged&)> op, const Fold& fold,
                    Numbers numbers) {
  OpCase row = of_sequences(name + "/ragged", numbers, 1);
  row.call = [op](const Tensors& in) { return op(in_sequences(in[0])); };
  row.reference = [fold](const std::vector<Ref>& in) {
    const Ref& x = in[0];
    Ref y{{sequence_lengths(x.shape[0]).size(), x.shape[1]}, {}};
    for_each_sequence(x.shape[0], [&](std::int64_t, std::int64_t begin, std::int64_t length) {
      for (std::int64_t c = 0; c < x.shape[1]; ++c) {
        std::vector<double> column;
        for (std::int64_t r = begin; r < begin + length; ++r) column.push_back(at(x, {r, c}));
        y.v.push_back(fold(column));
      }
    });
    return y;
  };
  row.bad = {{[op] { op(Ragged()); }, {name + ": x must be defined", "cases.cpp"}}};
  const bool extreme = numbers == Numbers::distinct;
  if (numbers != Numbers::bits && name != "sum" && name != "prod" && !extreme)  // those take integers
    row.bad.push_back({[op] { op(Ragged::from_lengths(arange(3), {3})); }, {name + ": x must be f32 or f64, got i64"}});
  return row;
}

OpCase per_row(const std::string& name, std::function<Ragged(const Ragged&, int)> op, const Fold& fold,
               Numbers numbers) {
  OpCase row = of_sequences(name + "/ragged_rows", numbers, 2);
  row.call = [op](const Tensors& in) { return op(in_sequences(in[0]), 1).values(); };
  row.reference = [fold](const std::vector<Ref>& in) { return folded(in[0], 2, false, fold); };
  row.bad = {{[op] { op(in_sequences(ones({2, 3})), 0); }, {name, "behind the rows' axis 0", "cases.cpp"}}};
  return row;
}

}  // namespace reel::test
