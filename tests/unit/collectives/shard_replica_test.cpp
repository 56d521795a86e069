// One server's replica of a shard, without connections: its decisions and reports, and the answers
// that it holds back.

#include "collectives/parameter_server/shard_replica.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kReplicaFloats = 4;

class AddedState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> slices, const Update& /*update*/) override {
    for (const SliceGradient& slice : slices) {
      for (std::size_t i = 0; i < kReplicaFloats; ++i) {
        values_[i] += slice.sum[i];
      }
    }
  }
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return values_; }
  /// As when a bit of the memory flips.
  void change(std::size_t element) { values_[element] += 1; }

 private:
  std::vector<float> values_ = std::vector<float>(kReplicaFloats);
};

class Reports final : public ShardListener {
 public:
  void on_update(const UpdateFacts& /*facts*/) override { ++updates; }
  void on_followed(const UpdateFacts& /*facts*/) override { ++followed; }
  void on_quiet(ViewId view) override { quiet.push_back(view); }
  void on_straggler(const StragglerChange& change) override { stragglers.push_back(change); }

  int updates = 0;
  int followed = 0;
  std::vector<ViewId> quiet;
  std::vector<StragglerChange> stragglers;
};

/// One server's replica of the only shard of a job in bsp, with so many slices in each step.
struct Server {
  explicit Server(ShardOptions options, std::uint32_t slices = 2)
      : plan(parse_phases("bsp", {.last_step = 6, .slices_per_step = slices}).value()),
        replica(options, plan, state, reports) {}

  Result<ShardReplica::Decision> order(const ShardEvent& event) {
    Header message;
    message.type = order_type(event.kind);
    return take(event, message, {});
  }
  Result<ShardReplica::Decision> push(std::uint64_t slice, std::uint64_t version,
                                      std::uint64_t worker = 1) {
    Header message;
    message.type = MessageType::kPush;
    message.worker = worker;
    message.slice = slice;
    message.version = version;
    message.count = 1;
    return take(event_of(message), message, gradient(static_cast<float>(slice + 1)));
  }
  Result<ShardReplica::Decision> take(const ShardEvent& event, const Header& message,
                                      PushedSum sum) {
    Result<ShardReplica::Decision> decision = replica.decide(event, message, std::move(sum));
    if (decision.ok()) {
      replica.change(decision.value().outcome);
      replica.release();
    }
    return decision;
  }
  PushedSum gradient(float value) {
    PushedSum sum = replica.gradients().space();
    std::ranges::fill(sum.own.span(), value);
    return sum;
  }

  const SyncPlan plan;
  AddedState state;
  Reports reports;
  ShardReplica replica;
};

ShardOptions with_follower() {
  ShardOptions options;
  options.has_follower = true;
  return options;
}
ShardOptions as_follower() {
  ShardOptions options;
  options.role = ShardRole::kFollows;
  return options;
}
ShardEvent roster(std::set<MemberId> workers) {
  return {.kind = ShardEventKind::kWorkers, .workers = std::move(workers)};
}

TEST(ShardReplica, ReportsAnUpdateWhenTheFollowerHasIt) {
  Server leader(with_follower());
  EXPECT_EQ(leader.order(roster({MemberId{1}})).value().entry.header.entry, 1U);
  (void)leader.push(0, 0);
  (void)leader.push(1, 0);
  EXPECT_EQ(leader.state.values()[0], 3) << "applied";
  EXPECT_EQ(leader.replica.gate(), 3U) << "the answer must not leave before the follower has both";
  ASSERT_TRUE(leader.replica.taken(2).ok());
  leader.replica.release();
  EXPECT_EQ(leader.reports.updates, 0);
  ASSERT_TRUE(leader.replica.taken(3).ok());
  leader.replica.release();
  EXPECT_EQ(leader.reports.updates, 1);
  EXPECT_FALSE(leader.replica.taken(4).ok()) << "it was not sent that";
}

TEST(ShardReplica, KeepsNothingBackWithoutAFollower) {
  Server alone{ShardOptions()};
  (void)alone.order(roster({MemberId{1}}));
  (void)alone.push(0, 0);
  (void)alone.push(1, 0);
  EXPECT_EQ(alone.reports.updates, 1);
  EXPECT_EQ(alone.replica.gate(), 0U);

  Server left(with_follower());
  (void)left.push(0, 0);
  (void)left.push(1, 0);
  EXPECT_EQ(left.reports.updates, 0);
  left.replica.lose_follower();
  left.replica.release();
  EXPECT_EQ(left.reports.updates, 1);
  EXPECT_EQ(left.replica.gate(), 0U);
}

