#include "benchmarks/step/step_timer.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::bench {

using nn::cpu::StepPart;

double StepSeconds::total() const {
  double sum = outside + load + forward_elementwise + backward_elementwise + classifier;
  for (const LayerSeconds& layer : layers) {
    sum += layer.forward + layer.backward;
  }
  return sum;
}

StepSeconds& StepSeconds::operator+=(const StepSeconds& other) {
  layers.resize(std::max(layers.size(), other.layers.size()));
  for (std::size_t i = 0; i < other.layers.size(); ++i) {
    layers[i].forward += other.layers[i].forward;
    layers[i].backward += other.layers[i].backward;
  }
  outside += other.outside;
  load += other.load;
  forward_elementwise += other.forward_elementwise;
  backward_elementwise += other.backward_elementwise;
  classifier += other.classifier;
  return *this;
}

StepTimer::StepTimer(const nn::Model& model, std::function<double()> now)
    : layers_(nn::convolutions_of(model)), now_(std::move(now)), begin_(now_()) {
  seconds_.layers.resize(layers_.size());
}

LayerSeconds& StepTimer::of(const nn::ConvSpec* layer) {
  for (std::size_t tried = 0; tried < layers_.size() && layers_[last_] != layer; ++tried) {
    last_ = (last_ + 1) % layers_.size();
  }
  ENSURE(layers_[last_] == layer, "the layer belongs to the timer's model");
  return seconds_.layers[last_];
}

void StepTimer::passed(StepPart part, const nn::ConvSpec* layer) {
  const double now = now_();
  const double took = now - std::exchange(begin_, now);
  switch (part) {
    case StepPart::kOutside: seconds_.outside += took; return;
    case StepPart::kLoad: seconds_.load += took; return;
    case StepPart::kForward: of(layer).forward += took; return;
    case StepPart::kForwardElementwise: seconds_.forward_elementwise += took; return;
    case StepPart::kClassifier: seconds_.classifier += took; return;
    case StepPart::kBackward: of(layer).backward += took; return;
    case StepPart::kBackwardElementwise: seconds_.backward_elementwise += took; return;
  }
}

void StepTimer::clear() {
  seconds_ = {};
  seconds_.layers.resize(layers_.size());
  begin_ = now_();
}

}  // namespace mayfly::bench
