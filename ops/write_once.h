#pragma once

#include <memory>

#include "reel/core/tensors.h"

namespace reel {

struct WriteOnceOptions {
  int axis = 1;  // along which it is divided
  DType dtype = f32;
  Device device = {};
};

/// Memory that several results share, each in its part along one axis: what is there already can be read as one tensor
/// while later parts are computed from it. So a dense net needs no concatenation: a layer reads all channels so far and
/// writes its own behind them.
///
///   WriteOnce buffer({n, 1 + layers, h, w});
///   buffer.append(image);
///   for (int i = 1; i <= layers; ++i)
///     conv2d_relu(buffer.view(0, i), weight[i], bias[i], {.padding = 1, .into = buffer.part(i, i + 1)});
///   Tensor all = buffer.view(0, 1 + layers);
///
/// Each part is written once, in any order. Nothing that was read changes by that, so that no version is bumped and no
/// saved tensor is spoilt. What depends on recorded parts is recorded; in a sweep all views add to one gradient of the
/// buffer's size. A cheap handle to shared state, for one thread at a time.
class REEL_API WriteOnce {
  struct State;

 public:
  /// Indices [begin, end) of a buffer's axis, for an op to write to.
  class REEL_API Part {
   public:
    /// None.
    Part() = default;
    Part(const Part&);
    Part& operator=(const Part&);
    ~Part();
    bool defined() const { return state_ != nullptr; }

    /// Copies x, which has this part's shape, dtype and device, there, and returns it as a view of the buffer. Throws
    /// ShapeError, DTypeError, DeviceError, and VersionError if one of the indices was written before.
    Tensor write(const Tensor& x, SourceLocation where = SourceLocation::current()) const;

    // --- for ops, in this order ---
    /// Where to write a result of `shape` with x's dtype and device; unrecorded. Throws as write does.
    Tensor memory(const char* op, const Shape& shape, const Tensor& x, SourceLocation where) const;
    /// The whole buffer as it was, an input of the op, and is now, its output on a tape. The gradient of the former is that of
    /// the latter.
    struct Step {
      Tensor before, after;
    };
    /// The memory has its result.
    Step written(SourceLocation where) const;
    /// This part of something of the buffer's shape; recorded.
    Tensor of(const Tensor& whole, SourceLocation where = {}) const;

   private:
    friend class WriteOnce;
    std::shared_ptr<State> state_;
    std::int64_t begin_ = 0, end_ = 0;
  };

  /// Of which nothing is written. Throws ShapeError, OutOfMemory.
  explicit WriteOnce(const Shape& shape, const WriteOnceOptions& options = {},
                     SourceLocation where = SourceLocation::current());

  /// Throws IndexError unless 0 <= begin <= end <= the axis' size.
  Part part(std::int64_t begin, std::int64_t end, SourceLocation where = SourceLocation::current()) const;
  /// Writes x behind all that is written.
  Tensor append(const Tensor& x, SourceLocation where = SourceLocation::current());
  /// Indices [begin, end) as one tensor: a view; recorded. Throws IndexError unless all of them were written.
  Tensor view(std::int64_t begin, std::int64_t end, SourceLocation where = SourceLocation::current()) const;
  /// One behind the last index that was written.
  std::int64_t end() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace reel
