// Kernels of custom_op_test.cpp: one for each way in which a custom op can be launched.

// By element, with numbers and an integer input; y = by x[index] + shift.
template <class T>
__global__ void pick(long long n, const T* x, const long long* index, T* y, double by, long long shift) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(by) * x[index[i]] + static_cast<T>(shift);
}

// By row, with dynamic shared memory and two outputs: the largest element of each row, and where it is first.
template <class T>
__global__ void row_max(long long /*rows*/, long long width, const T* x, T* most, long long* which) {
  extern __shared__ double custom_shared[];
  T* values = reinterpret_cast<T*>(custom_shared);
  long long* places = reinterpret_cast<long long*>(custom_shared + blockDim.x);
  const T* row = x + blockIdx.x * width;
  T value = row[0];
  long long place = 0;
  for (long long j = threadIdx.x; j < width; j += blockDim.x)
    if (row[j] > value) {
      value = row[j];
      place = j;
    }
  values[threadIdx.x] = value;
  places[threadIdx.x] = place;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned t = 1; t < blockDim.x; ++t)
    if (values[t] > value || (values[t] == value && places[t] < place)) {
      value = values[t];
      place = places[t];
    }
  most[blockIdx.x] = value;
  which[blockIdx.x] = place;
}

// By sequence: each column's sum [sequences, width].
template <class T>
__global__ void sequence_sum(long long /*sequences*/, long long width, const T* x, const long long* offsets, T* y) {
  for (long long j = threadIdx.x; j < width; j += blockDim.x) {
    T sum = 0;
    for (long long r = offsets[blockIdx.x]; r < offsets[blockIdx.x + 1]; ++r) sum += x[r * width + j];
    y[blockIdx.x * width + j] = sum;
  }
}

template <class T>
__global__ void sequence_sum_backward(long long /*sequences*/, long long width, const T* dy, const T* /*x*/,
                                      const long long* offsets, const T* /*y*/, T* dx) {
  for (long long j = threadIdx.x; j < width; j += blockDim.x)
    for (long long r = offsets[blockIdx.x]; r < offsets[blockIdx.x + 1]; ++r)
      dx[r * width + j] = dy[blockIdx.x * width + j];
}

// On a grid of two dimensions: the transpose of x [rows, cols].
template <class T>
__global__ void transpose(long long /*n*/, const T* x, T* y, long long rows, long long cols) {
  const long long c = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long r = static_cast<long long>(blockIdx.y) * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) y[c * rows + r] = x[r * cols + c];
}

// What a test plants: a kernel that is not what the loop on the CPU computes, and one that is right forward only.
template <class T>
__global__ void twice(long long n, const T* x, T* y) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}

template <class T>
__global__ void thrice_backward(long long n, const T* dy, const T* /*x*/, const T* /*y*/, T* dx) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = 3 * dy[i];
}
