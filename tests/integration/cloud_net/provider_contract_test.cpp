// The promises that the provider of each cloud must keep, tested on the fake cloud, beyond those of
// all providers (every_provider_test.cpp).

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "tests/integration/cloud_net/fake_cloud.hpp"
#include "tests/integration/cloud_net/sites.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kId = "5f2b8a1e-0c1d-4e2f-8a3b-4c5d6e7f8091";
constexpr const char* kOtherId = "6f2b8a1e-0c1d-4e2f-8a3b-4c5d6e7f8092";

class ProviderContract : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    cloud_.reset();
    provider_ = site_.provider({});
  }

  ServerRequest request(std::uint32_t count, const std::string& id = kId) const {
    ServerRequest wanted;
    wanted.request_id = id;
    wanted.count = count;
    wanted.offer = {site_.machine_type, "zone-b", Market::kSpot};
    wanted.lifetime_max = seconds(7200);
    wanted.startup_text = "#!/bin/sh\necho started\n";
    return wanted;
  }

  void fault(const std::string& operation, const std::string& rest, int times = 1) {
    cloud_.control("fault", R"({"service": ")" + site_.name + R"(", "operation": ")" + operation +
                                R"(", "times": )" + std::to_string(times) + ", " + rest + "}");
  }

  /// The machines of the cloud that still exist.
  std::vector<boost::json::object> machines() {
    std::vector<boost::json::object> alive;
    const boost::json::value all = boost::json::parse(cloud_.control("machines"));
    for (const boost::json::value& machine : all.as_array()) {
      if (machine.as_object().at("state") != "gone") {
        alive.push_back(machine.as_object());
      }
    }
    return alive;
  }

  std::optional<ProviderErrorKind> error_of_list() {
    const Answer<std::vector<ServerStatus>> answer = provider_->list();
    return answer.ok() ? std::nullopt : std::optional(checked(answer.error()).kind);
  }

  std::vector<ServerStatus> listed() {
    Answer<std::vector<ServerStatus>> answer = provider_->list();
    EXPECT_TRUE(answer.ok()) << answer.error().detail;
    return answer.ok() ? std::move(answer).value() : std::vector<ServerStatus>();
  }

  /// Expects that the error is readable and contains no secret; returns it.
  const ProviderError& checked(const ProviderError& error) {
    EXPECT_FALSE(error.detail.empty());
    expect_no_secret(error.detail);
    return error;
  }

  void expect_no_secret(const std::string& text) {
    for (const std::string& secret : site_.secrets) {
      EXPECT_EQ(text.find(secret), std::string::npos) << text;
    }
  }

  FakeCloud& cloud_ = FakeCloud::get();
  const Site& site_ = sites()[GetParam()];
  std::unique_ptr<Provider> provider_;
};

TEST_P(ProviderContract, TheCloudGetsMarketLabelsLifetimeAndStartupText) {
  ServerRequest on_demand = request(1);
  on_demand.offer.market = Market::kOnDemand;
  on_demand.labels = {{"team", "vision"}};
  ASSERT_FALSE(provider_->request(on_demand).error.has_value());
  ASSERT_EQ(machines().size(), 1U);
  const boost::json::object machine = machines().front();
  EXPECT_EQ(machine.at("market"), "on_demand");
  EXPECT_EQ(machine.at("labels").at("mayfly-job"), "job-a");
  EXPECT_EQ(machine.at("labels").at("mayfly-request"), kId);
  EXPECT_EQ(machine.at("labels").at("team"), "vision");
  const std::string startup(machine.at("startup").as_string());
  if (site_.name == "gce") {
    EXPECT_EQ(startup, on_demand.startup_text);
    EXPECT_EQ(machine.at("spec").at("scheduling").at("maxRunDuration").at("seconds"), "7200");
    EXPECT_EQ(machine.at("spec").at("scheduling").at("instanceTerminationAction"), "DELETE");
  } else {
    EXPECT_NE(startup.find("shutdown -P +120\n"), std::string::npos) << startup;
  }
}

