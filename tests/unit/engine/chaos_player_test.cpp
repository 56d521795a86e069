#include "engine/faults/chaos_player.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace mayfly::engine {
namespace {

/// Numbers in place of processes: 0 and 1 are workers, 2 is a server.
class NamedProcesses final : public ChaosTargets {
 public:
  Result<std::size_t> start_worker() override {
    if (next_ == 0) {
      return Error{Errc::kIo, "no room"};
    }
    done.push_back(fmt::format("start {}", next_));
    running.insert(next_);
    return next_++;
  }
  [[nodiscard]] bool is_running(std::size_t number) const override {
    return running.contains(number);
  }
  [[nodiscard]] std::vector<std::size_t> running_workers() const override {
    std::vector<std::size_t> workers(running.begin(), running.end());
    std::erase(workers, kServer);
    return workers;
  }
  Result<void> signal_worker(std::size_t number, int signal) override {
    done.push_back(fmt::format("signal {} {}", signal, number));
    return {};
  }
  Result<void> kill_for_good(std::size_t number) override {
    done.push_back(fmt::format("kill {}", number));
    running.erase(number);
    return Error{Errc::kNotFound, "it has ended this instant"};
  }
  void note_chaos(const std::string& text) override { notes.push_back(text); }

  void fill_up() { next_ = 0; }

  static constexpr std::size_t kServer = 2;
  std::set<std::size_t> running{0, 1, kServer};
  std::vector<std::string> done;
  std::vector<std::string> notes;

 private:
  std::size_t next_ = kServer + 1;
};

using Lines = std::vector<std::string>;

constexpr Instant kPlayed = Instant{} + seconds(100);

ChaosPlayer player_of(ChaosTargets& targets, const std::string& plan) {
  return {targets, parse_chaos_plan(plan).value()};
}

TEST(ChaosPlayer, StrikesOnceTheStepIsCommitted) {
  NamedProcesses targets;
  ChaosPlayer player = player_of(targets, "kill@step=20:worker=1,join@step=30");
  player.play(19, kPlayed);
  EXPECT_EQ(targets.done, Lines{});
  player.play(20, kPlayed);
  player.play(20, kPlayed);
  EXPECT_EQ(targets.done, Lines{"kill 1"});
  EXPECT_TRUE(player.has_more());
  player.play(77, kPlayed);
  EXPECT_EQ(targets.done, (Lines{"kill 1", "start 3"}));
  EXPECT_EQ(targets.notes,
            (Lines{"chaos: kill -9 local worker 1", "chaos: local worker 3 starts"}));
  EXPECT_FALSE(player.has_more());
}

TEST(ChaosPlayer, AFaultWithoutANumberHitsTheOldestWorkerThatRuns) {
  NamedProcesses targets;
  ChaosPlayer player = player_of(targets, "kill@step=1,kill@step=1,drain@step=2");
  player.play(9, kPlayed);
  EXPECT_EQ(targets.done, (Lines{"kill 0", "kill 1"})) << "a server is no worker";
  EXPECT_EQ(targets.notes.back(), "chaos: no such worker is running; event skipped");
}

TEST(ChaosPlayer, AStoppedWorkerGoesOnWhenItsTimeHasCome) {
  NamedProcesses targets;
  ChaosPlayer player = player_of(targets, "stop@step=1:worker=1:for=500");
  player.play(1, kPlayed);
  player.play(1, kPlayed + milliseconds(499));
  EXPECT_EQ(targets.done, Lines{fmt::format("signal {} 1", SIGSTOP)});
  EXPECT_TRUE(player.has_more());
  player.play(1, kPlayed + milliseconds(500));
  EXPECT_EQ(targets.done.back(), fmt::format("signal {} 1", SIGCONT));
  EXPECT_FALSE(player.has_more());
}

TEST(ChaosPlayer, WhatAWorkerDoesToItselfIsOnlyNoted) {
  NamedProcesses targets;
  ChaosPlayer player = player_of(targets, "hang@step=1:worker=1,flip_weights@step=2");
  player.play(2, kPlayed);
  EXPECT_EQ(targets.done, Lines{});
  EXPECT_EQ(targets.notes, (Lines{"chaos: local worker 1 hangs",
                                  "chaos: local worker 0 has a bit of its state flipped"}));
}

TEST(ChaosPlayer, SaysWhyNoWorkerCouldBeStarted) {
  NamedProcesses targets;
  targets.fill_up();
  ChaosPlayer player = player_of(targets, "join@step=1");
  player.play(1, kPlayed);
  EXPECT_EQ(targets.notes, Lines{"no room"});
}

}  // namespace
}  // namespace mayfly::engine
