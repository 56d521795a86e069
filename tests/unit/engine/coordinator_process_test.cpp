// The start of a coordinator's process, and its end: while an operator's commands are unanswered,
// and when it dies before it has completed the end.

#include "engine/processes/coordinator_process.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/lock_file.hpp"
#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/job/derive_job.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/job_settings.hpp"
#include "engine/processes/coordinator_options.hpp"
#include "engine/run/run_directory.hpp"
#include "tests/unit/engine/nobody_listens.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using elastic::Command;
using elastic::CommandReply;
using test_support::NobodyListens;

JobConfig small_job(const std::string& run_dir) {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 4;
  config.run_dir = run_dir;
  return config;
}

/// Sends both commands in one call, so that the coordinator reads them together, and returns the
/// second answer.
CommandReply ask_both(const std::string& endpoint, const Bytes& token, const Command& first,
                      const Command& second) {
  const Instant deadline = monotonic_now() + seconds(60);
  elastic::Hello hello;
  hello.role = elastic::Role::kOperator;
  const elastic::OpenSession session =
      elastic::open_session(endpoint, token, hello, deadline).value();
  Bytes both = elastic::to_frame(first);
  const Bytes rest = elastic::to_frame(second);
  both.insert(both.end(), rest.begin(), rest.end());
  EXPECT_EQ(::send(session.fd.get(), both.data(), both.size(), 0),
            static_cast<ssize_t>(both.size()));
  (void)elastic::receive_message(session.fd.get(), deadline).value();
  return std::get<CommandReply>(elastic::receive_message(session.fd.get(), deadline).value());
}

TEST(CoordinatorOptions, AProgramMayTakeAsLongToStopAsBetweenItsSteps) {
  JobConfig config;
  const Duration usual = elastic::CoordinatorOptions{}.stop_timeout;
  for (const auto& [hang_max_ms, expected] :
       {std::pair(60'000U, Duration(seconds(60))), std::pair(0U, usual)}) {
    config.model = kProgramModel;
    config.hang_max_ms = hang_max_ms;
    const auto job = begin_program(config).value();
    EXPECT_EQ(core_options(*job, Step{0}, false).stop_timeout, expected);
  }
}

TEST(CoordinatorProcess, AnswersWhatItHasReadWhenItEnds) {
  const test_support::TemporaryFolder folder;
  NobodyListens listener;
  std::latch is_asked(1);
  std::latch ends(1);
  const auto process =
      CoordinatorProcess::start(small_job(folder / "run"), listener,
                                CoordinatorProcess::Unfinished::kRefuse,
                                [&](std::uint32_t) -> Result<std::string> {
                                  is_asked.count_down();
                                  ends.wait();
                                  // finish() usually begins during this pause; the test does not
                                  // depend on it.
                                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                  return std::string("as you wish");
                                })
          .value();
  const Bytes token = elastic::read_token_file(process->config().token_file).value();
  CommandReply reply;
  std::thread operators([&reply, &token, endpoint = process->server().endpoint()] {
    reply = ask_both(endpoint, token, {"scale", "2"}, {"status", ""});
  });
  is_asked.wait();
  JobEnd end;
  end.outcome = elastic::Outcome::kStopped;
  ends.count_down();
  EXPECT_EQ(process->finish(end), kExitStopped);
  operators.join();
  EXPECT_TRUE(reply.ok) << reply.text;
  EXPECT_NE(reply.text.find("\"phase\""), std::string::npos) << reply.text;
}

std::set<std::string> everything_in(const std::string& folder) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    found.insert(std::filesystem::relative(entry.path(), folder).string());
  }
  return found;
}

TEST(CoordinatorProcess, TouchesNothingWithoutTheLock) {
  const test_support::TemporaryFolder folder;
  const JobConfig config = small_job(folder / "run");
  NobodyListens listener;
  const Result<LockFile> lock = LockFile::take(view_log_path(config.run_dir) + ".lock");
  ASSERT_TRUE(lock.ok());
  const auto no_scaling = [](std::uint32_t) -> Result<std::string> { return std::string(); };
  const auto started = CoordinatorProcess::start(
      config, listener, CoordinatorProcess::Unfinished::kRefuse, no_scaling);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, Errc::kRefused);
  EXPECT_EQ(everything_in(folder.path()), (std::set<std::string>{"run", "run/view.log.lock"}));
}

TEST(CoordinatorProcess, TakesEverythingBackThatItWroteIfItIsRefused) {
  const test_support::TemporaryFolder folder;
  JobConfig config = small_job(folder / "runs/first");
  config.bind_host = "203.0.113.7";  // no host's address (RFC 5737); binding to it fails last
  NobodyListens listener;
  const auto no_scaling = [](std::uint32_t) -> Result<std::string> { return std::string(); };
  const auto started = CoordinatorProcess::start(
      config, listener, CoordinatorProcess::Unfinished::kRefuse, no_scaling);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(everything_in(folder.path()), std::set<std::string>{});
}

