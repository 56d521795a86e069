#include "benchmarks/step/step_timer.hpp"

#include <gtest/gtest.h>

namespace mayfly::bench {
namespace {

using nn::cpu::StepPart;

class StepTimerTest : public ::testing::Test {
 protected:
  void pass(StepPart part, const nn::ConvSpec* layer, double took) {
    now_ += took;
    timer_.passed(part, layer);
  }

  const nn::Model model_ = nn::make_usual_model("resnet20").value();
  const std::vector<const nn::ConvSpec*> layers_ = nn::convolutions_of(model_);
  double now_ = 100;
  StepTimer timer_{model_, [this] { return now_; }};
};

TEST_F(StepTimerTest, TimeGoesToThePartThatPassed) {
  pass(StepPart::kOutside, nullptr, 1);
  pass(StepPart::kLoad, nullptr, 2);
  pass(StepPart::kForward, layers_[0], 3);
  pass(StepPart::kForwardElementwise, layers_[0], 4);
  pass(StepPart::kClassifier, nullptr, 5);
  pass(StepPart::kBackwardElementwise, layers_[18], 6);
  pass(StepPart::kBackward, layers_[18], 7);
  const StepSeconds& s = timer_.seconds();
  EXPECT_EQ(s.outside, 1);
  EXPECT_EQ(s.load, 2);
  EXPECT_EQ(s.layers[0].forward, 3);
  EXPECT_EQ(s.forward_elementwise, 4);
  EXPECT_EQ(s.classifier, 5);
  EXPECT_EQ(s.backward_elementwise, 6);
  EXPECT_EQ(s.layers[18].backward, 7);
  EXPECT_EQ(s.total(), 28);
}

TEST_F(StepTimerTest, StepsAddUpInWhateverOrderLayersCome) {
  for (int step = 0; step < 3; ++step) {
    for (const nn::ConvSpec* layer : layers_) {
      pass(StepPart::kForward, layer, 1);
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      pass(StepPart::kBackward, *layer, 2);
    }
  }
  for (const LayerSeconds& layer : timer_.seconds().layers) {
    EXPECT_EQ(layer.forward, 3);
    EXPECT_EQ(layer.backward, 6);
  }
}

TEST_F(StepTimerTest, ClearForgetsAndCountsFromNow) {
  pass(StepPart::kLoad, nullptr, 2);
  now_ += 50;
  timer_.clear();
  pass(StepPart::kOutside, nullptr, 1);
  EXPECT_EQ(timer_.seconds().total(), 1);
}

TEST_F(StepTimerTest, ThreadsAreAddedLayerByLayer) {
  pass(StepPart::kForward, layers_[2], 3);
  StepSeconds sum;
  sum += timer_.seconds();
  sum += timer_.seconds();
  EXPECT_EQ(sum.layers[2].forward, 6);
  EXPECT_EQ(sum.total(), 6);
}

}  // namespace
}  // namespace mayfly::bench
