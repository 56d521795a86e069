#include "cloud_hooks/provider_driver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::chrono::seconds kDriverHangBound{60};

/// Shared by the provider and the listener of a test. Counts their calls, and holds the calls that
/// the test names.
class Scene {
 public:
  void hold(const std::string& what) {
    const std::lock_guard lock(mutex_);
    held_.insert(what);
  }
  void let_go(const std::string& what) {
    const std::lock_guard lock(mutex_);
    held_.erase(what);
    changed_.notify_all();
  }
  /// Called in each call of the provider or listener. Returns when `what` is not held.
  void pass(const std::string& what) {
    std::unique_lock lock(mutex_);
    ++begun_[what];
    changed_.notify_all();
    changed_.wait_for(lock, kDriverHangBound, [&] { return !held_.contains(what); });
    ++done_[what];
    changed_.notify_all();
  }
  /// Waits until so many of these calls have begun, else fails the test.
  void expect(const std::string& what, int times) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kDriverHangBound, [&] { return begun_[what] >= times; }))
        << what;
  }
  int done(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return done_[what];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_;
  std::map<std::string, int> begun_;
  std::map<std::string, int> done_;
};

/// Grants all requests, with servers s1, s2, ...
class Granting final : public Provider {
 public:
  explicit Granting(Scene& scene) : scene_(scene) {}

  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      for (std::uint32_t i = 0; i < request.count; ++i) {
        servers_.push_back(
            test_support::PolicyHarness::server("s" + std::to_string(++made_), request));
        outcome.servers.push_back(servers_.back());
      }
      number = ++requests_;
    }
    scene_.pass("request " + std::to_string(number));
    return outcome;
  }
  std::optional<ProviderError> release(const std::string& id) override {
    std::this_thread::sleep_for(release_takes);
    scene_.pass("release");
    const std::lock_guard lock(mutex_);
    for (ServerStatus& server : servers_) {
      server.state = server.id == id ? ServerState::kGone : server.state;
    }
    return std::nullopt;
  }
  Answer<ServerStatus> status(const std::string& id) override {
    const std::lock_guard lock(mutex_);
    return status_in(servers_, id);
  }
  Answer<std::vector<ServerStatus>> list() override {
    const std::lock_guard lock(mutex_);
    return servers_;
  }
  [[nodiscard]] Capabilities capabilities() const override { return {}; }
  [[nodiscard]] std::string preview(const ServerRequest&) const override { return ""; }
  std::vector<Finding> examine() override { return {}; }

  Duration release_takes{};  // to be set before the driver begins

 private:
  Scene& scene_;
  std::mutex mutex_;
  std::vector<ServerStatus> servers_;  // guarded by mutex_, like the members below
  int made_ = 0;
  int requests_ = 0;
};

class Listener final : public DriverListener {
 public:
  explicit Listener(Scene& scene) : scene_(scene) {}

  void on_fact(const CloudFact& fact) override {
    {
      const std::lock_guard lock(mutex_);
      facts_.push_back(fact);
    }
    scene_.pass(fact.kind);
  }
  void remember(const PolicyStatus& status) override {
    scene_.pass("remember");
    scene_.pass("target " + std::to_string(status.target));
  }
  void drain(MemberId) override {}
  void stop_job(const std::string&) override {}
  std::vector<CloudFact> facts() {
    const std::lock_guard lock(mutex_);
    return facts_;
  }

 private:
  Scene& scene_;
  std::mutex mutex_;
  std::vector<CloudFact> facts_;  // guarded by mutex_
};

/// A job that wants two servers. Requests 1 and 2 are for them.
class Driven : public ::testing::Test {
 protected:
  static ReplacementOptions options() {
    ReplacementOptions options = test_support::two_zones();
    options.provider.count_max = 1;
    options.rate_wait = milliseconds(10);  // then a list is requested, which shows ended servers
    return options;
  }
  static std::vector<WorkerSeen> workers(int count) {
    std::vector<WorkerSeen> seen;
    for (int i = 1; i <= count; ++i) {
      seen.push_back({MemberId{static_cast<std::uint64_t>(i)}, "s" + std::to_string(i)});
    }
    return seen;
  }
  void start(std::size_t request_threads) {
    DriverProviders lanes{{}, {&provider_}, provider_};
    lanes.requests.assign(request_threads, &provider_);
    driver_ = std::make_unique<ProviderDriver>(options(), lanes, listener_);
  }

