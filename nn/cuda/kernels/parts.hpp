#pragma once

// Private to nn/cuda/kernels: the functions that each file adds to the table.

#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/kernels/values.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {

void add_input_kernels(Kernels& table);
void add_norm_sum_kernels(Kernels& table);
void add_norm_apply_kernels(Kernels& table);
void add_pool_kernels(Kernels& table);
void add_classifier_kernels(Kernels& table);
void add_loss_kernels(Kernels& table);
void add_parameter_kernels(Kernels& table);

[[nodiscard]] int load_input_kernels();
[[nodiscard]] int load_norm_sum_kernels();
[[nodiscard]] int load_norm_apply_kernels();
[[nodiscard]] int load_pool_kernels();
[[nodiscard]] int load_classifier_kernels();
[[nodiscard]] int load_loss_kernels();
[[nodiscard]] int load_parameter_kernels();

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
