#include "engine/run/member_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

using elastic::MemberPhase;
using ::testing::IsEmpty;

elastic::MemberStatus status_of(std::uint64_t id, MemberPhase phase, std::uint32_t microbatches = 0,
                                float ms = 0) {
  elastic::MemberStatus status;
  status.id = MemberId{id};
  status.host = "node";
  status.cores = 4;
  status.phase = phase;
  status.microbatches = microbatches;
  status.microbatch_ms = ms;
  return status;
}

elastic::View view_of(std::uint64_t id, const std::vector<std::uint32_t>& shares) {
  elastic::View view;
  view.id = ViewId{id};
  for (const std::uint32_t share : shares) {
    elastic::ViewMember member;
    member.id = MemberId{view.members.size() + 1};
    member.count = share;
    view.members.push_back(member);
  }
  return view;
}

TEST(MemberJournal, WritesChangesOnly) {
  MemberJournal journal;
  ASSERT_EQ(journal.look(1, {status_of(1, MemberPhase::kLoading)}).size(), 1U);
  EXPECT_THAT(journal.look(2, {status_of(1, MemberPhase::kLoading)}), IsEmpty());
  EXPECT_EQ(journal.look(2.5, {status_of(1, MemberPhase::kActive, 4)}).size(), 1U);
  const auto active = journal.look(3, {status_of(1, MemberPhase::kActive, 4, 10)});
  ASSERT_EQ(active.size(), 1U);
  EXPECT_EQ(active[0].phase, "active");
  EXPECT_EQ(active[0].cores, 4U);
  EXPECT_DOUBLE_EQ(active[0].joined, 1);
  EXPECT_DOUBLE_EQ(active[0].t, 3);
  EXPECT_EQ(active[0].microbatches, 4U);
  // A new speed is written ten seconds after the last line, and a small change not at all.
  EXPECT_THAT(journal.look(5, {status_of(1, MemberPhase::kActive, 4, 20)}), IsEmpty());
  EXPECT_EQ(journal.look(13, {status_of(1, MemberPhase::kActive, 4, 20)}).size(), 1U);
  EXPECT_THAT(journal.look(99, {status_of(1, MemberPhase::kActive, 4, 20.9F)}), IsEmpty());
}

TEST(MemberJournal, AMemberMayComeAndGoBetweenTwoLooks) {
  MemberJournal journal;
  const auto came = journal.connected(1, 7, "node");
  ASSERT_TRUE(came.has_value());
  EXPECT_EQ(came->phase, "loading");
  EXPECT_FALSE(journal.connected(2, 7, "node").has_value());
  journal.introduced({status_of(7, MemberPhase::kActive), status_of(8, MemberPhase::kActive)});
  const auto went = journal.ended(1.5, 7, "lost", "it died");
  ASSERT_TRUE(went.has_value());
  EXPECT_EQ(went->host, "node");
  EXPECT_EQ(went->cores, 4U);
  EXPECT_DOUBLE_EQ(went->joined, 1);
}

TEST(MemberJournal, AParameterServerHasNoShareOfTheSamples) {
  MemberJournal journal;
  (void)journal.look(0, {status_of(1, MemberPhase::kReady), status_of(2, MemberPhase::kReady)});
  elastic::View view = view_of(1, {2, 2});
  view.members[0].address = to_text(ServerAddress{0, {"unix:/s"}, {}});
  view.members[1].address = kPsWorkerAddress;
  journal.view_published(view);
  journal.committed(1, 128);
  const auto ended = journal.all_ended(9);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].samples, 0U);
  EXPECT_EQ(ended[0].steps, 0U);
  EXPECT_EQ(ended[1].samples, 128U);
}

TEST(MemberJournal, SharesOutTheSamplesOfEachStep) {
  MemberJournal journal;
  (void)journal.look(0, {status_of(1, MemberPhase::kReady), status_of(2, MemberPhase::kReady)});
  journal.view_published(view_of(1, {3, 1}));
  journal.committed(1, 128);
  journal.committed(1, 128);
  journal.view_published(view_of(2, {4, 0}));
  journal.committed(2, 128);
  journal.committed(1, 128);  // the record of a step of view 1 was late
  const auto lost = journal.ended(7, 2, "lost", "it died");
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->phase, "lost");
  EXPECT_EQ(lost->detail, "it died");
  EXPECT_EQ(lost->steps, 3U);
  EXPECT_EQ(lost->samples, 96U);
  EXPECT_FALSE(journal.ended(8, 2, "disconnected", "").has_value()) << "the first end counts";
  EXPECT_FALSE(journal.ended(8, 5, "lost", "").has_value()) << "nobody knows it";
  const auto rest = journal.all_ended(9);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].phase, "ended");
  EXPECT_EQ(rest[0].samples, 3U * 96 + 128);
}

TEST(MemberJournal, CountsWhatIsReportedAfterAMemberHasGone) {
  MemberJournal journal;
  (void)journal.look(0, {status_of(1, MemberPhase::kReady), status_of(2, MemberPhase::kReady)});
  journal.view_published(view_of(1, {3, 1}));
  journal.committed(1, 128);
  EXPECT_EQ(journal.ended(7, 2, "lost", "it died")->samples, 32U);
  journal.committed(1, 128);
  const auto rest = journal.all_ended(9);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[1].phase, "lost");
  EXPECT_EQ(rest[1].detail, "it died");
  EXPECT_EQ(rest[1].t, 7);
  EXPECT_EQ(rest[1].samples, 64U);
  EXPECT_THAT(journal.all_ended(10), IsEmpty());
}

