// The Ricker wavelet (1 - x^2) exp(-x^2 / 2) and its gradient: a thread for each element.

template <class T>
__global__ void ricker(long long n, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const T square = x[i] * x[i];
  y[i] = (1 - square) * exp(-square / 2);
}

template <class T>
__global__ void ricker_backward(long long n, const T* dy, const T* x, const T* /*y*/, T* dx) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const T square = x[i] * x[i];
  dx[i] = dy[i] * x[i] * (square - 3) * exp(-square / 2);
}
