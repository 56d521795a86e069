#include "elastic/core/admission.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::uint64_t kAdmittingJob = 7;

class Admission : public testing::Test {
 protected:
  Admission() {
    Outbox outbox;
    term_.start(outbox);
  }
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.identity = kAdmittingJob;
    return options;
  }
  /// The Hello of a returning member that reports this view.
  static Hello member(MemberId id, std::uint64_t view) {
    Hello hello;
    hello.member = id;
    hello.job = hello.author = kAdmittingJob;
    hello.incarnation = Incarnation{1};
    hello.view = ViewId{view};
    return hello;
  }
  [[nodiscard]] std::optional<Refusal> turned_away(const Hello& hello, JobPhase phase) const {
    const auto refused = reason_to_turn_away(hello, phase, term_, membership_);
    return refused ? std::optional(refused->refusal) : std::nullopt;
  }

  Term term_{options()};
  Membership membership_ = working({k1, k2});
};

TEST_F(Admission, TakesWorkersOfTheProtocolWhileThereIsRoom) {
  const auto reason = [this](const Hello& hello, JobPhase phase) {
    return reason_to_refuse(hello, phase, term_, membership_).value_or("");
  };
  for (std::uint64_t id = 3; membership_.peers().size() < kMembersMax; ++id) {
    EXPECT_EQ(reason(Hello{}, JobPhase::kRunning), "");
    membership_.connect(MemberId{id}, Hello{}, kSoon);
  }
  EXPECT_EQ(reason(Hello{}, JobPhase::kRunning), "the job has all the workers it may have (16384)");
  membership_.dismiss(k2);
  EXPECT_EQ(reason(Hello{}, JobPhase::kRunning), "") << "it is on its way out";
  EXPECT_EQ(reason(Hello{}, JobPhase::kEnded), "the job has ended");
  Hello old;
  old.protocol = kProtocolVersion - 1;
  EXPECT_TRUE(reason(old, JobPhase::kRunning).starts_with("protocol: "));
  Hello sentinel;
  sentinel.role = Role::kSentinel;
  EXPECT_EQ(reason(sentinel, JobPhase::kRunning), "only workers become members");
}

TEST_F(Admission, MembersOfTheLastViewComeBackUntilItIsReplaced) {
  membership_.remove(k2);
  EXPECT_EQ(turned_away(member(k2, 1), JobPhase::kStopping), std::nullopt);
  EXPECT_EQ(turned_away(member(k2, 1), JobPhase::kResuming), std::nullopt);
  EXPECT_EQ(turned_away(member(k2, 1), JobPhase::kRunning), Refusal::kEvicted);
  EXPECT_EQ(turned_away(member(k3, 1), JobPhase::kStopping), Refusal::kEvicted);
  EXPECT_EQ(turned_away(member(k3, 0), JobPhase::kRunning), std::nullopt) << "it has no view yet";
  EXPECT_EQ(turned_away(member(k3, 2), JobPhase::kRunning), std::nullopt) << "it knows more";
}

TEST_F(Admission, AnEvictedMemberDoesNotGetItsPlaceBack) {
  membership_.fence(k2);
  membership_.remove(k2);
  EXPECT_EQ(turned_away(member(k2, 1), JobPhase::kStopping), Refusal::kEvicted);
  Hello again = member(k2, 1);
  again.joins_again = true;
  EXPECT_EQ(turned_away(again, JobPhase::kStopping), std::nullopt);
}

TEST_F(Admission, MembersOfAnotherJobAreSentElsewhere) {
  Hello other = member(k1, 1);
  other.job = kAdmittingJob + 1;
  EXPECT_EQ(turned_away(other, JobPhase::kResuming), Refusal::kElsewhere);
  EXPECT_EQ(turned_away(other, JobPhase::kEnded), Refusal::kElsewhere) << "its own job goes on";
  other.fingerprint = {{"seed", "2"}};
  EXPECT_EQ(turned_away(other, JobPhase::kRunning), Refusal::kElsewhere);
  Hello impossible = member(MemberId{id_base(Incarnation{9}) + 1}, 1);
  EXPECT_EQ(turned_away(impossible, JobPhase::kResuming), Refusal::kFinal);
}

}  // namespace
}  // namespace mayfly::elastic