TEST_P(ProviderContract, ALostAnswerIsNotPaidForTwice) {
  for (const char* kind : {"lose", "close", "truncate", "garbage"}) {
    cloud_.reset();
    provider_ = site_.provider({});
    fault(site_.make, std::string(R"("kind": ")") + kind + "\"");
    RequestOutcome outcome = provider_->request(request(1));
    if (outcome.error) {
      EXPECT_EQ(checked(*outcome.error).kind, ProviderErrorKind::kRate) << kind;
      outcome = provider_->request(request(1));
    }
    ASSERT_FALSE(outcome.error.has_value()) << kind << ": " << outcome.error->detail;
    EXPECT_EQ(outcome.servers.size(), 1U) << kind;
    EXPECT_EQ(machines().size(), 1U) << kind;
  }
}

TEST_P(ProviderContract, EverythingLostIsAnErrorAfterWhichTheSameRequestFindsItsServer) {
  fault(site_.make, R"("kind": "lose")", 50);
  const RequestOutcome lost = provider_->request(request(1));
  ASSERT_TRUE(lost.error.has_value());
  EXPECT_EQ(checked(*lost.error).kind, ProviderErrorKind::kRate);
  EXPECT_LE(cloud_.requests(site_.name, site_.make), 3) << "retries are bounded";
  cloud_.control("clear_faults");
  provider_ = site_.provider({});  // as after a restart
  EXPECT_EQ(listed().size(), 1U) << "reconciliation finds it";
  EXPECT_EQ(machines().size(), 1U);
}

TEST_P(ProviderContract, NamesThatNoServerHasAreForgiven) {
  for (const char* unknown : {"i-00ff00ff00ff00ff0", "zone-a/nobody", "", "../../x", "a b\r\nc"}) {
    const std::optional<ProviderError> error = provider_->release(unknown);
    EXPECT_FALSE(error.has_value()) << unknown << ": " << error->detail;
    const Answer<ServerStatus> status = provider_->status(unknown);
    ASSERT_TRUE(status.ok()) << unknown;
    EXPECT_EQ(status.value().state, ServerState::kGone);
  }
}

TEST_P(ProviderContract, ListsItsOwnJobOnlyAndAllOfIt) {
  SiteOptions other;
  other.job = "job-b";
  ASSERT_FALSE(site_.provider(other)->request(request(2, kOtherId)).error.has_value());
  ASSERT_FALSE(provider_->request(request(5)).error.has_value());
  cloud_.control("set", R"({"page_size": 2})");
  std::set<std::string> ids;
  for (const ServerStatus& server : listed()) {
    EXPECT_EQ(server.request_id, kId);
    ids.insert(server.id);
  }
  EXPECT_EQ(ids.size(), 5U);
}

TEST_P(ProviderContract, AStockOutNamesTheZonesThatHaveSomeAndLeavesNothing) {
  fault(site_.make, R"("kind": "stock_out", "zones_available": ["zone-a", "zone-c"])");
  const RequestOutcome outcome = provider_->request(request(1));
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(checked(*outcome.error).kind, ProviderErrorKind::kCapacity) << outcome.error->detail;
  EXPECT_EQ(outcome.error->zones_available, (std::vector<std::string>{"zone-a", "zone-c"}));
  EXPECT_TRUE(outcome.servers.empty());
  EXPECT_TRUE(machines().empty());
  EXPECT_EQ(cloud_.requests(site_.name, site_.make), 1) << "asking again at once is no use";
}

TEST_P(ProviderContract, PartOfARequestIsBetterThanNothing) {
  if (site_.name == "gce") {
    fault("insert", R"("kind": "stock_out", "after": 2)");
  } else {
    cloud_.control("set", R"({"stock": 2})");
  }
  const RequestOutcome outcome = provider_->request(request(3));
  EXPECT_EQ(outcome.servers.size(), 2U);
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(checked(*outcome.error).kind, ProviderErrorKind::kCapacity);
  EXPECT_EQ(machines().size(), 2U);
}

