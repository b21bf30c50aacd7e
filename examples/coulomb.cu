// Charges that repel each other, x [charges, 3]: the energy of each is half the sum of 1 / distance to all others. A block
// for each charge; its threads take the others in turn, and meet in shared memory.

// The block's sum of `value`; partial: room for one per thread. All threads call it; their number is a power of two.
template <class T>
__device__ T block_sum(T value, T* partial) {
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  const T sum = partial[0];
  __syncthreads();
  return sum;
}

template <class T>
__global__ void coulomb(long long charges, long long /*width*/, const T* x, T* energy) {
  extern __shared__ double coulomb_shared[];
  const long long i = blockIdx.x;
  T sum = 0;
  for (long long j = threadIdx.x; j < charges; j += blockDim.x) {
    if (j == i) continue;
    const T a = x[3 * i] - x[3 * j], b = x[3 * i + 1] - x[3 * j + 1], c = x[3 * i + 2] - x[3 * j + 2];
    sum += 1 / sqrt(a * a + b * b + c * c);
  }
  sum = block_sum(sum, reinterpret_cast<T*>(coulomb_shared));
  if (threadIdx.x == 0) energy[i] = sum / 2;
}

// dx_i = sum over j of (dy_i + dy_j) / 2 times the gradient of 1 / |x_i - x_j|.
template <class T>
__global__ void coulomb_backward(long long charges, long long /*width*/, const T* dy, const T* x, const T* /*energy*/,
                                 T* dx) {
  extern __shared__ double coulomb_shared[];
  const long long i = blockIdx.x;
  T sum[3] = {0, 0, 0};
  for (long long j = threadIdx.x; j < charges; j += blockDim.x) {
    if (j == i) continue;
    const T a = x[3 * i] - x[3 * j], b = x[3 * i + 1] - x[3 * j + 1], c = x[3 * i + 2] - x[3 * j + 2];
    const T square = a * a + b * b + c * c;
    const T factor = -(dy[i] + dy[j]) / (2 * square * sqrt(square));
    sum[0] += factor * a;
    sum[1] += factor * b;
    sum[2] += factor * c;
  }
  for (int k = 0; k < 3; ++k) {
    const T total = block_sum(sum[k], reinterpret_cast<T*>(coulomb_shared));
    if (threadIdx.x == 0) dx[3 * i + k] = total;
  }
}