TEST(ShardReplica, SendsItsFollowerAGradientOnce) {
  Server leader(with_follower());
  Header message;
  message.type = MessageType::kPush;
  message.worker = 1;
  message.count = 1;
  message.slot = 2;  // the slot that the worker has written to
  const auto first = leader.take(event_of(message), message, leader.gradient(5));
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first.value().entry.gradient.size(), kReplicaFloats * sizeof(float));
  EXPECT_EQ(first.value().entry.header.slot, 0U) << "of no use to the follower";
  const auto repeat = leader.take(event_of(message), message, leader.gradient(6));
  ASSERT_TRUE(repeat.ok());
  EXPECT_TRUE(repeat.value().entry.gradient.empty());
  EXPECT_EQ(repeat.value().entry.header.entry, 2U) << "but it is told of the push";
}

TEST(ShardReplica, AFollowerEndsWithTheParametersOfItsLeader) {
  Server leader(with_follower());
  Server follower(as_follower());
  const auto pass_on = [&](const Result<ShardReplica::Decision>& decision, PushedSum sum) {
    const ReplicaEntry& entry = decision.value().entry;
    const ShardEvent event =
        entry.header.type == MessageType::kRoster ? roster_of(entry.words) : event_of(entry.header);
    EXPECT_TRUE(follower.take(event, entry.header, std::move(sum)).ok());
  };
  pass_on(leader.order(roster({MemberId{1}})), {});
  pass_on(leader.push(1, 0), follower.gradient(2));
  pass_on(leader.push(1, 0), {});  // the leader drops the gradient of a repeat
  pass_on(leader.push(0, 0), follower.gradient(1));
  EXPECT_EQ(follower.state.values()[3], leader.state.values()[3]);
  EXPECT_EQ(follower.replica.version(), leader.replica.version());
  EXPECT_EQ(follower.reports.followed, 1);
  follower.replica.begin_to_lead();
  (void)follower.push(2, 1);
  (void)follower.push(3, 1);
  EXPECT_EQ(follower.reports.updates, 1) << "of its own";
}

TEST(ShardReplica, AFollowerNoticesThatItHasNotDoneWhatItsLeaderDid) {
  Server follower(as_follower());
  Header message;
  message.type = MessageType::kPush;
  message.worker = 1;
  message.count = 1;
  EXPECT_EQ(follower.take(event_of(message), message, {}).error().code, Errc::kCorrupt)
      << "the leader has kept no gradient of a slice that is new here";
  Server other(as_follower());
  (void)other.push(0, 0);
  EXPECT_EQ(other.push(0, 0).error().code, Errc::kCorrupt) << "the slice was new to the leader";
}

TEST(ShardReplica, AFollowerNoticesThatItsParametersAreNotThoseOfItsLeader) {
  Server leader(with_follower(), 1);
  Server follower(as_follower(), 1);
  follower.state.change(2);
  for (std::uint64_t version = 0; version < 3; ++version) {
    const Header entry = leader.push(version, version).value().entry.header;
    const Result<ShardReplica::Decision> taken =
        follower.take(event_of(entry), entry, follower.gradient(static_cast<float>(version + 1)));
    ASSERT_EQ(taken.ok(), version < 2) << "version " << version << " compares this element";
    EXPECT_TRUE(taken.ok() || taken.error().code == Errc::kCorrupt);
  }
}

TEST(ShardReplica, IsQuietWhenTheFollowerKnowsThatItIsHeld) {
  Server leader(with_follower());
  (void)leader.order(roster({MemberId{1}}));
  leader.replica.report_rest(ViewId{4});
  (void)leader.order({.kind = ShardEventKind::kHold});
  leader.replica.report_rest(ViewId{4});
  EXPECT_TRUE(leader.reports.quiet.empty());
  ASSERT_TRUE(leader.replica.taken(2).ok());
  leader.replica.report_rest(ViewId{4});
  leader.replica.report_rest(ViewId{4});
  EXPECT_EQ(leader.reports.quiet, std::vector<ViewId>{ViewId{4}}) << "told once";
}

TEST(ShardReplica, OrdersWhatFollowsFromASlowWorker) {
  ShardOptions options;
  options.stragglers = StragglerPolicy::kGreedy;
  options.straggling.windows = 1;
  options.straggling.slices = 1;
  Server leader(options, 3);
  (void)leader.order(roster({MemberId{1}, MemberId{2}, MemberId{3}}));
  const Instant begin{};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    Header hello;
    hello.worker = id;
    const ShardEvent event = event_of(hello);
    const auto decision = leader.take(event, hello, {});
    leader.replica.measure(begin, event, decision.value().outcome.grants);
  }
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_FALSE(leader.replica.straggler_order());
    const auto decision = leader.push(id - 1, 0, id);
    ShardEvent event{.kind = ShardEventKind::kPush};
    event.push.worker = MemberId{id};
    leader.replica.measure(begin + milliseconds(id < 3 ? 10 : 100), event,
                           decision.value().outcome.grants);
  }
  const std::optional<ShardEvent> order = leader.replica.straggler_order();
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, ShardEventKind::kStragglers);
  EXPECT_TRUE(order->stragglers.contains(MemberId{3}));
  ASSERT_EQ(leader.reports.stragglers.size(), 1U);
  EXPECT_FALSE(leader.replica.straggler_order()) << "nothing has changed since";
}

}  // namespace
}  // namespace mayfly::parameter_server