TEST_P(ProviderContract, AQuotaForFewerThanAreAskedForRefusesAll) {
  if (site_.name != "ec2") {
    GTEST_SKIP() << "each server is asked for by itself";
  }
  cloud_.control("set", R"({"server_quota": 2})");
  const RequestOutcome outcome = provider_->request(request(3));
  EXPECT_TRUE(outcome.servers.empty());
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(checked(*outcome.error).kind, ProviderErrorKind::kQuota);
  ServerRequest fewer = request(2);
  fewer.request_id.back() = fewer.request_id.back() == '0' ? '1' : '0';
  EXPECT_EQ(provider_->request(fewer).servers.size(), 2U);
}

TEST_P(ProviderContract, ErrorsComeInTheirKinds) {
  for (const auto& [fault_text, kind] :
       {std::pair{R"("kind": "quota")", ProviderErrorKind::kQuota},
        {R"("kind": "quota_now")", ProviderErrorKind::kQuota},
        {R"("kind": "throttle")", ProviderErrorKind::kRate},
        {R"("kind": "forbidden")", ProviderErrorKind::kAuth},
        {R"("kind": "status", "status": 400, "code": "InvalidParameterValue")",
         ProviderErrorKind::kConfig},
        {R"("kind": "status", "status": 404, "code": "InvalidAMIID.NotFound")",
         ProviderErrorKind::kConfig},
        {R"("kind": "status", "status": 500)", ProviderErrorKind::kRate},
        {R"("kind": "status", "status": 503)", ProviderErrorKind::kRate},
        {R"("kind": "redirect")", ProviderErrorKind::kConfig}}) {
    cloud_.reset();
    fault(site_.make, fault_text, 9);
    const RequestOutcome outcome = provider_->request(request(1));
    ASSERT_TRUE(outcome.error.has_value()) << fault_text;
    EXPECT_EQ(checked(*outcome.error).kind, kind) << fault_text << ": " << outcome.error->detail;
    EXPECT_TRUE(machines().empty()) << fault_text;
  }
  EXPECT_EQ(cloud_.requests("trap", "*"), 0) << "redirects are not followed";
}

TEST_P(ProviderContract, WrongWordsAreConfigurationErrors) {
  for (const Offer& offer :
       {Offer{"no-such-type", "zone-b", Market::kSpot},
        Offer{site_.machine_type, "no-zone", Market::kSpot}, Offer{"", "zone-b", Market::kSpot}}) {
    ServerRequest wrong = request(1);
    wrong.offer = offer;
    const RequestOutcome outcome = provider_->request(wrong);
    ASSERT_TRUE(outcome.error.has_value()) << to_string(offer);
    EXPECT_EQ(checked(*outcome.error).kind, ProviderErrorKind::kConfig) << outcome.error->detail;
  }
}

TEST_P(ProviderContract, ABrokenAnswerAnywhereIsAnErrorAndNothingWorse) {
  SiteOptions hurried;
  hurried.answer_max = milliseconds(150);
  for (const char* kind : {"hang", "close", "garbage", "truncate", "huge", "redirect", "not_http",
                           "drip", "headers"}) {
    cloud_.reset();
    provider_ = site_.provider(hurried);
    const std::string rule = std::string(R"("kind": ")") + kind + "\"";
    fault("*", rule, 1000);
    const RequestOutcome outcome = provider_->request(request(1));
    ASSERT_TRUE(outcome.error.has_value()) << kind;
    checked(*outcome.error);
    EXPECT_TRUE(error_of_list().has_value()) << kind;
    const std::string id = site_.name == "gce" ? "zone-b/somebody" : "i-0123456789abcdef0";
    EXPECT_TRUE(!provider_->status(id).ok()) << kind;
    const std::optional<ProviderError> released = provider_->release(id);
    // The body of a 200 for a release need not be readable.
    EXPECT_EQ(released.has_value(), std::string(kind) != "garbage") << kind;
    EXPECT_EQ(cloud_.requests("trap", "*"), 0) << kind;
    EXPECT_TRUE(machines().empty()) << kind;
  }
}

