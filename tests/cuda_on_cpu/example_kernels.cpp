// The kernels of the examples, for their programs on the executor.

#include <cmath>

#include "reel/tests/cuda_on_cpu/source_kernels.h"

// `extern __shared__` names one array of the block's: here, one of the program's, as blocks run one after the other.
#define __shared__
double coulomb_shared[1024];

using std::exp;
using std::sqrt;
#include "coulomb.cu"
#include "ricker.cu"

namespace {

template <class T>
void register_for(const std::string& type) {
  using cuda_on_cpu::register_kernel;
  register_kernel("ricker<" + type + ">", &ricker<T>);
  register_kernel("ricker_backward<" + type + ">", &ricker_backward<T>);
  register_kernel("coulomb<" + type + ">", &coulomb<T>);
  register_kernel("coulomb_backward<" + type + ">", &coulomb_backward<T>);
}

const bool registered = [] {
  register_for<float>("float");
  register_for<double>("double");
  return true;
}();

}  // namespace
