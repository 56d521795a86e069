// A running leader and follower, and a worker that continues when one of them is lost.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "collectives/parameter_server/shard.hpp"
#include "tests/unit/collectives/live_job.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr MemberId kFollowerServer{9};

class Counts final : public ShardListener {
 public:
  void on_update(const UpdateFacts& facts) override {
    EXPECT_EQ(facts.update.version, ++updates) << "in order, and none twice";
  }
  void on_followed(const UpdateFacts& facts) override {
    EXPECT_EQ(facts.update.version, ++followed);
  }
  void on_lead(std::uint64_t version) override {
    led_from = version;
    updates = version;
  }
  void on_alone(std::uint64_t /*version*/) override { ++alone; }
  void on_diverged(const std::string& why) override { ADD_FAILURE() << why; }

  std::atomic<std::uint64_t> updates = 0;
  std::atomic<std::uint64_t> followed = 0;
  std::atomic<std::uint64_t> led_from = UINT64_MAX;
  std::atomic<std::uint64_t> alone = 0;
};

class ShardPair : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint64_t kSlices = 24;
  static constexpr std::uint64_t kSlicesPerStep = 2;

  ShardPair() : plan_(plan_of({GetParam(), kSlicesPerStep, kSlices / kSlicesPerStep})) {
    ShardOptions options;
    options.role = ShardRole::kFollows;
    follower = Shard::start(options, plan_, follower_state, follower_counts).value();
    options.role = ShardRole::kLeads;
    options.has_follower = true;
    leader = Shard::start(options, plan_, leader_state, leader_counts).value();
    ShardClientsOptions clients;
    clients.addresses = {leader->address()};
    worker = std::make_unique<LiveWorker>(1, clients);
  }

  void begin_leader() {
    leader->set_view({ViewId{1},
                      kLiveKey,
                      {MemberId{1}},
                      ShardRole::kLeads,
                      follower->address(),
                      kFollowerServer});
    worker->set_view(ViewId{1});
  }
  void begin_follower() {
    follower->set_view({ViewId{1}, kLiveKey, {MemberId{1}}, ShardRole::kFollows});
  }
  /// The worker acts until the shard has this version.
  void work_until(const Shard& shard, std::uint64_t version) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (shard.facts().version < version && monotonic_now() < deadline) {
      ASSERT_TRUE(worker->act(milliseconds(1)));
    }
    ASSERT_GE(shard.facts().version, version);
  }

 private:
  const SyncPlan plan_;

 public:
  SumState leader_state;
  SumState follower_state;
  Counts leader_counts;
  Counts follower_counts;
  std::unique_ptr<Shard> follower;
  std::unique_ptr<Shard> leader;
  std::unique_ptr<LiveWorker> worker;
};

TEST_P(ShardPair, EndsWithTheSameParameters) {
  begin_leader();
  begin_follower();
  worker->run();
  leader->stop();
  follower->stop();
  EXPECT_EQ(leader_state.values().front(), sum_of(kSlices));
  EXPECT_EQ(follower_state.values().front(), sum_of(kSlices));
  EXPECT_TRUE(is_uniform(follower_state.values()));
  EXPECT_EQ(leader_counts.updates, leader->facts().version) << "each is on record";
  EXPECT_EQ(follower_counts.followed, leader->facts().version);
  EXPECT_EQ(follower_counts.updates, 0U) << "the leader reports them";
  EXPECT_GE(leader->facts().bytes_followed, kSlices * kLivePayload);
  EXPECT_TRUE(leader->facts().leads);
  EXPECT_FALSE(follower->facts().leads);
}

TEST_P(ShardPair, GivesNoWorkBeforeTheFollowerKnowsOfIt) {
  begin_leader();  // without a view the follower does not admit the leader
  const Instant end = monotonic_now() + milliseconds(100);
  while (monotonic_now() < end) {
    ASSERT_TRUE(worker->act(milliseconds(1)));
  }
  EXPECT_EQ(worker->leases(), 0U);
  begin_follower();
  worker->run();
  follower->stop();
  EXPECT_EQ(follower_state.values().front(), sum_of(kSlices));
}

TEST_P(ShardPair, LosesNothingWhenTheFollowerTakesOver) {
  begin_leader();
  begin_follower();
  work_until(*leader, 2);
  leader->stop();
  follower->set_view({ViewId{2}, kLiveKey, {MemberId{1}}, ShardRole::kLeads});
  worker->set_view(ViewId{2}, follower->address());
  worker->run();
  follower->stop();
  EXPECT_EQ(follower_state.values().front(), sum_of(kSlices)) << "each slice once";
  EXPECT_EQ(follower_counts.led_from, follower_counts.followed);
  EXPECT_GE(follower_counts.followed, leader_counts.updates) << "what is on record is not lost";
  EXPECT_TRUE(follower->facts().leads);
}

TEST_P(ShardPair, GoesOnAloneWhenTheFollowerIsLost) {
  begin_leader();
  begin_follower();
  work_until(*follower, 2);
  follower->stop();
  for (int i = 0; i < 20; ++i) {  // answers are held back until the follower has the updates
    ASSERT_TRUE(worker->act(milliseconds(1)));
  }
  EXPECT_LE(leader_counts.updates, follower_counts.followed);
  leader->set_view({ViewId{2}, kLiveKey, {MemberId{1}}, ShardRole::kLeads});
  worker->set_view(ViewId{2});
  worker->run();
  leader->stop();
  EXPECT_EQ(leader_counts.alone, 1U);
  EXPECT_EQ(leader_state.values().front(), sum_of(kSlices));
  EXPECT_EQ(leader_counts.updates, leader->facts().version);
}

INSTANTIATE_TEST_SUITE_P(Policies, ShardPair, testing::Values("bsp", "asp", "backup:2-of-3"),
                         [](const testing::TestParamInfo<const char*>& policy) {
                           return std::string(policy.param).substr(0, 3);
                         });

}  // namespace
}  // namespace mayfly::parameter_server
