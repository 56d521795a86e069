#include "elastic/core/peer_table.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/elastic/members.hpp"

namespace mayfly::elastic {
namespace {

using Phase = Peer::Phase;

/// Changes peers at random and counts them again after each change.
TEST(PeerTable, CountsWhatItHolds) {
  PeerTable table;
  std::uint64_t random = 1;
  const auto draw = [&random](std::uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % below;
  };
  for (std::uint64_t change = 0; change < 2000; ++change) {
    const MemberId id{1 + draw(8)};
    Peer* const peer = table.find(id);
    const auto phase = static_cast<Phase>(draw(Peer::kPhases));
    if (peer == nullptr) {
      table.add(id, phase);
    } else if (draw(4) == 0) {
      table.remove(id);
    } else if (draw(3) == 0) {
      table.wants_to_leave(*peer, "asked");
    } else {
      table.enter_phase(*peer, phase);
    }
    std::map<Phase, std::size_t> counted;
    std::size_t leavers = 0;
    for (const auto& [member, one] : table.all()) {
      ++counted[one.phase()];
      leavers += one.is_leaving() && one.phase() != Phase::kDismissed ? 1 : 0;
    }
    for (std::size_t number = 0; number < Peer::kPhases; ++number) {
      const auto counts = static_cast<Phase>(number);
      ASSERT_EQ(table.count(counts), counted[counts]) << change;
    }
    ASSERT_EQ(table.leavers(), leavers) << change;
    ASSERT_EQ(table.is_anyone_active(), counted[Phase::kActive] > 0) << change;
  }
}

TEST(PeerTable, KeepsTheLastReasonToLeave) {
  PeerTable table;
  Peer& peer = table.add(k1, Phase::kActive);
  EXPECT_FALSE(peer.is_leaving());
  table.wants_to_leave(peer, "notice");
  table.wants_to_leave(peer, "drained");
  EXPECT_TRUE(peer.is_leaving());
  EXPECT_EQ(peer.leave_reason(), "drained");
}

TEST(PeerTable, NoIdIsUsedTwiceAtATime) {
  PeerTable table;
  table.add(k1, Phase::kLoading);
  EXPECT_DEATH((void)table.add(k1, Phase::kLoading), "never reused");
  EXPECT_DEATH((void)table.at(k2), "not there");
  EXPECT_EQ(table.find(k2), nullptr);
}

TEST(PeerTable, OneThatLeavesIsNobodyToGoOnWithButStillWorks) {
  PeerTable table;
  table.add(k1, Phase::kActive);
  Peer& other = table.add(k2, Phase::kReady);
  EXPECT_TRUE(leaves_somebody(table.all(), k1));
  EXPECT_TRUE(another_member_works(table.all(), k1));
  table.wants_to_leave(other, "notice");
  EXPECT_FALSE(leaves_somebody(table.all(), k1));
  EXPECT_TRUE(another_member_works(table.all(), k1));
  table.enter_phase(other, Phase::kLoading);
  EXPECT_FALSE(another_member_works(table.all(), k1));
}

}  // namespace
}  // namespace mayfly::elastic
