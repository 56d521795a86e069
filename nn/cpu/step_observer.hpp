#pragma once

// Where a step's time goes: an engine that is given an observer tells it, on its own thread, what
// it has just done. This folder reads no clock; the observer does. Without one, a null check per
// layer is all that is left.

#include "nn/model.hpp"

namespace mayfly::nn::cpu {

enum class StepPart {
  kOutside,              ///< what the caller did since the engine's last step
  kLoad,                 ///< images copied; new weights brought into the kernels' layouts
  kForward,              ///< a convolution with the statistics of its norm
  kForwardElementwise,   ///< norm, ReLU, shortcut and pooling where they are passes of their own
  kClassifier,           ///< pooling, logits, loss, and their gradients
  kBackward,             ///< both gradients of a convolution with what is fused into them
  kBackwardElementwise,  ///< the rest of backward
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// All since the previous call was `part`; `layer` is the convolution it belongs to, by its
  /// address in the engine's Model, or null. Must not throw or call the engine.
  virtual void passed(StepPart part, const ConvSpec* layer) = 0;
};

}  // namespace mayfly::nn::cpu
