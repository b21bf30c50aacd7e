// y = condition ? a : b, as bits.

#include "reel/backends/cuda/map.h"

namespace reel::cuda {

namespace device {
namespace {

/// An operand of as many elements as the result, or of one.
template <class T>
struct Choice {
  const T* data;
  bool one;

  template <int n>
  REEL_DEVICE Pack<T, n> at(int64_t i) const {
    if (one) return splat<n>(*data);
    return load_pack<T, n>(data + i);
  }
};

template <class T, int n>
struct Choices {
  Pack<std::uint8_t, n> condition;
  Pack<T, n> a, b;
};

template <class T>
__global__ void choose(const std::uint8_t* condition, Choice<T> a, Choice<T> b, T* y, Units<T> units) {
  const auto load = [=]<int n>(int64_t i) {
    return Choices<T, n>{load_pack<std::uint8_t, n>(condition + i), a.template at<n>(i), b.template at<n>(i)};
  };
  for_each_unit<kMapSteps>(units, load, [=]<int n>(int64_t i, const Choices<T, n>& from) {
    Pack<T, n> to;
    REEL_UNROLL
    for (int k = 0; k < n; ++k) to.v[k] = from.condition.v[k] != 0 ? from.a.v[k] : from.b.v[k];
    write_pack(y + i, to);
  });
}

}  // namespace
}  // namespace device

void CudaOps::choose(const Array& condition, const Array& a, const Array& b, const Array& y) {
  if (y.size == 0) return;
  dispatch_bytes(size_of(y.dtype), [&]<class T>() {
    const auto choice = [](const Array& x) { return device::Choice<T>{x.as<T>(), x.size == 1}; };
    const auto packed = [](const Array& x) { return x.size == 1 || in_packs<T>({x.data}); };
    const bool all = packed(a) && packed(b) && in_packs<T>({y.data}) && is_aligned(condition.data, 1, kPack<T>);
    const Units<T> units = units_of<T>(0, y.size, all);
    launch(context_, "choose", units.grid(device::kMapSteps), &device::choose<T>, condition.as<std::uint8_t>(),
           choice(a), choice(b), y.as<T>(), units);
  });
}

}  // namespace reel::cuda
