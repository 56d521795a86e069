// A fused pass and its parts one by one, as they are tried on a device, end with the same numbers:
// here with the kernels' host versions and convolutions in loops.

#include "nn/cuda/trial_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/random.hpp"
#include "nn/cuda/engine_choice.hpp"
#include "nn/cuda/kernels/values.hpp"
#include "tests/unit/nn/cuda/reference_executor.hpp"

namespace mayfly::nn::cuda {
namespace {

void write(void* to, std::size_t i, Dtype dtype, float value) {
  if (dtype == Dtype::kFp32) {
    static_cast<float*>(to)[i] = value;
  } else {
    on_host::store_value(value, static_cast<on_host::Fp16*>(to) + i);
  }
}

/// One convolution with its tensors, on the host.
class Trial {
 public:
  explicit Trial(const ConvKey& key)
      : key_(key),
        memory_(TrialNorm::bytes_for(key)),
        norm_(key, host_kernels(), memory_.data()),
        x_(key.shape.input_elements() * bytes_of(key.dtype)),
        filter_(key.shape.filter_elements() * bytes_of(key.dtype)),
        y_(key.shape.output_elements() * bytes_of(key.dtype)),
        convolver_(plan_) {
    plan_.dtype = key.dtype;
    plan_.layers.resize(1);
    plan_.layers[0].conv = key.shape;
    for (auto* each : {&x_, &filter_, &y_}) {
      for (std::size_t i = 0; i < each->size() / bytes_of(key.dtype); ++i) {
        write(each->data(), i, key.dtype, random());
      }
    }
    for (const TrialNorm::Input& input : norm_.inputs()) {
      for (std::size_t i = 0; i < input.elements; ++i) {
        write(input.at, i, input.dtype, input.value(random(), i));
      }
    }
    *norm_.loss_input() = training_input(0, 1, 1);
    EXPECT_TRUE(norm_.prepare(nullptr).ok());
  }

  TrialResult unfused() {
    const bool forward = key_.pass == ConvPass::kForwardSums;
    convolve(forward ? ConvPass::kForward : ConvPass::kInputGradient);
    EXPECT_TRUE(norm_.after_plain(forward ? y_.data() : x_.data(), true, nullptr).ok());
    return result();
  }
  TrialResult fused() {
    std::memset(static_cast<void*>(norm_.totals()), 0xff, norm_.totals_bytes());
    convolve(key_.pass);
    EXPECT_TRUE(norm_.after_fused(nullptr).ok());
    return result();
  }

 private:
  float random() { return static_cast<float>(2 * CounterRandom(3).unit(drawn_++) - 1); }

  void convolve(ConvPass pass) {
    const ConvTensors tensors =
        norm_.with({.x = x_.data(), .filter = filter_.data(), .y = y_.data()});
    const Convolve what{.layer = 0, .pass = pass, .x = kNoTensor, .y = kNoTensor};
    EXPECT_TRUE(convolver_.convolve(0, what, tensors, nullptr).ok());
  }
  TrialResult result() {
    const auto& out = key_.pass == ConvPass::kForwardSums ? y_ : x_;
    TrialResult found;
    for (std::size_t i = 0; i < out.size() / bytes_of(key_.dtype); ++i) {
      found.elements.push_back(
          key_.dtype == Dtype::kFp32
              ? reinterpret_cast<const float*>(out.data())[i]
              : on_host::widen(reinterpret_cast<const on_host::Fp16*>(out.data())[i]));
    }
    found.per_channel.assign(norm_.per_channel(), norm_.per_channel() + norm_.per_channel_count());
    return found;
  }

  ConvKey key_;
  AlignedBuffer<std::byte> memory_;
  TrialNorm norm_;
  AlignedBuffer<std::byte> x_, filter_, y_;
  StepPlan plan_;
  NaiveConvolver convolver_;
  std::uint64_t drawn_ = 0;
};

TEST(TrialNorm, AFusedPassAndItsPartsAgreeAndAWrongOneDoesNot) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kFp16}) {
    for (const ConvPass pass : {ConvPass::kForwardSums, ConvPass::kInputGradientSums}) {
      for (const auto& [stride, size] : {std::pair{1, 9}, std::pair{2, 12}}) {
        ConvKey key{.dtype = dtype,
                    .shape = {.images = 3,
                              .in_channels = 16,
                              .out_channels = 24,
                              .kernel = 3,
                              .stride = stride,
                              .padding = 1,
                              .input_size = size,
                              .output_size = (size - 1) / stride + 1},
                    .pass = pass};
        Trial trial(key);
        const TrialResult apart = trial.unfused();
        const TrialResult fused = trial.fused();
        EXPECT_TRUE(agree(apart, fused, dtype)) << to_string(pass) << name_of(dtype);
        EXPECT_EQ(apart.per_channel.size(), pass == ConvPass::kForwardSums ? 2U * 24U : 2U * 16U);
        if (pass == ConvPass::kInputGradientSums) {
          const auto zeros = std::ranges::count(fused.elements, 0.0F);
          const auto all = static_cast<std::ptrdiff_t>(fused.elements.size());
          EXPECT_TRUE(zeros > all / 4 && zeros < all * 3 / 4) << "masks on and off";
        }
        for (const std::size_t i : {std::size_t{1}, fused.per_channel.size() / 2 + 1}) {
          TrialResult wrong = fused;
          wrong.per_channel[i] +=
              0.01F * std::abs(*std::ranges::max_element(apart.per_channel, {},
                                                         [](float v) { return std::abs(v); }));
          EXPECT_FALSE(agree(apart, wrong, dtype));
        }
      }
    }
  }
}

}  // namespace
}  // namespace mayfly::nn::cuda
