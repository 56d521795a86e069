#include "engine/reduction/model_layout.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

// Method: walk the buckets of every model from the end of the vector to its beginning.
TEST(ReductionLayout, BucketsTileTheVectorFromTheEndForEveryModel) {
  for (const std::string& name : nn::model_names()) {
    const nn::Model model = nn::make_model(name, 10).value();
    const ReductionLayout layout = layout_of(model);
    std::size_t last = layout.element_count();
    std::size_t last_block = layout.blocks().block_count();
    for (const ReductionLayout::Bucket& bucket : layout.buckets()) {
      EXPECT_EQ(bucket.last, last);
      EXPECT_EQ(bucket.last_block, last_block);
      EXPECT_LT(bucket.first, bucket.last);
      EXPECT_EQ(layout.blocks().offset(bucket.first_block), bucket.first);
      last = bucket.first;
      last_block = bucket.first_block;
    }
    EXPECT_EQ(last, 0u);
    EXPECT_EQ(last_block, 0u);
  }
}

TEST(ReductionLayout, BucketsAreNamedByTheirFirstAndLastTensor) {
  const nn::Model model = nn::make_model("resnet20", 10).value();
  const ReductionLayout layout = layout_of(model);
  const std::vector<std::string> names = layout.bucket_names();
  ASSERT_EQ(names.size(), layout.buckets().size());
  EXPECT_TRUE(names.front().ends_with(" to fc.bias")) << names.front();
  EXPECT_TRUE(names.back().starts_with("conv1.weight to ")) << names.back();
}

TEST(ReductionLayout, IsMadeOfAnyTensorsByNameAndSize) {
  const ReductionLayout layout({{{"mean", 3}}, {{"weight", 5}, {"bias", 1}}}, 1);
  EXPECT_EQ(layout.parameters_offset(), ReductionLayout::kLossElements + 3);
  EXPECT_EQ(layout.element_count(), layout.parameters_offset() + 6);
  EXPECT_EQ(layout.bucket_names(), (std::vector<std::string>{"bias", "weight"}));
  EXPECT_EQ(layout.buckets().back().first, 0u);
  EXPECT_EQ(ReductionLayout({{}, {{"weight", 5}}}).buckets().size(), 1u) << "no statistics";
}

TEST(ReductionLayout, OnlyTheLastBucketHoldsLossAndStatistics) {
  const nn::Model model = nn::make_model("resnet110", 10).value();
  const ReductionLayout layout = layout_of(model);
  ASSERT_GT(layout.buckets().size(), 2u);
  for (std::size_t b = 0; b + 1 < layout.buckets().size(); ++b) {
    EXPECT_GE(layout.buckets()[b].first, layout.parameters_offset());
  }
}

}  // namespace
}  // namespace mayfly::engine