TEST(MemberJournal, AMemberThatComesAgainAfterItsEndHasLinesAgain) {
  MemberJournal journal;
  ASSERT_EQ(journal.on_note(1, "connected", 7, "node").size(), 1U);
  (void)journal.look(2, {status_of(7, MemberPhase::kActive, 4, 10)});
  journal.view_published(view_of(1, {0, 0, 0, 0, 0, 0, 4}));
  journal.committed(1, 64);
  ASSERT_EQ(journal.on_note(5, "lost", 7, "its host was cut off").size(), 1U);
  EXPECT_THAT(journal.look(6, {status_of(7, MemberPhase::kActive, 4)}), IsEmpty());
  const auto again = journal.on_note(9, "joins_again", 7, "node");
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].phase, "loading");
  EXPECT_EQ(again[0].detail, "");
  EXPECT_EQ(again[0].microbatches, 0U);
  EXPECT_EQ(again[0].microbatch_ms, 0) << "not measured yet";
  EXPECT_DOUBLE_EQ(again[0].joined, 1) << "when it was first seen";
  EXPECT_EQ(again[0].samples, 64U) << "what it did before counts";
  EXPECT_THAT(journal.on_note(9.5, "returned", 7, "node"), IsEmpty()) << "it is there";
  EXPECT_EQ(journal.look(10, {status_of(7, MemberPhase::kActive, 4)}).size(), 1U);
  EXPECT_EQ(journal.on_note(20, "lost", 7, "it died").size(), 1U);
}

TEST(MemberJournal, GoesOnAfterARestart) {
  MemberJournal first;
  const auto lines = first.look(1, {status_of(1, MemberPhase::kActive, 4)});
  first.view_published(view_of(1, {4}));
  first.committed(1, 100);
  const auto before = first.ended(2, 1, "lost", "");
  MemberJournal second;
  for (const MemberRecord& line : lines) {
    second.restore(line);
  }
  EXPECT_THAT(second.look(3, {status_of(1, MemberPhase::kActive, 4)}), IsEmpty());
  second.view_published(view_of(1, {4}));
  second.committed(1, 100);
  EXPECT_EQ(second.ended(4, 1, "left", "")->steps, 1U);
  second.restore(*before);
  EXPECT_FALSE(second.ended(5, 1, "left", "").has_value());
}

// The reference is the class that computes the bill of a provider's servers.
TEST(MemberBill, IsTheBillOfAProviderWithThisPrice) {
  MemberBill bill(3.60, 0.5);
  cloud_hooks::Bill reference(0.5, Duration(0));
  const Instant begin{1'000'000'000};
  const auto at = [begin](double s) {
    return begin + Duration(static_cast<std::int64_t>(s * 1e9));
  };
  for (const auto& [when, kind, member] : {std::tuple(0.0, "connected", 1),
                                           {0.5, "connected", 2},
                                           {1.0, "joined", 1},
                                           {100.25, "lost", 2},
                                           {100.5, "connected", 3},
                                           {300.0, "left", 1},
                                           {300.5, "disconnected", 1},
                                           {400.0, "returned", 3}}) {
    const std::string item = std::to_string(member);
    const std::string what = kind;
    if (what == "connected") {
      reference.open(item, 3.60, at(when));
    } else if (what == "lost" || what == "left") {
      (void)reference.close(item, at(when));
    }
    const bool changes = what == "connected" || what == "lost" || what == "left";
    EXPECT_EQ(bill.on_note(at(when), kind, static_cast<std::uint64_t>(member)), changes) << kind;
    EXPECT_DOUBLE_EQ(bill.at(at(when + 0.1)).spent, reference.spent(at(when + 0.1)));
  }
  const Spending end = bill.at(at(3600));
  EXPECT_DOUBLE_EQ(end.spent, reference.spent(at(3600)));
  EXPECT_NEAR(end.spent, 0.5 + (300 + 99.75 + 3499.5) * 0.001, 1e-9);
  EXPECT_DOUBLE_EQ(end.per_hour, 3.60);
  EXPECT_EQ(end.billing, 1U);
}

TEST(MemberBill, IsToldEveryMinuteInWhichSomebodyIsBilled) {
  MemberBill bill(3600, 0.5);
  const auto at = [](int s) { return Instant{1'000'000'000} + seconds(s); };
  EXPECT_FALSE(bill.due(at(0)).has_value());
  ASSERT_TRUE(bill.on_note(at(1), "connected", 1));
  EXPECT_FALSE(bill.due(at(60)).has_value()) << "its event says it";
  const std::optional<Spending> due = bill.due(at(61));
  ASSERT_TRUE(due.has_value());
  EXPECT_DOUBLE_EQ(due->spent, 60.5);
  EXPECT_DOUBLE_EQ(due->per_hour, 3600);
  EXPECT_FALSE(bill.due(at(120)).has_value());
  EXPECT_TRUE(bill.due(at(121)).has_value());
  ASSERT_TRUE(bill.on_note(at(130), "lost", 1));
  EXPECT_FALSE(bill.due(at(1000)).has_value()) << "nobody is billed";
}

}  // namespace
}  // namespace mayfly::engine