  Scene scene_;
  Granting provider_{scene_};
  Listener listener_{scene_};
  std::unique_ptr<ProviderDriver> driver_;  // destroyed before the members that it uses
};

TEST_F(Driven, ARequestThatHangsKeepsNoOtherWaiting) {
  scene_.hold("request 1");
  start(2);
  scene_.expect("request 1", 1);
  scene_.expect("server_granted", 1);
  driver_->workers({{MemberId{1}, "s2"}}, monotonic_now());
  scene_.expect("server_joined", 1);
  driver_->workers({}, monotonic_now());
  scene_.expect("request 3", 1);
  EXPECT_EQ(scene_.done("request 1"), 0);
  scene_.let_go("request 1");
}

TEST_F(Driven, WhatIsGrantedAfterTheEndIsReleasedAndNothingElseIsAskedFor) {
  scene_.hold("request 1");
  start(1);
  scene_.expect("request 1", 1);
  std::thread letting_go([&] {
    std::this_thread::sleep_for(milliseconds(600));
    scene_.let_go("request 1");
  });
  EXPECT_TRUE(driver_->finish(milliseconds(300))) << "waits for the answer, however long it takes";
  letting_go.join();
  EXPECT_GE(scene_.done("release"), 1);
  EXPECT_EQ(scene_.done("request 2"), 0);
  EXPECT_EQ(scene_.done("server_requested"), 1);
}

// Some providers answer a release only when the server has ended.
TEST_F(Driven, EveryServerIsToldToGoHoweverLongTheOthersTake) {
  provider_.release_takes = milliseconds(600);
  start(1);
  scene_.expect("server_granted", 2);
  driver_->workers(workers(2), monotonic_now());
  scene_.expect("server_joined", 2);
  (void)driver_->finish(milliseconds(300));
  driver_.reset();
  EXPECT_EQ(scene_.done("release"), 2);
}

TEST_F(Driven, ADiskThatHangsDelaysNoRequest) {
  start(1);
  scene_.expect("server_granted", 2);
  driver_->workers(workers(2), monotonic_now());
  scene_.expect("server_joined", 2);
  scene_.hold("server_lost");
  scene_.hold("remember");
  driver_->workers(workers(1), monotonic_now());
  scene_.expect("request 3", 1);
  EXPECT_EQ(scene_.done("server_lost"), 0);
  scene_.let_go("server_lost");
  scene_.let_go("remember");
}

TEST_F(Driven, ARequestTellsHowLongItTookSinceTheLossWasHeardOf) {
  start(1);
  scene_.expect("server_granted", 2);
  driver_->workers(workers(2), monotonic_now());
  scene_.expect("server_joined", 2);
  const Instant heard = monotonic_now();
  driver_->workers(workers(1), heard);
  scene_.expect("server_requested", 3);
  const double until_now = to_ms(monotonic_now() - heard);
  const std::vector<CloudFact> facts = listener_.facts();
  const auto request = std::find_if(facts.rbegin(), facts.rend(), [](const CloudFact& fact) {
    return fact.kind == "server_requested";
  });
  ASSERT_NE(request, facts.rend());
  ASSERT_TRUE(request->ms && request->decided_ms);
  EXPECT_GE(*request->decided_ms, to_ms(options().gather));
  EXPECT_GE(*request->ms, *request->decided_ms);
  EXPECT_LE(*request->ms, until_now);
}

TEST_F(Driven, AnotherTargetIsRememberedByTheThreadThatWrites) {
  start(2);
  scene_.expect("server_granted", 2);
  driver_->workers(workers(2), monotonic_now());
  scene_.expect("server_joined", 2);
  driver_->close();  // from now on the listener gets no other events
  scene_.hold("target 1");
  driver_->scale(1);
  scene_.expect("target 1", 1);
  EXPECT_EQ(driver_->status().target, 1u) << "while the disk takes its time";
  scene_.let_go("target 1");
}

TEST_F(Driven, WhenTheJobEndsAllIsReleasedAndTold) {
  start(1);
  scene_.expect("server_granted", 2);
  EXPECT_TRUE(driver_->finish(kDriverHangBound));
  EXPECT_EQ(scene_.done("release"), 2);
  EXPECT_EQ(scene_.done("server_ended"), 2);
  EXPECT_GE(scene_.done("remember"), 1);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
