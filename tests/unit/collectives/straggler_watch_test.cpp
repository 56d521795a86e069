#include "collectives/parameter_server/core/straggler_watch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "base/random.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr StragglerOptions kOptions;

/// Rounds of one slice per worker; each round takes as long as its slowest worker.
class Rounds {
 public:
  Rounds(std::uint32_t workers, double jitter, std::uint64_t seed)
      : workers_(workers),
        jitter_(jitter),
        random_(CounterRandom(seed).split("stragglers")),
        watch_(kOptions) {
    std::set<MemberId> ids;
    for (std::uint32_t i = 1; i <= workers; ++i) {
      ids.insert(MemberId{i});
    }
    watch_.set_workers(ids);
  }

  /// Runs one round in which worker `slow` (0: none) takes `factor` times as long. Returns the
  /// changes in it.
  std::vector<StragglerChange> run(std::uint32_t slow, double factor) {
    ++round_;
    double longest = 0;
    std::multimap<double, MemberId> arrivals;
    for (std::uint32_t i = 1; i <= workers_; ++i) {
      watch_.leased(now_, MemberId{i}, round_, 1);
      const double took = 10 * (i == slow ? factor : 1) * std::max(0.1, 1 + jitter_ * normal());
      arrivals.emplace(took, MemberId{i});
      longest = std::max(longest, took);
    }
    for (const auto& [ms, id] : arrivals) {
      watch_.arrived(now_ + Duration(static_cast<std::int64_t>(ms * 1e6)), id);
    }
    now_ = now_ + Duration(static_cast<std::int64_t>(longest * 1e6)) + milliseconds(1);
    return watch_.take_changes();
  }
  StragglerWatch& watch() { return watch_; }

 private:
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - random_.unit()));
    return radius * std::cos(2 * 3.14159265358979 * random_.unit());
  }

  std::uint32_t workers_;
  double jitter_;
  RandomStream random_;
  StragglerWatch watch_;
  Instant now_;
  std::uint64_t round_ = 0;
};

struct Quality {
  double false_alarms = 0;  ///< per worker and window
  double delay = 0;         ///< mean number of rounds from the onset to the detection
  double delay_max = 0;
  std::uint32_t missed = 0;  ///< jobs without a detection within 100 rounds
};

/// Runs `jobs` jobs of 400 rounds without a straggler and then 100 rounds with one.
Quality measure(std::uint32_t workers, double jitter, double factor, std::uint32_t jobs) {
  Quality quality;
  double alarms = 0;
  double found = 0;
  for (std::uint64_t seed = 1; seed <= jobs; ++seed) {
    Rounds rounds(workers, jitter, seed);
    for (int i = 0; i < 400; ++i) {
      for (const StragglerChange& change : rounds.run(0, 1)) {
        alarms += change.is_slow ? 1 : 0;
      }
    }
    std::uint32_t delay = 0;
    for (std::uint32_t i = 1; i <= 100 && delay == 0; ++i) {
      for (const StragglerChange& change : rounds.run(1, factor)) {
        delay = change.is_slow && change.worker == MemberId{1} ? i : delay;
      }
    }
    quality.missed += delay == 0 ? 1 : 0;
    found += delay > 0 ? 1 : 0;
    quality.delay += delay;
    quality.delay_max = std::max<double>(quality.delay_max, delay);
  }
  quality.false_alarms = alarms / (jobs * workers * 400.0 / kOptions.slices);
  quality.delay /= std::max(1.0, found);
  return quality;
}

TEST(StragglerWatch, FindsOneAmongThreeOrFourSoonAndTakesNobodyElseForOne) {
  std::printf("workers  jitter  factor  false alarms/window  delay mean, max (rounds)  missed\n");
  for (const std::uint32_t workers : {3U, 4U, 8U}) {
    for (const double jitter : {0.02, 0.1, 0.2}) {
      for (const double factor : {1.5, 2.0, 4.0}) {
        const Quality q = measure(workers, jitter, factor, 60);
        std::printf("%7u  %6.2f  %6.1f  %19.6f  %10.1f, %3.0f  %18u\n", workers, jitter, factor,
                    q.false_alarms, q.delay, q.delay_max, q.missed);
        EXPECT_LT(q.false_alarms, 0.01);
        if (jitter <= 0.1) {
          EXPECT_EQ(q.false_alarms, 0);
          EXPECT_EQ(q.missed, 0U);
        }
        if (jitter <= 0.1 && factor >= 2) {  // a window may have begun before the onset
          EXPECT_LE(q.delay_max, (kOptions.windows + 1) * kOptions.slices);
        }
      }
    }
  }
}

TEST(StragglerWatch, NeedsItToBeClearlyFasterBeforeItIsNoneAnyMore) {
  Rounds rounds(4, 0, 1);
  for (int i = 0; i < 40; ++i) {
    (void)rounds.run(1, 2);
  }
  ASSERT_EQ(rounds.watch().stragglers().size(), 1U);
  EXPECT_NEAR(rounds.watch().stragglers().at(MemberId{1}), 2, 0.01);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(rounds.run(1, 1.2).empty()) << "between the two borders nothing changes";
  }
  std::vector<StragglerChange> changes;
  for (int i = 0; i < 16 && changes.empty(); ++i) {
    changes = rounds.run(1, 1);
  }
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_FALSE(changes[0].is_slow);
  EXPECT_TRUE(rounds.watch().stragglers().empty());
}

