// A Replanner with jobs in simulated time. A test sets their servers, prices and speeds.

#include "planner/runs/replan.hpp"

#include <gmock/gmock.h>

#include "base/random.hpp"

namespace mayfly::planner {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDear = "x in a (spot)";
constexpr const char* kOther = "y in b (spot)";

/// A job whose servers start and leave as soon as the Replanner changes their number.
class SimulatedJob {
 public:
  explicit SimulatedJob(ReplanOptions options) : replanner(std::move(options)) {
    facts.steps_left = 1e6;
    facts.servers = {server(kDear, 1), server(kDear, 1)};
    facts.wanted = 2;
  }

  static ReplanServer server(const std::string& offer, double price, double speed = 1) {
    return {.offer = offer, .price_per_hour = price, .speed = speed};
  }

  /// Runs for so many minutes, and calls the Replanner every 20 s.
  void run(int minutes) {
    for (int looks = 0; looks < 3 * minutes; ++looks) {
      look();
    }
  }
  /// Runs for 20 s, calls the Replanner and changes the servers as it says.
  void look() {
    now = now + seconds(20);
    facts.elapsed_s += 20;
    facts.spent += per_hour() * 20 / 3600;
    dearest = std::max(dearest, per_hour());
    const double steps = 20 * speed() * (1 + noise * (2 * random.unit() - 1));
    facts.steps_done += steps;
    facts.steps_left -= steps;
    facts.is_settled = facts.servers.size() == facts.wanted;
    const ReplanEffects effects = replanner.handle(now, facts);
    if (effects.proposal) {
      proposals.push_back(*effects.proposal);
    }
    if (effects.workers) {
      scaled.push_back(*effects.workers);
      after = effects.workers_after;
      scale(*effects.workers);
    }
  }
  void scale(std::uint32_t workers) {
    facts.wanted = workers;
    while (facts.servers.size() < facts.wanted) {
      facts.servers.push_back(*facts.next);
    }
    while (facts.servers.size() > facts.wanted) {  // removes the dearest for its speed
      facts.servers.erase(std::ranges::max_element(
          facts.servers, {}, [](const ReplanServer& s) { return s.price_per_hour / s.speed; }));
    }
  }
  [[nodiscard]] double per_hour() const {
    double sum = 0;
    for (const ReplanServer& one : facts.servers) {
      sum += one.price_per_hour;
    }
    return sum;
  }
  /// Steps per second.
  [[nodiscard]] double speed() const {
    double sum = 0;
    for (const ReplanServer& one : facts.servers) {
      sum += one.speed;
    }
    return std::min(sum, speed_most);
  }

