#include "nn/cuda/image_source.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/rehearsal/host_feed.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr std::size_t kFloats = 6;

std::vector<float> images_of(float value) {
  return std::vector<float>(kFloats, value);
}

Batch batch_of(const std::vector<float>& images, std::uint64_t id = 0) {
  return {.images = images, .labels = {}, .id = id};
}

/// Records the calls that the feed makes.
class Calls final : public FeedCalls {
 public:
  float* pinned(std::size_t which) override { return device.pinned(which); }
  void await_upload(std::size_t which) override {
    said += "await" + std::to_string(which) + " ";
    device.await_upload(which);
  }
  void upload(std::size_t which, std::size_t bytes) override {
    said += "upload" + std::to_string(which) + " ";
    device.upload(which, bytes);
  }
  void hand_over(std::size_t bytes) override {
    said += "take ";
    device.hand_over(bytes);
  }

  std::string said;
  HostFeed device{kFloats};
};

class ImageFeedTest : public ::testing::Test {
 protected:
  std::string said() { return std::exchange(calls.said, ""); }
  [[nodiscard]] const std::vector<float>& on_device() const { return calls.device.images(); }

  Calls calls;
  ImageFeed feed{calls};
};

TEST_F(ImageFeedTest, WithoutAWordImagesComeWhenTheyAreWanted) {
  for (const float value : {1.0F, 2.0F, 3.0F}) {
    feed.take(batch_of(images_of(value)));
    feed.bring_expected();
    EXPECT_EQ(on_device(), images_of(value));
  }
  EXPECT_EQ(said(), "await0 upload0 take await1 upload1 take await0 upload0 take ");
}

TEST_F(ImageFeedTest, TheNextImagesComeWhileThePresentOnesAreComputed) {
  const std::vector<float> first = images_of(1);
  const std::vector<float> second = images_of(2);
  feed.expect(batch_of(second, 7));
  EXPECT_EQ(said(), "") << "nothing is copied before the device has work";
  feed.expect(batch_of(second, 8));
  feed.take(batch_of(first));
  EXPECT_EQ(said(), "await0 upload0 take ");
  feed.bring_expected();
  EXPECT_EQ(said(), "await1 upload1 ");
  EXPECT_EQ(on_device(), first);
  feed.take(batch_of(second, 8));
  EXPECT_EQ(said(), "take ");
  EXPECT_EQ(on_device(), second);
}

TEST_F(ImageFeedTest, WhatWasExpectedIsOnTheDeviceWhenItIsTaken) {
  std::vector<float> images = images_of(1);
  feed.take(batch_of(images));
  EXPECT_EQ(said(), "await0 upload0 take ");
  for (std::uint64_t id = 1; id < 5; ++id) {
    const float value = static_cast<float>(id) + 1;
    images = images_of(value);
    feed.expect(batch_of(images, id));
    feed.bring_expected();
    EXPECT_EQ(on_device(), images_of(value - 1)) << "the present step reads them still";
    EXPECT_EQ(said(), id % 2 == 1 ? "await1 upload1 " : "await0 upload0 ");
    images = images_of(-1);  // the caller may use its memory again
    feed.take(batch_of(images, id));
    EXPECT_EQ(said(), "take ");
    EXPECT_EQ(on_device(), images_of(value));
  }
}

TEST_F(ImageFeedTest, ABatchThatNobodyExpectedTakesThePlaceOfWhatWasExpected) {
  const std::vector<float> expected = images_of(1);
  const std::vector<float> other = images_of(2);
  feed.expect(batch_of(expected, 1));
  feed.bring_expected();
  feed.take(batch_of(other));
  EXPECT_EQ(on_device(), other);
  feed.take(batch_of(expected, 1));
  EXPECT_EQ(on_device(), expected) << "it was overwritten and comes again";
  EXPECT_EQ(said(), "await0 upload0 await1 upload1 take await0 upload0 take ");
}

TEST_F(ImageFeedTest, NothingIsTakenTwiceAndNobodyIsNotABatch) {
  const std::vector<float> first = images_of(1);
  const std::vector<float> second = images_of(2);
  feed.expect(batch_of(first, 1));
  feed.bring_expected();
  feed.bring_expected();
  feed.take(batch_of(first, 1));
  feed.take(batch_of(second, 1));
  EXPECT_EQ(on_device(), second);
  feed.take(batch_of(first, 0));
  EXPECT_EQ(on_device(), first);
}

TEST_F(ImageFeedTest, WhatIsExpectedInVainIsForgotten) {
  const std::vector<float> first = images_of(1);
  const std::vector<float> second = images_of(2);
  feed.expect(batch_of(first, 1));
  feed.expect(batch_of(second, 2));
  feed.bring_expected();
  feed.take(batch_of(second, 2));
  EXPECT_EQ(on_device(), second);
  EXPECT_EQ(said(), "await0 upload0 take ");
}

}  // namespace
}  // namespace mayfly::nn::cuda
