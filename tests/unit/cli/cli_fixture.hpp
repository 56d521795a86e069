#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "cli/cli.hpp"
#include "tests/sim/simulate.hpp"

namespace mayfly::cli {

/// A sentinel without a process.
class NoSentinel final : public elastic::Sentinel {
 public:
  void arm(const std::vector<std::string>&, std::size_t, ByteSpan, MemberId,
           std::uint64_t) override {}
  void follow(std::size_t) override {}
  void adopt(Incarnation, std::uint64_t) override {}
  void give_up() override {}
  elastic::ProgressBoard& board() override { return board_; }
  [[nodiscard]] int pid() const override { return 0; }

 private:
  elastic::ProgressBoard board_;
};

/// Runs commands with services that only record their arguments.
class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    Services& s = context_.services;
    s.train = [this](const engine::JobConfig& c, engine::RunListener&) { return note("train", c); };
    s.program = [this](const engine::JobConfig& c, const std::vector<std::string>& command,
                       engine::RunListener&) {
      command_ = command;
      return note("program", c);
    };
    s.coordinator = [this](const engine::JobConfig& c, engine::RunListener&) {
      return note("coordinator", c);
    };
    s.worker = [this](const engine::JobConfig& c, std::unique_ptr<elastic::Sentinel> sentinel) {
      EXPECT_NE(sentinel, nullptr);
      return note("worker", c);
    };
    s.launched_rank = [this](const engine::JobConfig& c, engine::RunListener&,
                             std::unique_ptr<elastic::Sentinel> sentinel,
                             const std::vector<std::string>& command) {
      EXPECT_EQ(sentinel == nullptr, !command.empty()) << "a program has one of its own";
      command_ = command;
      return note("launched_rank", c);
    };
    s.become_program = [this](const engine::JobConfig& own, const auto& given,
                              const std::string& /*job_file*/,
                              const std::vector<std::string>& command) {
      command_ = command;
      given_ = given;
      return note("become_program", own);
    };
    s.simulate = sim::run_simulator;
    s.inside_launcher = [this] { return inside_launcher_; };
    s.fork_sentinel = [this]() -> Result<std::unique_ptr<elastic::Sentinel>> {
      ++sentinels_forked_;
      return std::unique_ptr<elastic::Sentinel>(std::make_unique<NoSentinel>());
    };
    s.ask_for_job_settings = [this](const engine::JobConfig& own) {
      settings_asked_of_ = own.coordinator;
      return told_settings_;
    };
    s.send_command = [this](const std::string& endpoint, ByteSpan, const elastic::Command& command,
                            Duration) -> Result<elastic::CommandReply> {
      asked_ = endpoint + " " + command.verb + " " + command.argument;
      return reply_;
    };
    s.pause = [this](Duration length) { clock_ = clock_ + length; };
    s.now = [this] { return clock_; };
  }

  int run(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    started_.clear();
    return run_cli(words, context_);
  }
  [[nodiscard]] std::string out() const { return out_.str(); }
  [[nodiscard]] std::string err() const { return err_.str(); }

  std::ostringstream out_;
  std::ostringstream err_;
  Context context_{out_, err_, false, {}, {}, nullptr};
  std::string started_;       // the service that ran
  engine::JobConfig config_;  // its configuration
  int exit_code_ = 0;         // what services return
  bool inside_launcher_ = false;
  std::vector<std::string> command_;  // the command of a user's own program
  std::vector<std::pair<std::string, std::string>> given_;
  int sentinels_forked_ = 0;
  Instant clock_;  // pauses advance it
  std::string asked_;
  std::string settings_asked_of_;  // endpoints that were asked for settings
  Result<engine::JobConfig> told_settings_ = engine::JobConfig();
  Result<elastic::CommandReply> reply_ = elastic::CommandReply{true, "fine"};

 private:
  int note(const std::string& service, const engine::JobConfig& config) {
    started_ = service;
    config_ = config;
    return exit_code_;
  }
};

}  // namespace mayfly::cli
