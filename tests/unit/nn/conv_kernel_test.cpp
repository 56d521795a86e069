#include "nn/cpu/conv_kernel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace mayfly::nn::cpu {
namespace {

// oneDNN is a shared library of the machine, and another version of it computes other bits.
TEST(ConvKernels, TheFingerprintHasTheChoiceAndTheVersionOfOneDnn) {
  for (const char* const choice : {"direct", "winograd", "auto"}) {
    ASSERT_TRUE(select_conv_kernels(choice).ok());
    EXPECT_THAT(
        conv_kernels_fingerprint(),
        testing::MatchesRegex(std::string(choice) + "-[0-9]+-onednn-[0-9]+[.][0-9]+[.][0-9]+"));
  }
}

}  // namespace
}  // namespace mayfly::nn::cpu
