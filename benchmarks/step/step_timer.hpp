#pragma once

// Adds up the time of each part of one engine's steps (nn/cpu/cpu_engine.hpp). One thread.

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/cpu/cpu_engine.hpp"
#include "nn/model.hpp"

namespace mayfly::bench {

struct LayerSeconds {
  double forward = 0;
  double backward = 0;
};

/// Seconds of all steps since the last clear() together.
struct StepSeconds {
  std::vector<LayerSeconds> layers;  ///< convolutions, in the order of convolutions_of()
  double outside = 0;                ///< gradient sums, update and other work of the caller
  double load = 0;
  double forward_elementwise = 0;
  double backward_elementwise = 0;
  double classifier = 0;

  [[nodiscard]] double total() const;
  StepSeconds& operator+=(const StepSeconds& other);
};

class StepTimer final : public nn::cpu::StepObserver {
 public:
  /// `now` returns seconds that only grow; it is called once per part of a step. `model` is the
  /// engine's.
  StepTimer(const nn::Model& model, std::function<double()> now);

  void passed(nn::cpu::StepPart part, const nn::ConvSpec* layer) override;

  /// Discards all times; counting begins anew.
  void clear();
  [[nodiscard]] const StepSeconds& seconds() const { return seconds_; }

 private:
  LayerSeconds& of(const nn::ConvSpec* layer);

  std::vector<const nn::ConvSpec*> layers_;
  std::size_t last_ = 0;  // layers are passed in order, so the next one is near
  std::function<double()> now_;
  double begin_;
  StepSeconds seconds_;
};

}  // namespace mayfly::bench
