#pragma once

// Marks functions that run on the CPU and, compiled by the CUDA compiler, on a GPU as well.

#ifdef __CUDACC__
#define MAYFLY_HOST_DEVICE __host__ __device__
#else
#define MAYFLY_HOST_DEVICE
#endif