TEST(CoordinatorProcess, RefusesFactsThatNoHelloHasRoomFor) {
  const test_support::TemporaryFolder folder;
  JobConfig config;
  config.model = kProgramModel;
  config.run_dir = folder / "run";
  NobodyListens listener;
  const auto no_scaling = [](std::uint32_t) -> Result<std::string> { return std::string(); };
  const auto process = CoordinatorProcess::start(
                           config, listener, CoordinatorProcess::Unfinished::kRefuse, no_scaling)
                           .value();
  JobConfig own;
  own.coordinator = process->server().endpoint();
  own.token_file = process->config().token_file;
  JobFacts facts;
  facts.data = "numbers";
  facts.train_samples = 64;
  facts.program.steps = 4;
  facts.program.global_batch = 16;
  facts.program.microbatch = 4;
  for (const std::size_t bytes : {1025, 2049}) {  // 2049: the view log has no room for it either
    facts.program.equals = {{"classes", std::string(bytes, 'c')}};
    const Result<void> told = tell_facts(own, facts);
    ASSERT_FALSE(told.ok());
    EXPECT_NE(told.error().detail.find("the bytes of \"program: classes\" are"), std::string::npos)
        << told.error().detail;
  }
  facts.program.equals = {{"classes", std::string(1024, 'c')}};
  const Result<void> told = tell_facts(own, facts);
  EXPECT_TRUE(told.ok()) << told.error().detail;
}

TEST(CoordinatorProcess, NeedsNoGpuForGradientsInTheMemoryOfGpus) {
  const test_support::TemporaryFolder folder;
  JobConfig config = small_job(folder / "run");
  config.device = "cuda";
  config.backend = "nccl";
  NobodyListens listener;
  const auto no_scaling = [](std::uint32_t) -> Result<std::string> { return std::string(); };
  const auto started =
      CoordinatorProcess::start(config, listener, CoordinatorProcess::Unfinished::kRefuse,
                                no_scaling, std::nullopt, CoordinatorProcess::Facts::kMayCome);
  EXPECT_TRUE(started.ok()) << started.error().detail;
}

class CoordinatorThatDiedAtTheEnd : public ::testing::Test {
 protected:
  std::unique_ptr<CoordinatorProcess> start(CoordinatorProcess::Unfinished unfinished) {
    const auto no_scaling = [](std::uint32_t) -> Result<std::string> { return std::string(); };
    auto started = CoordinatorProcess::start(config_, listener_, unfinished, no_scaling);
    refusal_ = started.ok() ? "" : started.error().detail;
    return started.ok() ? std::move(started).value() : nullptr;
  }
  static JobEnd wait_for_end(CoordinatorProcess& process) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (monotonic_now() < deadline) {
      if (const auto end = process.recorder().news().wait(deadline)) {
        return *end;
      }
    }
    ADD_FAILURE() << "the job does not end";
    return {};
  }
  /// Lets a coordinator record the end of the job and die before it does anything else.
  void end_and_die() {
    const auto process = start(CoordinatorProcess::Unfinished::kRefuse);
    process->server().stop("enough");
    wait_for_end(*process);
  }

  test_support::TemporaryFolder folder_;
  NobodyListens listener_;
  JobConfig config_ = small_job(folder_ / "run");
  std::string refusal_;
};

TEST_F(CoordinatorThatDiedAtTheEnd, IsFollowedByOneThatDoesTheRest) {
  end_and_die();
  EXPECT_FALSE(std::filesystem::exists(summary_path(config_.run_dir)));
  {
    const auto next = start(CoordinatorProcess::Unfinished::kContinue);
    ASSERT_NE(next, nullptr) << refusal_;
    EXPECT_TRUE(next->only_ends());
    const JobEnd end = wait_for_end(*next);
    EXPECT_EQ(end.outcome, elastic::Outcome::kStopped);
    EXPECT_EQ(end.detail, "enough");
    EXPECT_EQ(next->finish(end), kExitStopped);
  }
  EXPECT_TRUE(std::filesystem::exists(summary_path(config_.run_dir)));
  EXPECT_EQ(start(CoordinatorProcess::Unfinished::kContinue), nullptr) << "now it is over";
  EXPECT_NE(refusal_.find("already holds a run"), std::string::npos) << refusal_;
}

TEST_F(CoordinatorThatDiedAtTheEnd, HadNoSummaryOfAnEarlierPart) {
  start(CoordinatorProcess::Unfinished::kRefuse).reset();  // killed before the job ends
  std::ofstream(summary_path(config_.run_dir)) << "of an earlier part";
  start(CoordinatorProcess::Unfinished::kContinue).reset();
  EXPECT_FALSE(std::filesystem::exists(summary_path(config_.run_dir)))
      << "with it the rest would not be done if that one died at the end";
}

TEST_F(CoordinatorThatDiedAtTheEnd, IsNotFollowedByOneThatStartsAJobOfItsOwn) {
  end_and_die();
  EXPECT_EQ(start(CoordinatorProcess::Unfinished::kRefuse), nullptr);
  EXPECT_NE(refusal_.find("already holds a run"), std::string::npos) << refusal_;
  EXPECT_FALSE(std::filesystem::exists(summary_path(config_.run_dir)));
}

}  // namespace
}  // namespace mayfly::engine