TEST_P(ProviderContract, BrokenCredentialServersAreErrorsOfAKind) {
  SiteOptions hurried;
  hurried.answer_max = milliseconds(150);
  for (const char* rule :
       {R"("kind": "hang")", R"("kind": "garbage")", R"("kind": "huge")",
        R"("kind": "status", "status": 404)", R"("kind": "status", "status": 500)"}) {
    cloud_.reset();
    provider_ = site_.provider(hurried);
    cloud_.control("fault", std::string(R"({"service": "metadata", "times": 1000, )") + rule + "}");
    const RequestOutcome outcome = provider_->request(request(1));
    ASSERT_TRUE(outcome.error.has_value()) << rule;
    const ProviderErrorKind kind = checked(*outcome.error).kind;
    EXPECT_TRUE(kind == ProviderErrorKind::kAuth || kind == ProviderErrorKind::kRate) << rule;
    EXPECT_EQ(cloud_.requests(site_.name, "*"), 0) << "nothing is sent without credentials";
  }
}

TEST_P(ProviderContract, WorksWithCredentialsOfItsOwnWithoutAMetadataServer) {
  SiteOptions own;
  own.own_credentials = true;
  provider_ = site_.provider(own);
  const RequestOutcome outcome = provider_->request(request(1));
  ASSERT_FALSE(outcome.error.has_value()) << outcome.error->detail;
  EXPECT_EQ(cloud_.requests("metadata", "*"), 0);
}

TEST_P(ProviderContract, CredentialsAreAskedForOnceAndAnewWhenTheyEnd) {
  listed();
  listed();
  EXPECT_EQ(cloud_.requests("metadata", site_.credentials), site_.name == "gce" ? 1 : 2);
  cloud_.control("revoke_tokens");
  listed();
  cloud_.control("set", R"({"token_lifetime": 0, "role_lifetime": 0})");
  provider_ = site_.provider({});
  const int before = cloud_.requests("metadata", site_.credentials);
  error_of_list();
  error_of_list();
  EXPECT_GE(cloud_.requests("metadata", site_.credentials), before + 2);
}

TEST_P(ProviderContract, AClockThatIsOffIsNotTheEnd) {
  SiteOptions own;
  own.own_credentials = true;
  provider_ = site_.provider(own);
  for (const char* offset : {"7200", "-90000"}) {
    cloud_.control("set", std::string(R"({"clock_offset": )") + offset + "}");
    EXPECT_EQ(listed().size(), 0U) << offset;
    cloud_.control("revoke_tokens");
  }
}

TEST_P(ProviderContract, PreviewShowsTheRequestAndExamineChangesNothing) {
  const std::string preview = provider_->preview(request(1));
  EXPECT_NE(preview.find(site_.machine_type), std::string::npos) << preview;
  EXPECT_NE(preview.find("job-a"), std::string::npos) << preview;
  EXPECT_EQ(cloud_.requests(site_.name, "*"), 0) << "asks nobody";
  for (const Finding& finding : provider_->examine()) {
    EXPECT_TRUE(finding.ok) << finding.text;
    expect_no_secret(finding.text);
  }
  EXPECT_TRUE(machines().empty());
  fault("*", R"("kind": "forbidden")", 50);
  const std::vector<Finding> findings = provider_->examine();
  EXPECT_TRUE(
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return !f.ok; }));
}

TEST_P(ProviderContract, AServerThatTheCloudDoesNotKnowYetIsNotGone) {
  if (site_.name != "ec2") {
    GTEST_SKIP() << "Compute Engine knows what it has inserted";
  }
  cloud_.control("set", R"({"unknown_yet": true})");
  const RequestOutcome outcome = provider_->request(request(1));
  ASSERT_EQ(outcome.servers.size(), 1U);
  const std::string id = outcome.servers.front().id;
  ASSERT_EQ(listed().size(), 1U) << "or a second one would be asked for";
  EXPECT_EQ(listed().front().id, id);
  EXPECT_TRUE(provider_->status(id).value().alive());
  EXPECT_TRUE(provider_->release(id).has_value()) << "or nobody would ever end it";
  cloud_.control("set", R"({"unknown_yet": false})");
  EXPECT_FALSE(provider_->release(id).has_value());
  EXPECT_TRUE(machines().empty());
}

INSTANTIATE_TEST_SUITE_P(Clouds, ProviderContract, testing::Range<std::size_t>(0, sites().size()),
                         [](const auto& instance) { return sites()[instance.param].name; });

}  // namespace
}  // namespace mayfly::cloud_hooks
