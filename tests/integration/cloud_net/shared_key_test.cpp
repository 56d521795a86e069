// A job's provider objects, each with a separate thread, that share one key.

#include <gtest/gtest.h>

#include <memory>

#include "tests/integration/cloud_net/fake_cloud.hpp"
#include "tests/integration/cloud_net/sites.hpp"

namespace mayfly::cloud_hooks {
namespace {

class SharedKeys : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { cloud_.reset(); }
  [[nodiscard]] int keys_fetched() { return cloud_.requests("metadata", site_.credentials); }
  static bool lists(Provider& provider) { return provider.list().ok(); }

  FakeCloud& cloud_ = FakeCloud::get();
  const Site& site_ = sites()[GetParam()];
};

TEST_P(SharedKeys, WhatOneHasFetchedTheOthersNeedNotFetch) {
  SiteOptions options;
  options.token = std::make_shared<SharedGoogleToken>();
  options.role = std::make_shared<SharedAwsRole>();
  const std::unique_ptr<Provider> looks = site_.provider(options);
  const std::unique_ptr<Provider> requests = site_.provider(options);
  EXPECT_TRUE(lists(*looks));
  const int fetched = keys_fetched();
  EXPECT_GT(fetched, 0);
  EXPECT_TRUE(lists(*requests));
  EXPECT_EQ(keys_fetched(), fetched);
}

TEST_P(SharedKeys, OthersHaveTheirOwn) {
  const std::unique_ptr<Provider> one = site_.provider({});
  const std::unique_ptr<Provider> other = site_.provider({});
  EXPECT_TRUE(lists(*one));
  const int fetched = keys_fetched();
  EXPECT_TRUE(lists(*other));
  EXPECT_EQ(keys_fetched(), 2 * fetched);
}

INSTANTIATE_TEST_SUITE_P(Clouds, SharedKeys, testing::Range<std::size_t>(0, sites().size()),
                         [](const auto& instance) { return sites()[instance.param].name; });

}  // namespace
}  // namespace mayfly::cloud_hooks
