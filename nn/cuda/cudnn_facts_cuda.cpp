#include <cudnn_graph.h>

#include "nn/cuda/cudnn_facts.hpp"

namespace mayfly::nn::cuda {

CudnnFacts read_cudnn_facts(int device) {
  return {.gpu = read_gpu_facts(device), .found_cudnn = cudnnGetVersion()};
}

}  // namespace mayfly::nn::cuda
