// Which events of a job the cloud of its coordinator reacts to.

#include "engine/cloud/cloud.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/unit/engine/nobody_listens.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using test_support::NobodyListens;
using test_support::TemporaryFolder;

/// A coordinator that needs one worker, and a provider without servers that records its requests.
class CloudTest : public ::testing::Test {
 protected:
  CloudTest() {
    std::ofstream(folder_ / "provider.sh")
        << "cat >>" << asked_ << "; echo >>" << asked_ << "; echo '{\"servers\":[]}'\n";
    config_.data = "procedural:64";
    config_.global_batch = 16;
    config_.microbatch = 4;
    config_.steps = 4;
    config_.workers = 1;
    config_.run_dir = folder_ / "run";
    config_.cloud_provider = "exec";
    config_.cloud_command = "sh " + (folder_ / "provider.sh");
    config_.cloud_offers = "x@a:spot=0.1";
  }

  void start(CoordinatorProcess::Unfinished unfinished = CoordinatorProcess::Unfinished::kRefuse) {
    process_ = CoordinatorProcess::start(config_, listener_, unfinished, no_scaling).value();
  }
  void stop() {
    process_->server().stop("enough");
    wait_until([&] { return process_->recorder().news().end().has_value(); });
  }

  static Result<std::string> no_scaling(std::uint32_t /*count*/) { return std::string(); }

  /// Connects a worker that sends nothing after its Hello.
  UniqueFd join() {
    elastic::Hello hello;
    hello.role = elastic::Role::kWorker;
    hello.fingerprint = process_->job().fingerprint;
    const Bytes token = elastic::read_token_file(process_->config().token_file).value();
    return elastic::open_session(process_->server().endpoint(), token, hello,
                                 monotonic_now() + seconds(60))
        .value()
        .fd;
  }
  [[nodiscard]] std::string asked() const {
    std::ifstream file(asked_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  template <typename Condition>
  static void wait_until(const Condition& holds) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (!holds() && monotonic_now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(holds());
  }
  void wait_for_members(std::size_t count) {
    wait_until([&] { return process_->server().status().members.size() == count; });
  }

  TemporaryFolder folder_;
  std::string asked_ = folder_ / "asked";
  NobodyListens listener_;
  JobConfig config_;
  std::unique_ptr<CoordinatorProcess> process_;
};

TEST_F(CloudTest, RefusesArgumentsThatAreNoWords) {
  config_.cloud_provider = "local";
  config_.cloud_command = config_.cloud_offers = "";
  config_.cloud_worker_args = "--data 'images of a";
  start();
  const Result<std::unique_ptr<Cloud>> cloud = Cloud::start(*process_);
  ASSERT_FALSE(cloud.ok()) << "workers would start without these arguments";
  EXPECT_EQ(cloud.error().detail, "cloud_worker_args: a quote is not closed");
}

TEST_F(CloudTest, ReplacesAWorkerThatIsLost) {
  start();
  UniqueFd worker = join();
  wait_for_members(1);
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  wait_until([&] { return asked().find("\"list\"") != std::string::npos; });
  EXPECT_EQ(asked().find("\"request\""), std::string::npos);
  worker.reset();
  wait_for_members(0);
  cloud->look();
  wait_until([&] { return asked().find("\"request\"") != std::string::npos; });
}

TEST_F(CloudTest, ReplacesNobodyWhoGoesBecauseTheJobHasEnded) {
  start();
  UniqueFd worker = join();
  wait_for_members(1);
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  wait_until([&] { return asked().find("\"list\"") != std::string::npos; });
  stop();
  worker.reset();
  wait_for_members(0);
  cloud->look();  // as if its thread had not run since the job ended
  // Ten times as long as the policy waits for further losses.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(asked().find("\"request\""), std::string::npos) << asked();
}

TEST_F(CloudTest, EndsAJobForWhichNoWorkerCanComeWhenTheLastServerIsGone) {
  start();
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  cloud_hooks::CloudFact fact;
  fact.kind = "no_server_starts";
  fact.detail = "three failed";
  fact.all = cloud_hooks::PolicyStatus{};
  cloud->on_fact(fact);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(process_->recorder().news().end().has_value()) << "a server is there";
  fact.kind = "server_ended";
  fact.all->no_worker_comes = true;
  cloud->on_fact(fact);
  wait_until([&] { return process_->recorder().news().end().has_value(); });
  EXPECT_EQ(process_->recorder().news().end()->outcome, elastic::Outcome::kFailed);
}

TEST_F(CloudTest, EndsAJobWhoseProviderRefusesToListItsServers) {
  std::ofstream(folder_ / "provider.sh")
      << R"(echo '{"error":{"kind":"config","detail":"no controller"}}')";
  start();
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  wait_until([&] { return process_->recorder().news().end().has_value(); });
  const auto end = *process_->recorder().news().end();
  EXPECT_EQ(end.outcome, elastic::Outcome::kFailed);
  EXPECT_NE(end.detail.find("no controller"), std::string::npos) << end.detail;
}

TEST_F(CloudTest, EndsSuchAJobAlsoWithoutAnEventAfterTheReason) {
  std::ofstream(folder_ / "provider.sh") << R"(case $(cat) in
        *'"op":"request"'*) echo '{"error":{"kind":"config","detail":"no such type"}}' ;;
        *) echo '{"servers":[]}' ;;
      esac)";
  start();
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  wait_until([&] {
    std::ifstream file(folder_ / "run/events.jsonl");
    const std::string events{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
    return events.find("offers_exhausted") != std::string::npos;
  });
  cloud_hooks::CloudFact fact;  // the last fact that the driver reports
  fact.kind = "no_server_starts";
  fact.detail = "three failed";
  cloud->on_fact(fact);
  EXPECT_FALSE(process_->recorder().news().end().has_value());
  wait_until([&] {
    cloud->look();
    return process_->recorder().news().end().has_value();
  });
  EXPECT_EQ(process_->recorder().news().end()->outcome, elastic::Outcome::kFailed);
}

TEST_F(CloudTest, AsksNothingMoreOfItsProviderWhenItHasFinished) {
  start();
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  stop();
  cloud->close();
  cloud->finish();
  const Result<std::string> scaled = cloud->scale(1);
  ASSERT_FALSE(scaled.ok()) << "its driver would go on after the server of the coordinator";
  EXPECT_EQ(scaled.error().code, Errc::kRefused);
}

TEST_F(CloudTest, LeavesTheServersOfAStoppedJobAloneIfAnotherCoordinatorMayLeadIt) {
  config_.quorum = true;
  config_.cloud_coordinators = "127.0.0.1:1,127.0.0.1:2";
  config_.cloud_job = "together";
  start();
  stop();
  process_.reset();  // killed after it has recorded the end
  start(CoordinatorProcess::Unfinished::kContinue);
  ASSERT_TRUE(process_->only_ends());
  const std::unique_ptr<Cloud> cloud = Cloud::start(*process_).value();
  wait_until([&] { return process_->recorder().news().end().has_value(); });
  cloud->close();
  cloud->finish();
  EXPECT_EQ(asked(), "") << "nobody was asked what there is, nor to release it";
}

}  // namespace
}  // namespace mayfly::engine
