#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

/// Three members, whose heartbeats contain their positions.
class CoordinatorStallsTest : public testing::Test {
 protected:
  CoordinatorStallsTest() : job_(options()) {
    for (int i = 0; i < 3; ++i) {
      members_.push_back(job_.join());
      positions_.push_back({Activity::kCompute, Step{1}, 0, 0, 1});
    }
    for (const MemberId member : members_) {
      job_.start(member, 1);
    }
    for (int i = 0; i < 20; ++i) {
      beat(milliseconds(50), {0, 1, 2});
    }
    job_.clear();
  }
  static CoordinatorOptions options() {
    CoordinatorOptions o;
    o.initial_workers = 3;
    o.bucket_names = {"fc.weight to layer3.0.conv1.weight"};
    return o;
  }
  /// A heartbeat of every member; the positions of the listed ones have changed.
  void beat(Duration time, const std::vector<std::size_t>& moved) {
    job_.now = job_.now + time;
    for (const std::size_t i : moved) {
      ++positions_[i].moves;
    }
    for (std::size_t i = 0; i < members_.size(); ++i) {
      job_.give(coordinator_event::SentinelBeat{members_[i], positions_[i]});
    }
    job_.give(coordinator_event::Tick{});
  }
  void stand_still(Duration time) {
    for (const Instant end = job_.now + time; job_.now < end;) {
      beat(milliseconds(50), {});
    }
  }
  [[nodiscard]] std::string detail_of(const std::string& kind) const {
    for (const auto& note : job_.all<coordinator_effect::Note>()) {
      if (note.kind == kind) {
        return note.detail;
      }
    }
    return {};
  }

  CoordinatorHarness job_;
  std::vector<MemberId> members_;
  std::vector<WorkerPosition> positions_;
};

TEST_F(CoordinatorStallsTest, NamesRankActivityAndBucketOfTheOneThatHangs) {
  positions_[0].activity = positions_[2].activity = Activity::kExchange;
  stand_still(milliseconds(900));
  EXPECT_EQ(
      detail_of("stalled"),
      "rank 1 computes microbatch 0 of step 1, bucket 0; it has not moved for 750 ms (longest "
      "before: 50 ms); members 1, 3 wait; bucket 0 is fc.weight to layer3.0.conv1.weight");
}

TEST_F(CoordinatorStallsTest, EvictsTheOneThatHangsAndNobodyElse) {
  positions_[0].activity = positions_[2].activity = Activity::kExchange;
  stand_still(seconds(6));
  EXPECT_EQ(job_.sent<Dismiss>(members_[1]).size(), 1u);
  EXPECT_EQ(job_.sent<Stop>(members_[0]).size(), 1u);
  job_.stopped(members_[0], 1);
  job_.stopped(members_[2], 1);
  EXPECT_EQ(job_.view_members(), (std::vector<MemberId>{members_[0], members_[2]}));
  job_.start(members_[0], 2);
  job_.start(members_[2], 2);
  const auto recoveries = job_.all<coordinator_effect::RecoveryDone>();
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_TRUE(recoveries[0].recovery.detail.starts_with("hangs: rank 1 computes microbatch 0"));
}

TEST_F(CoordinatorStallsTest, WhoHasToGoIsNotKeptWaitingForOneThatHangs) {
  positions_[0].activity = positions_[2].activity = Activity::kExchange;
  job_.say(members_[0], LeaveRequest{"notice"});
  job_.say(members_[2], LeaveRequest{"notice"});
  stand_still(seconds(6));
  EXPECT_EQ(job_.sent<Dismiss>(members_[1]).size(), 1u);
  job_.stopped(members_[0], 1);
  job_.stopped(members_[2], 1);
  EXPECT_EQ(job_.view_members(), (std::vector<MemberId>{members_[0], members_[2]}));
}

TEST_F(CoordinatorStallsTest, ACommonCauseEvictsNobody) {
  stand_still(seconds(600));
  EXPECT_EQ(job_.coordinator.members().size(), 3u);
}

TEST_F(CoordinatorStallsTest, AGroupInWhichAllWaitFormsAnew) {
  for (WorkerPosition& position : positions_) {
    position.activity = Activity::kExchange;
  }
  beat(milliseconds(50), {0, 1, 2});
  beat(milliseconds(50), {0, 1, 2});
  stand_still(seconds(6));
  EXPECT_TRUE(job_.noted("stalled"));
  for (const MemberId member : members_) {
    ASSERT_EQ(job_.sent<Stop>(member).size(), 1u);
    job_.stopped(member, 1);
  }
  EXPECT_EQ(job_.view_members(), members_);
}

TEST_F(CoordinatorStallsTest, AStoppedMemberIsEvictedSoonAndOneThatStarvesLater) {
  const auto quiet = [&](Duration time, const CoordinatorEvent& instead) {
    for (const Instant end = job_.now + time; job_.now < end;) {
      job_.now = job_.now + milliseconds(50);
      job_.give(coordinator_event::SentinelBeat{members_[0]});
      job_.give(coordinator_event::SentinelBeat{members_[2]});
      job_.give(instead);
      job_.give(coordinator_event::Tick{});
    }
  };
  quiet(milliseconds(900), coordinator_event::HostAnswers{members_[1]});
  EXPECT_FALSE(job_.noted("lost"));
  EXPECT_FALSE(job_.all<coordinator_effect::Probe>().empty());
  quiet(milliseconds(50), coordinator_event::SentinelBeat{members_[1]});  // it has run again
  quiet(milliseconds(400), coordinator_event::SentinelBeat{members_[1], std::nullopt, true});
  EXPECT_NE(detail_of("lost").find("its process is stopped"), std::string::npos);
}

TEST_F(CoordinatorStallsTest, StatusSaysWhatEachMemberDoes) {
  positions_[2].activity = Activity::kCommit;
  beat(milliseconds(50), {2});
  const auto all = job_.coordinator.members();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].activity, "compute");
  EXPECT_EQ(all[2].activity, "commit");
}

}  // namespace
}  // namespace mayfly::elastic
