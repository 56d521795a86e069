// The end of a coordinator while an operator still asks it.

#include "engine/processes/coordinator_process.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <latch>
#include <thread>

#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/sockets.hpp"
#include "engine/processes/exit_codes.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using elastic::Command;
using elastic::CommandReply;

class NobodyListens final : public RunListener {
 public:
  void on_step(const StepMetric& /*metric*/, std::uint64_t /*total_steps*/) override {}
  void on_event(const std::string& /*line*/) override {}
  void on_summary(const Summary& /*summary*/) override {}
};

JobConfig small_job(const std::string& run_dir) {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 4;
  config.run_dir = run_dir;
  return config;
}

/// Asks both at once, so that the coordinator reads them at once, and returns the second answer.
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

TEST(CoordinatorProcess, AnswersWhatItHasReadWhenItEnds) {
  const testing::TemporaryFolder folder;
  NobodyListens listener;
  std::latch is_asked(1);
  std::latch ends(1);
  const auto process =
      CoordinatorProcess::start(small_job(folder / "run"), listener,
                                CoordinatorProcess::Unfinished::kRefuse,
                                [&](std::uint32_t) -> Result<std::string> {
                                  is_asked.count_down();
                                  ends.wait();
                                  // The end has begun after that, as a rule; it is right anyway.
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

}  // namespace
}  // namespace mayfly::engine