/// Worker `slow` takes `factor` times as long. Returns the number of rounds until something
/// changes; 0 = nothing does.
int rounds_until_a_change(Rounds& rounds, std::uint32_t slow, double factor) {
  for (int i = 1; i <= 100; ++i) {
    if (!rounds.run(slow, factor).empty()) {
      return i;
    }
  }
  return 0;
}

TEST(StragglerWatch, NeedsAsManyWindowsInARowForTheOppositeEachTime) {
  constexpr int kRounds = kOptions.windows * kOptions.slices;
  Rounds rounds(4, 0, 1);
  (void)rounds.run(0, 1);  // now the other workers have times
  for (int i = 1; i < static_cast<int>(kOptions.slices); ++i) {
    (void)rounds.run(0, 1);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rounds_until_a_change(rounds, 1, 2), kRounds);
    EXPECT_EQ(rounds.watch().stragglers().size(), 1U);
    EXPECT_EQ(rounds_until_a_change(rounds, 1, 1), kRounds);
    EXPECT_TRUE(rounds.watch().stragglers().empty());
  }
}

TEST(StragglerWatch, WindowsThatDoNotFollowEachOtherDoNotCount) {
  Rounds rounds(4, 0, 1);
  for (int i = 0; i < 40; ++i) {
    const bool is_slow = i % 3 != 2;  // two windows in three
    for (std::uint32_t slice = 0; slice < kOptions.slices; ++slice) {
      EXPECT_TRUE(rounds.run(is_slow ? 1 : 0, 3).empty());
    }
  }
}

TEST(StragglerWatch, FindsTwoAmongFour) {
  StragglerWatch watch(kOptions);
  watch.set_workers({MemberId{1}, MemberId{2}, MemberId{3}, MemberId{4}});
  Instant now;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    for (const std::uint64_t id : {1U, 2U, 3U, 4U}) {
      watch.leased(now, MemberId{id}, round, 1);
    }
    for (const std::uint64_t id : {1U, 2U}) {
      watch.arrived(now + milliseconds(10), MemberId{id});
    }
    for (const std::uint64_t id : {3U, 4U}) {
      watch.arrived(now + milliseconds(30), MemberId{id});
    }
    now = now + milliseconds(31);
  }
  EXPECT_EQ(watch.stragglers().size(), 2U);
  EXPECT_EQ(watch.stragglers().count(MemberId{1}), 0U);
}

TEST(StragglerWatch, ForgetsWhoIsGoneAndIgnoresRepeats) {
  Rounds rounds(3, 0, 1);
  for (int i = 0; i < 30; ++i) {
    (void)rounds.run(2, 3);
  }
  ASSERT_EQ(rounds.watch().stragglers().size(), 1U);
  rounds.watch().arrived(Instant{}, MemberId{2});  // it has no lease
  rounds.watch().set_workers({MemberId{1}, MemberId{3}});
  EXPECT_TRUE(rounds.watch().stragglers().empty());
  rounds.watch().leased(Instant{}, MemberId{2}, 1000, 1);
  rounds.watch().arrived(Instant{} + seconds(100), MemberId{2});
  EXPECT_TRUE(rounds.watch().take_changes().empty());
}

TEST(StragglerWatch, KnowsByProbesThatOneIsFastAgain) {
  Rounds rounds(3, 0, 1);
  for (int i = 0; i < 30; ++i) {
    (void)rounds.run(2, 3);
  }
  Instant now = Instant{} + seconds(1000);
  for (int i = 0; i < 3; ++i) {
    rounds.watch().probed(now, MemberId{2}, 3);
    rounds.watch().probe_done(now + milliseconds(30), MemberId{2});
  }
  EXPECT_TRUE(rounds.watch().stragglers().empty());
}

TEST(WorthLeavingOut, IsWhoMakesTheStepLongerThanTheOthersWouldNeed) {
  const std::set<MemberId> four = {MemberId{1}, MemberId{2}, MemberId{3}, MemberId{4}};
  const auto out = [&](std::map<MemberId, double> slow, std::uint32_t slices) {
    return worth_leaving_out(slow, four, slices);
  };
  EXPECT_TRUE(out({{MemberId{2}, 1.5}}, 4).empty()) << "three would need two slices each";
  EXPECT_EQ(out({{MemberId{2}, 1.5}}, 12), std::set<MemberId>{MemberId{2}});
  EXPECT_EQ(out({{MemberId{2}, 3}}, 4), std::set<MemberId>{MemberId{2}});
  EXPECT_EQ(out({{MemberId{2}, 3}, {MemberId{3}, 3.1}}, 12),
            (std::set<MemberId>{MemberId{2}, MemberId{3}}));
  EXPECT_TRUE(worth_leaving_out({{MemberId{1}, 9}}, {MemberId{1}}, 4).empty()) << "nobody is left";
}

TEST(StragglerPolicyText, IsOneOfThree) {
  EXPECT_EQ(parse_straggler_policy("greedy").value(), StragglerPolicy::kGreedy);
  EXPECT_EQ(parse_straggler_policy("elastic").value(), StragglerPolicy::kElastic);
  EXPECT_EQ(parse_straggler_policy("none").value(), StragglerPolicy::kNone);
  EXPECT_FALSE(parse_straggler_policy("").ok());
  EXPECT_FALSE(parse_straggler_policy("Greedy").ok());
}

}  // namespace
}  // namespace mayfly::parameter_server
