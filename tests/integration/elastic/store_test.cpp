// The per-view key-value store over real connections.

#include <gtest/gtest.h>

#include <future>

#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

Bytes word(int n) {
  return Bytes(100, static_cast<std::byte>(n));
}

class Store : public testing::Test {
 protected:
  Store() : first_(job_.add_worker()), second_(job_.add_worker()) {
    view_ = job_.observer().wait_for_view({first_->id(), second_->id()}).id;
    first_->wait_for_view(view_);
    second_->wait_for_view(view_);
  }
  std::future<Result<Bytes>> get_later(ToyWorker& worker, const std::string& key) {
    return std::async(std::launch::async, [this, &worker, key] {
      return worker.client().store_get(view_, key, monotonic_now() + kHangBound);
    });
  }

  TestJob job_{2};
  std::unique_ptr<ToyWorker> first_;
  std::unique_ptr<ToyWorker> second_;
  ViewId view_{};
};

TEST_F(Store, OneMembersValueIsAnothersAnswer) {
  ASSERT_TRUE(first_->client().store_set(view_, "unique id", word(7)).ok());
  EXPECT_EQ(get_later(*second_, "unique id").get().value(), word(7));
}

TEST_F(Store, AGetWaitsForTheSet) {
  auto first = get_later(*first_, "late");
  auto second = get_later(*second_, "late");
  auto same_again = get_later(*second_, "late");
  ASSERT_TRUE(first_->client().store_set(view_, "late", word(9)).ok());
  EXPECT_EQ(first.get().value(), word(9));
  EXPECT_EQ(second.get().value(), word(9));
  EXPECT_EQ(same_again.get().value(), word(9));
}

TEST_F(Store, AKeyThatNobodySetsEndsAtTheDeadline) {
  const auto got = first_->client().store_get(view_, "never", monotonic_now() + milliseconds(50));
  EXPECT_EQ(got.error().code, Errc::kDeadline);
}

TEST_F(Store, AGetEndsWithItsView) {
  auto pending = get_later(*first_, "never");
  second_->vanish();
  EXPECT_EQ(pending.get().error().code, Errc::kAborted);
}

TEST_F(Store, WithoutACoordinatorAGetEndsAtItsDeadline) {
  job_.kill_coordinator();
  const auto got = first_->client().store_get(view_, "never", monotonic_now() + milliseconds(50));
  EXPECT_EQ(got.error().code, Errc::kDeadline);
}

}  // namespace
}  // namespace mayfly::elastic
