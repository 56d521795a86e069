#pragma once

// Selects the kernel of a convolution: a table by instruction set and shape. The choice decides the
// bits of the result, so it is part of the fingerprint that workers compare in exact mode.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "nn/cpu/isa.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cpu {

enum class ConvKernel {
  kDirect,    ///< oneDNN's direct convolution
  kWinograd,  ///< Mayfly's F(4x4, 3x3), nn/cpu/winograd.hpp
};

[[nodiscard]] const char* name_of(ConvKernel kernel);

/// Sets the choice: "auto" (the table), "direct" (oneDNN everywhere) or "winograd" (wherever
/// possible). Applies to engines built later; to be called before the first one. kInvalidInput for
/// another word. Thread-safe.
[[nodiscard]] Result<void> select_conv_kernels(const std::string& choice);

/// The kernel for one convolution.
[[nodiscard]] ConvKernel kernel_for(Isa isa, const ConvSpec& spec);

/// One line per convolution of a network.
struct KernelChoice {
  std::string layer;  ///< name of its weights
  ConvSpec spec;
  ConvKernel kernel;
};
[[nodiscard]] std::vector<KernelChoice> kernel_choices(Isa isa, const Model& model);

/// The choice, the table's version and that of oneDNN, in one word: "auto-2-onednn-2.6.3". Equal
/// words mean equal kernels for every shape, on processors of one model.
[[nodiscard]] std::string conv_kernels_fingerprint();

}  // namespace mayfly::nn::cpu
