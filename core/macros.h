#pragma once

// Build-time macros, the only ones in public headers.

#if defined(__CUDACC__)
#define REEL_HOST_DEVICE __host__ __device__
#else
#define REEL_HOST_DEVICE
#endif

// For functions in headers that CPU kernels include: those are compiled once per instruction set, and a copy that was not
// inlined would be merged by the linker across the sets. always_inline leaves no copy to merge.
#define REEL_INLINE __attribute__((always_inline)) inline

#define REEL_API __attribute__((visibility("default")))

// 1 in the programs of users, 0 in Reel's own code. Small accessors look whether a handle is defined and an axis exists for
// users alone, since the library's functions have checked at their doors; and the library's own lines are nobody's news.
// What asks this is REEL_INLINE, so that no copy of one kind is linked in place of the other.
#if defined(REEL_LIBRARY)
#define REEL_USER_CODE 0
#else
#define REEL_USER_CODE 1
#endif

// Scalar maths, compiled by the CPU's compiler and by nvcc alike.
#if defined(__CUDACC__)
#define REEL_SCALAR __host__ __device__ __forceinline__
#else
#define REEL_SCALAR REEL_INLINE
#endif

// Before a loop of a few steps in scalar maths: unrolled, it leaves no loop inside the kernel's.
#if defined(__CUDA_ARCH__) || defined(__clang__)
#define REEL_UNROLL _Pragma("unroll")
#else
#define REEL_UNROLL _Pragma("GCC unroll 16")
#endif
