// The promises of cloud_hooks/core/provider.hpp, tested for all five providers. Claims that only
// apply to clouds are in provider_contract_test.cpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/integration/cloud_net/provider_sites.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kServerId = "5f2b8a1e-0c1d-4e2f-8a3b-4c5d6e7f8091";
constexpr const char* kOtherServerId = "6f2b8a1e-0c1d-4e2f-8a3b-4c5d6e7f8092";
constexpr Duration kProviderHangBound = seconds(30);

class EveryProvider : public testing::TestWithParam<std::string> {
 protected:
  EveryProvider() : site_(make_provider_site(GetParam())), provider_(site_->provider("job-a")) {}

  [[nodiscard]] ServerRequest request(std::uint32_t count,
                                      const std::string& id = kServerId) const {
    ServerRequest wanted;
    wanted.request_id = id;
    wanted.count = count;
    wanted.offer = site_->offer();
    wanted.lifetime_max = seconds(7200);
    wanted.startup_text = "#!/bin/sh\nexec sleep 1000\n";
    return wanted;
  }

  static std::vector<ServerStatus> listed(Provider& provider) {
    Answer<std::vector<ServerStatus>> answer = provider.list();
    EXPECT_TRUE(answer.ok()) << answer.error().detail;
    return answer.ok() ? std::move(answer).value() : std::vector<ServerStatus>();
  }
  std::vector<ServerStatus> listed_alive() {
    std::vector<ServerStatus> all = listed(*provider_);
    std::erase_if(all, [](const ServerStatus& server) { return !server.alive(); });
    return all;
  }
  [[nodiscard]] ServerStatus status(const std::string& id) {
    Answer<ServerStatus> answer = provider_->status(id);
    EXPECT_TRUE(answer.ok()) << id;
    return answer.ok() ? answer.value() : ServerStatus();
  }
  /// Expects that the server ends, perhaps not at once.
  void expect_gone(const std::string& id) {
    const Instant deadline = monotonic_now() + kProviderHangBound;
    while (status(id).alive() && monotonic_now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(status(id).alive()) << id;
  }
  static std::set<std::string> ids_of(const std::vector<ServerStatus>& servers) {
    std::set<std::string> ids;
    for (const ServerStatus& server : servers) {
      ids.insert(server.id);
    }
    return ids;
  }

  std::unique_ptr<ProviderSite> site_;
  std::unique_ptr<Provider> provider_;
};

TEST_P(EveryProvider, MakesWhatIsAskedForAndListsIt) {
  const RequestOutcome outcome = provider_->request(request(2));
  ASSERT_FALSE(outcome.error) << outcome.error->detail;
  ASSERT_EQ(ids_of(outcome.servers).size(), 2u);
  EXPECT_EQ(site_->alive(), 2u);
  EXPECT_EQ(ids_of(listed_alive()), ids_of(outcome.servers));
  for (const ServerStatus& server : listed_alive()) {
    EXPECT_EQ(server.request_id, kServerId);
    EXPECT_EQ(server.offer, site_->offer());
    EXPECT_LE(server.id.size(), 128u);
    EXPECT_EQ(server.uptime.has_value(), site_->knows_uptime());
    EXPECT_EQ(status(server.id).id, server.id);
    EXPECT_TRUE(status(server.id).alive());
  }
}

TEST_P(EveryProvider, TheSameRequestIsTheSameServersHoweverOftenItIsSent) {
  const RequestOutcome first = provider_->request(request(2));
  const RequestOutcome again = provider_->request(request(2));
  ASSERT_FALSE(again.error) << again.error->detail;
  EXPECT_EQ(ids_of(again.servers), ids_of(first.servers));
  EXPECT_EQ(site_->alive(), 2u);
  ASSERT_FALSE(provider_->request(request(1, kOtherServerId)).error);
  EXPECT_EQ(site_->alive(), 3u) << "another id is another request";
}

TEST_P(EveryProvider, ALostAnswerIsRateAndTheSameRequestFindsItsServers) {
  if (!site_->lose_next_answer()) {
    GTEST_SKIP() << "no answer can be lost";
  }
  const RequestOutcome lost = provider_->request(request(1));
  ASSERT_TRUE(lost.error);
  EXPECT_EQ(lost.error->kind, ProviderErrorKind::kRate) << lost.error->detail;
  const RequestOutcome again = provider_->request(request(1));
  ASSERT_FALSE(again.error) << again.error->detail;
  EXPECT_EQ(again.servers.size(), 1u);
  EXPECT_EQ(site_->alive(), 1u) << "nothing is paid for twice";
}

TEST_P(EveryProvider, AnotherProcessOfTheJobFindsWhatItsPredecessorLeft) {
  if (!provider_->capabilities().survives_us) {
    GTEST_SKIP() << "servers end with the process that asked for them";
  }
  const RequestOutcome outcome = provider_->request(request(2));
  provider_ = site_->provider("job-a");
  EXPECT_EQ(ids_of(listed_alive()), ids_of(outcome.servers));
}

TEST_P(EveryProvider, ReleaseEndsAServerAndForgivesTheGoneAndTheUnknown) {
  const RequestOutcome outcome = provider_->request(request(2));
  ASSERT_EQ(outcome.servers.size(), 2u);
  const std::string id = outcome.servers.front().id;
  EXPECT_FALSE(provider_->release(id));
  expect_gone(id);
  EXPECT_EQ(site_->alive(), 1u);
  EXPECT_FALSE(provider_->release(id)) << "again";
  EXPECT_FALSE(provider_->release("4711"));
  EXPECT_FALSE(status("4711").alive());
  EXPECT_EQ(site_->alive(), 1u) << "nobody else's server has ended";
}

TEST_P(EveryProvider, AServerThatVanishesIsGoneForGood) {
  const RequestOutcome outcome = provider_->request(request(1));
  ASSERT_EQ(outcome.servers.size(), 1u);
  const std::string id = outcome.servers.front().id;
  site_->vanish(id);
  expect_gone(id);
  EXPECT_TRUE(listed_alive().empty());
}

TEST_P(EveryProvider, SeesNoOtherJobsServers) {
  const std::unique_ptr<Provider> other = site_->provider("job-b");
  ASSERT_FALSE(other->request(request(1, kOtherServerId)).error);
  EXPECT_TRUE(listed_alive().empty());
  EXPECT_EQ(listed(*other).size(), 1u);
}

TEST_P(EveryProvider, ARefusalIsOneOfTheFiveKindsAndLeavesNothing) {
  char digit = '0';  // a part of the request's id, so that each request has another one
  for (const ProviderErrorKind kind :
       {ProviderErrorKind::kCapacity, ProviderErrorKind::kQuota, ProviderErrorKind::kAuth,
        ProviderErrorKind::kRate, ProviderErrorKind::kConfig}) {
    if (!site_->refuse(kind)) {
      GTEST_SKIP() << "nobody refuses";
    }
    std::string id = kServerId;
    id.back() = digit++;
    const RequestOutcome outcome = provider_->request(request(1, id));
    ASSERT_TRUE(outcome.error) << to_string(kind);
    EXPECT_EQ(outcome.error->kind, kind) << outcome.error->detail;
    EXPECT_FALSE(outcome.error->detail.empty());
    EXPECT_TRUE(outcome.servers.empty());
    EXPECT_EQ(site_->alive(), 0u) << to_string(kind);
  }
}

TEST_P(EveryProvider, PreviewsAndExaminesWithoutMakingAnything) {
  EXPECT_FALSE(provider_->preview(request(1)).empty());
  const std::vector<Finding> findings = provider_->examine();
  EXPECT_FALSE(findings.empty());
  for (const Finding& finding : findings) {
    EXPECT_TRUE(finding.ok) << finding.text;
  }
  EXPECT_GE(provider_->capabilities().count_max, 1u);
  EXPECT_EQ(site_->alive(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Providers, EveryProvider, testing::ValuesIn(provider_site_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace mayfly::cloud_hooks
