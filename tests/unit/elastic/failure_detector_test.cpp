#include "elastic/core/failure_detector.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace mayfly::elastic {
namespace {

constexpr MemberId kA{1};
constexpr MemberId kB{2};

Instant at_ms(std::int64_t ms) {
  return Instant{} + milliseconds(ms);
}

/// Checks every 10 ms in (from, to]; returns the first time at which a member is suspect, or -1.
std::int64_t first_suspicion(FailureDetector& detector, std::int64_t from, std::int64_t to,
                             const std::function<void(std::int64_t)>& each = {}) {
  for (std::int64_t ms = from + 10; ms <= to; ms += 10) {
    if (each) {
      each(ms);
    }
    if (!detector.suspects(at_ms(ms)).empty()) {
      return ms;
    }
  }
  return -1;
}

TEST(FailureDetector, SuspectsAMemberOnlyAfterTheShortestSuspiciousSilence) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  EXPECT_EQ(first_suspicion(detector, 0, 1000), 310);
}

TEST(FailureDetector, NamesOnlyTheSilentOne) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  detector.on_message(kB, at_ms(0));
  const auto b_beats = [&](std::int64_t ms) { detector.on_message(kB, at_ms(ms)); };
  const std::int64_t when = first_suspicion(detector, 0, 1000, b_beats);
  EXPECT_EQ(detector.suspects(at_ms(when)), std::vector<MemberId>{kA});
}

TEST(FailureDetector, IsMorePatientWithAMemberWhoseBeatsWereIrregular) {
  FailureDetector detector(milliseconds(300), seconds(1));
  std::int64_t ms = 0;
  for (int beat = 0; beat < 60; ++beat) {
    ms += beat % 2 == 0 ? 20 : 280;
    detector.on_message(kA, at_ms(ms));
  }
  EXPECT_GT(detector.patience(kA, at_ms(0)), milliseconds(500));
  EXPECT_LE(detector.patience(kA, at_ms(0)), milliseconds(3000));
}

TEST(FailureDetector, PatienceIsBoundedAboveByTenTimesTheShortestSilence) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  detector.on_message(kA, at_ms(10));
  detector.on_message(kA, at_ms(100000));
  EXPECT_EQ(detector.patience(kA, at_ms(0)), milliseconds(3000));
}

TEST(FailureDetector, ExcusesEverybodyWhenTheObserverItselfWasPaused) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  EXPECT_TRUE(detector.suspects(at_ms(10)).empty());
  EXPECT_TRUE(detector.suspects(at_ms(5000)).empty());
  EXPECT_EQ(first_suspicion(detector, 5000, 6000), 5300);
}

// The member starved, was stopped, and went on while the observer was suspended. The observer reads
// all these messages at once.
TEST(FailureDetector, AfterAPauseOfTheObserverWhatWasSentMeanwhileIsReadFirst) {
  for (const bool goes_on : {true, false}) {
    FailureDetector detector(milliseconds(300), seconds(1));
    detector.on_message(kA, at_ms(0));
    for (int ms = 0; ms <= 600; ms += 10) {
      EXPECT_TRUE(detector.suspects(at_ms(ms)).empty());
      detector.host_answers(kA, at_ms(ms));
    }
    EXPECT_TRUE(detector.suspects(at_ms(2000)).empty());
    detector.stopped(kA);
    EXPECT_TRUE(detector.suspects(at_ms(2000)).empty());
    if (goes_on) {
      detector.on_message(kA, at_ms(2000));
    }
    // Its only interval was one of 600 ms, so that much is usual now.
    EXPECT_EQ(first_suspicion(detector, 2000, 4000), goes_on ? 2610 : 2110);
  }
}

TEST(FailureDetector, AMemberWhoseMachineAnswersOnlyWaitsForAProcessor) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  detector.on_message(kB, at_ms(0));
  const auto answers = [&](std::int64_t ms) { detector.host_answers(kA, at_ms(ms)); };
  EXPECT_EQ(first_suspicion(detector, 0, 2000, answers), 310);  // b, whose machine does not answer
  detector.forget(kB);
  EXPECT_EQ(first_suspicion(detector, 310, 2000, answers), 1010);
  EXPECT_NE(detector.reason(kA, at_ms(1010)).find("although its machine answers"),
            std::string::npos);
}

TEST(FailureDetector, AnAnswerCountsForAsLongAsTheSilenceThatMayFollow) {
  FailureDetector detector(milliseconds(300), seconds(5));
  detector.on_message(kA, at_ms(0));
  detector.host_answers(kA, at_ms(200));  // then its network goes, too
  EXPECT_EQ(first_suspicion(detector, 0, 2000), 510);
}

TEST(FailureDetector, AnAnswerDoesNotGrowOldWhileTheObserverItselfIsPaused) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  for (int ms = 0; ms <= 240; ms += 10) {
    EXPECT_TRUE(detector.suspects(at_ms(ms)).empty());
  }
  detector.host_answers(kA, at_ms(200));
  EXPECT_TRUE(detector.suspects(at_ms(1240)).empty());  // silent for 240 ms in which we listened
  EXPECT_EQ(first_suspicion(detector, 1240, 3000), 1510) << "300 ms after the answer, as always";
}

TEST(FailureDetector, AStoppedProcessGetsTheShortestSilenceEvenIfItsMachineAnswers) {
  FailureDetector detector(milliseconds(300), seconds(1));
  for (std::int64_t ms = 0; ms < 3000; ms += ms % 300 == 0 ? 20 : 280) {
    detector.on_message(kA, at_ms(ms));  // irregular
  }
  detector.stopped(kA);
  const auto answers = [&](std::int64_t ms) { detector.host_answers(kA, at_ms(ms)); };
  EXPECT_LE(first_suspicion(detector, 3000, 4000, answers), 3310);
  EXPECT_NE(detector.reason(kA, at_ms(3310)).find("its process is stopped"), std::string::npos);
  detector.on_message(kA, at_ms(3320));  // it goes on
  EXPECT_GT(detector.patience(kA, at_ms(3330)), milliseconds(300));
}

TEST(FailureDetector, AsksAboutQuietMembersAgainAndAgain) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  detector.on_message(kB, at_ms(0));
  EXPECT_TRUE(detector.to_probe(at_ms(100)).empty());
  detector.on_message(kB, at_ms(100));
  EXPECT_EQ(detector.to_probe(at_ms(110)), std::vector<MemberId>{kA});
  EXPECT_TRUE(detector.to_probe(at_ms(150)).empty());
  EXPECT_EQ(detector.to_probe(at_ms(215)), (std::vector<MemberId>{kA, kB}));
}

TEST(FailureDetector, AForgottenMemberIsNeverSuspect) {
  FailureDetector detector(milliseconds(300), seconds(1));
  detector.on_message(kA, at_ms(0));
  detector.forget(kA);
  EXPECT_EQ(first_suspicion(detector, 0, 1000), -1);
}

}  // namespace
}  // namespace mayfly::elastic
