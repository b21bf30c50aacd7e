#pragma once

/// Eigen and Reel on the same numbers. Not part of reel.h: for programs that have Eigen (3.3 or later).
#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#else
#include <eigen3/Eigen/Core>
#endif

#include <cstdlib>
#include <string>

#include "reel/core/error.h"
#include "reel/core/tensor.h"

namespace reel::interop {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Strides>;
template <class T>
using Map = Eigen::Map<Matrix<T>, Eigen::Unaligned, Strides>;

namespace detail {

template <class MapType, class T>
MapType map_of(const char* op, const Tensor& x, SourceLocation where) {
  if (!x.defined()) throw Error(std::string(op) + ": x must be defined", where);
  if (x.dtype() != dtype_of<T>)
    throw DTypeError(std::string(op) + ": x must be " + name_of(dtype_of<T>) + ", got " + name_of(x.dtype()), where);
  if (!(x.device() == Device::cpu()))
    throw DeviceError(std::string(op) + ": x must be on the CPU, got " + x.device().name(), where);
  if (x.rank() < 1 || x.rank() > 2)
    throw ShapeError(std::string(op) + ": x must have shape [rows] or [rows, cols], got " + x.shape().str(), where);
  const Eigen::Index cols = x.rank() == 2 ? x.shape()[1] : 1, step = x.rank() == 2 ? x.stride(1) : 1;
  return MapType(x.array().template as<T>(), x.shape()[0], cols, Strides(x.stride(0), step));
}

}  // namespace detail

/// The elements of x [rows, cols], or of [rows] as one column, where they lie; x may be a view with any strides. The map is
/// valid as long as a handle to x is. Throws DTypeError unless x is of type T, DeviceError, ShapeError.
template <class T>
ConstMap<T> as_eigen(const Tensor& x, SourceLocation where = SourceLocation::current()) {
  return detail::map_of<ConstMap<T>, T>("as_eigen", x, where);
}

/// The same for writing. Counts as a write: throws VersionError if x is on a live tape, ShapeError for views in which elements
/// share a place, as expand makes them.
template <class T>
Map<T> as_mutable_eigen(Tensor& x, SourceLocation where = SourceLocation::current()) {
  const Map<T> map = detail::map_of<Map<T>, T>("as_mutable_eigen", x, where);
  // The larger step must lead over all that the smaller one reaches.
  const Eigen::Index rows = map.rows(), cols = map.cols();
  const Eigen::Index down = rows < 2 ? 0 : std::abs(map.outerStride()),
                     across = cols < 2 ? 0 : std::abs(map.innerStride());
  const bool rows_apart = rows < 2 || down > (across <= down ? (cols - 1) * across : 0);
  const bool columns_apart = cols < 2 || across > (down < across ? (rows - 1) * down : 0);
  if (map.size() > 0 && !(rows_apart && columns_apart))
    throw ShapeError("as_mutable_eigen: each element must have a place of its own, got a view of shape " +
                         x.shape().str() + " in which some share one",
                     where);
  x.note_write("as_mutable_eigen", where);
  return map;
}

/// A tensor [rows, cols] with the elements of any Eigen expression, or [rows] if its type is that of a column.
template <class Derived>
Tensor from_eigen(const Eigen::DenseBase<Derived>& x, SourceLocation where = SourceLocation::current()) {
  using T = typename Derived::Scalar;
  const bool column = Derived::ColsAtCompileTime == 1;
  Tensor y = empty(column ? Shape{x.rows()} : Shape{x.rows(), x.cols()}, {.dtype = dtype_of<T>}, where);
  detail::map_of<Map<T>, T>("from_eigen", y, where) = x.derived();
  return y;
}

}  // namespace reel::interop
