#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda {
namespace MAYFLY_SIDE {
namespace {

int load() {
  for (const auto load_part :
       {load_input_kernels, load_norm_sum_kernels, load_norm_apply_kernels, load_pool_kernels,
        load_classifier_kernels, load_loss_kernels, load_parameter_kernels}) {
    if (const int failed = load_part(); failed != 0) {
      return failed;
    }
  }
  return 0;
}

Kernels make_table() {
  Kernels table{};
  table.load = load;
  add_input_kernels(table);
  add_norm_sum_kernels(table);
  add_norm_apply_kernels(table);
  add_pool_kernels(table);
  add_classifier_kernels(table);
  add_loss_kernels(table);
  add_parameter_kernels(table);
  return table;
}

}  // namespace
}  // namespace MAYFLY_SIDE

#ifdef __CUDACC__
const Kernels& device_kernels() {
#else
const Kernels& host_kernels() {
#endif
  static const Kernels table = MAYFLY_SIDE::make_table();
  return table;
}

}  // namespace mayfly::nn::cuda