  Replanner replanner;
  ReplanFacts facts;
  Instant now{1'000'000'000'000};
  double noise = 0;
  double speed_most = 1e9;
  double dearest = 0;  // the highest price per hour so far
  RandomStream random{CounterRandom(5)};
  std::vector<Proposal> proposals;
  std::vector<std::uint32_t> scaled;
  std::optional<std::uint32_t> after;  // the last change
};

ReplanOptions up_to(std::uint32_t workers, bool acts = false) {
  ReplanOptions options;
  options.workers_most = workers;
  options.acts = acts;
  return options;
}

TEST(Replanner, ProposesAnOfferWhosePriceHalves) {
  SimulatedJob job(up_to(4));
  job.facts.next = SimulatedJob::server(kOther, 1);
  job.run(60);
  EXPECT_TRUE(job.proposals.empty()) << job.proposals[0].because;
  job.facts.next->price_per_hour = 0.5;
  job.run(60);
  ASSERT_EQ(job.proposals.size(), 1u) << "once";
  const Proposal& proposal = job.proposals[0];
  EXPECT_EQ(proposal.change, Change::kOther);
  EXPECT_EQ(proposal.offer, kOther);
  EXPECT_FALSE(proposal.is_time);
  EXPECT_GT(proposal.gain.low, 0);
  const double rest_h = (1e6 - 2 * 3600 - 2 * 200) / 2 / 3600;  // to within some minutes
  EXPECT_NEAR(proposal.gain.median, 0.5 * rest_h, 0.01 * rest_h) << "a quarter of 2 per hour";
  EXPECT_THAT(proposal.because, HasSubstr("y in b (spot) in place of another server saves "));
  EXPECT_TRUE(job.scaled.empty()) << "it was not told to act";
}

TEST(Replanner, DoesNotFlapOnNoise) {
  for (const bool acts : {false, true}) {
    SimulatedJob job(up_to(8, acts));
    job.noise = 0.3;
    job.facts.next = SimulatedJob::server(kOther, 1);
    job.run(48 * 60);
    EXPECT_TRUE(job.proposals.empty()) << job.proposals[0].because;
    EXPECT_TRUE(job.scaled.empty());
  }
}

TEST(Replanner, ExchangesServersOneByOneAndThenStays) {
  SimulatedJob job(up_to(3, true));
  job.noise = 0.1;
  job.facts.next = SimulatedJob::server(kOther, 0.5);
  job.run(24 * 60);
  EXPECT_EQ(job.scaled, (std::vector<std::uint32_t>{3, 2, 3, 2})) << "one comes, then one goes";
  EXPECT_EQ(job.per_hour(), 1) << "both are cheap now";
}

TEST(Replanner, ATargetThatIsSetDuringAnExchangeHolds) {
  for (const std::uint32_t workers : {2U, 5U}) {
    SimulatedJob job(up_to(8, true));
    job.facts.next = SimulatedJob::server(kOther, 0.5);
    for (int looks = 0; looks < 300 && job.scaled.empty(); ++looks) {
      job.look();
    }
    ASSERT_EQ(job.proposals.size(), 1u);
    ASSERT_EQ(job.proposals[0].change, Change::kOther);
    ASSERT_EQ(job.scaled, std::vector<std::uint32_t>{3});
    EXPECT_EQ(job.after, 2U);
    job.scale(workers);  // by a user
    job.run(8);
    EXPECT_EQ(job.scaled, std::vector<std::uint32_t>{3}) << workers;
    EXPECT_EQ(job.facts.wanted, workers);
  }
}

TEST(Replanner, NeverGoesBeyondABudget) {
  for (const double budget_per_hour : {2.4, 100.0}) {
    ReplanOptions options = up_to(8, true);
    options.budget_per_hour = budget_per_hour;
    options.budget = budget_per_hour == 100 ? 200 : 1e9;  // without it the job would cost 278
    SimulatedJob job(options);
    job.facts.next = SimulatedJob::server(kOther, 0.5);
    job.run(24 * 60);
    EXPECT_LE(job.dearest, budget_per_hour);
    EXPECT_TRUE(job.scaled.empty() || budget_per_hour == 100);
    if (!job.scaled.empty()) {
      EXPECT_LE(job.facts.spent + job.per_hour() * job.facts.steps_left / job.speed() / 3600, 200);
    }
  }
}

TEST(Replanner, OneMoreKeepsADeadline) {
  ReplanOptions options = up_to(8, true);
  options.plan = KeptPlan();
  options.plan->deadline_s = 110.0 * 3600;  // two servers take 139 hours, three 93
  SimulatedJob job(options);
  job.facts.next = SimulatedJob::server(kDear, 1);
  job.run(24 * 60);
  EXPECT_EQ(job.scaled, std::vector<std::uint32_t>{3});
  ASSERT_EQ(job.proposals.size(), 1u);
  EXPECT_TRUE(job.proposals[0].is_time);
  EXPECT_THAT(job.proposals[0].because, HasSubstr("ends the job "));
}

TEST(Replanner, AServerThatDoesNotShortenTheStepGoes) {
  ReplanOptions options = up_to(8, true);
  options.microbatches = 4;  // with two or three servers, one computes two
  SimulatedJob job(options);
  job.facts.servers.push_back(SimulatedJob::server(kDear, 1));
  job.facts.wanted = 3;
  job.speed_most = 2;
  job.run(24 * 60);
  EXPECT_EQ(job.scaled, std::vector<std::uint32_t>{2});
}

TEST(Replanner, WhatWasMeasuredCountsMoreThanWhatWasExpected) {
  ReplanOptions options = up_to(8, true);
  options.plan = KeptPlan();
  options.plan->is_fastest = true;
  options.budget = 1e9;
  SimulatedJob job(options);
  job.speed_most = 2;  // a third server does not help
  job.facts.next = SimulatedJob::server(kDear, 1);
  job.run(48 * 60);
  EXPECT_EQ(job.scaled, std::vector<std::uint32_t>{3}) << "no fourth";
}

TEST(Replanner, SaysNothingWhileServersComeOrGo) {
  SimulatedJob job(up_to(4));
  job.facts.wanted = 3;
  job.facts.next = SimulatedJob::server(kOther, 0.1);
  job.run(24 * 60);
  EXPECT_TRUE(job.proposals.empty());
}

}  // namespace
}  // namespace mayfly::planner
