#include "cloud_hooks/gce/gce_messages.hpp"

#include <gtest/gtest.h>
#include <boost/json.hpp>
#include <map>
#include <memory>
#include <set>

#include "cloud_hooks/gce/gce_provider.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kId = "5f2b8a1e-0c1d-4e2f-8a3b-4c5d6e7f8091";

GceOptions options() {
  GceOptions gce;
  gce.job = "job";
  gce.project = "project";
  return gce;
}

ServerRequest request(const std::string& machine_type, Market market = Market::kSpot) {
  ServerRequest wanted;
  wanted.request_id = kId;
  wanted.offer = {machine_type, "us-central1-a", market};
  return wanted;
}

boost::json::object body_of(const ServerRequest& wanted) {
  return boost::json::parse(gce_insert_body(options(), wanted, 0).value()).as_object();
}

TEST(GceInsert, AsksForSpotAsGooglesOwnClientDoes) {
  const boost::json::object body = body_of(request("n1-standard-8+nvidia-tesla-v100:1"));
  EXPECT_EQ(body.at("scheduling"),
            boost::json::parse(R"({"provisioningModel": "SPOT", "preemptible": true,
                "automaticRestart": false, "onHostMaintenance": "TERMINATE",
                "instanceTerminationAction": "DELETE"})"));
  EXPECT_EQ(body.at("guestAccelerators"), boost::json::parse(R"([{"acceleratorCount": 1,
      "acceleratorType":
      "projects/project/zones/us-central1-a/acceleratorTypes/nvidia-tesla-v100"}])"));
  EXPECT_EQ(body.at("machineType"), "zones/us-central1-a/machineTypes/n1-standard-8");
  EXPECT_FALSE(body.contains("serviceAccounts")) << "servers have no rights unless told so";
}

TEST(GceInsert, OnDemandIsNotDeletedUnlessItHasALifetime) {
  EXPECT_EQ(body_of(request("n1", Market::kOnDemand)).at("scheduling"),
            boost::json::parse(R"({"provisioningModel": "STANDARD", "preemptible": false,
                "automaticRestart": false, "onHostMaintenance": "MIGRATE"})"));
  ServerRequest limited = request("n1", Market::kOnDemand);
  limited.lifetime_max = milliseconds(1500);
  const boost::json::object scheduling = body_of(limited).at("scheduling").as_object();
  EXPECT_EQ(scheduling.at("maxRunDuration"), boost::json::parse(R"({"seconds": "2"})"));
  EXPECT_EQ(scheduling.at("instanceTerminationAction"), "DELETE");
  limited.lifetime_max = seconds(5000 * 3600);  // for a large budget; more than GCE accepts
  const boost::json::value longest = body_of(limited).at("scheduling").at("maxRunDuration");
  EXPECT_EQ(longest, boost::json::parse(R"({"seconds": "10368000"})"));
}

TEST(GceInsert, NoMachineWithAGpuIsToBeMigrated) {
  for (const auto& [type, answer] :
       std::map<std::string, std::string>{{"n1-standard-8", "MIGRATE"},
                                          {"n1-standard-8+nvidia-tesla-t4:1", "TERMINATE"},
                                          {"a2-highgpu-1g", "TERMINATE"},
                                          {"a3-highgpu-8g", "TERMINATE"},
                                          {"g2-standard-4", "TERMINATE"}}) {
    EXPECT_EQ(body_of(request(type, Market::kOnDemand)).at("scheduling").at("onHostMaintenance"),
              boost::json::value(answer))
        << type;
  }
}

TEST(GceInsert, RefusesWhatIsNoMachineTypeOrZone) {
  for (const char* type : {"", "a/b", "n1+", "n1+t4", "n1+t4:", "n1+t4:0", "n1+t4:1x", "n1+:1"}) {
    EXPECT_FALSE(gce_insert_body(options(), request(type), 0).ok()) << type;
  }
  ServerRequest nowhere = request("n1");
  nowhere.offer.zone = "";
  EXPECT_FALSE(gce_insert_body(options(), nowhere, 0).ok());
  nowhere.offer.zone = "a/../b";
  EXPECT_FALSE(gce_insert_body(options(), nowhere, 0).ok());
}

TEST(GceNames, AreTheSameForTheSameRequestAndServerOnly) {
  std::set<std::string> names;
  std::set<std::string> ids;
  for (std::uint32_t i = 0; i < 64; ++i) {
    names.insert(gce_server_name(kId, i));
    ids.insert(gce_insert_id(kId, i));
    EXPECT_LE(gce_server_name(kId, i).size(), 63U);
    EXPECT_EQ(gce_insert_id(kId, i).size(), 36U);
  }
  EXPECT_EQ(names.size(), 64U);
  EXPECT_EQ(ids.size(), 64U);
  EXPECT_EQ(gce_insert_id(kId, 3), gce_insert_id(kId, 3));
}

ProviderErrorKind kind_of_operation(const std::string& code) {
  const auto operation =
      parse_gce_operation(R"({"name": "o-1", "status": "DONE", "error": {"errors": [{"code": ")" +
                          code + R"(", "message": "m"}]}})");
  return operation.value().error->kind;
}

TEST(GceOperation, ItsErrorsAreFinal) {
  EXPECT_EQ(kind_of_operation("ZONE_RESOURCE_POOL_EXHAUSTED"), ProviderErrorKind::kCapacity);
  EXPECT_EQ(kind_of_operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
            ProviderErrorKind::kCapacity);
  EXPECT_EQ(kind_of_operation("IP_SPACE_EXHAUSTED"), ProviderErrorKind::kCapacity)
      << "addresses become free when servers end";
  EXPECT_EQ(kind_of_operation("QUOTA_EXCEEDED"), ProviderErrorKind::kQuota);
  EXPECT_EQ(kind_of_operation("PERMISSIONS_ERROR"), ProviderErrorKind::kAuth);
  EXPECT_EQ(kind_of_operation("INVALID_USAGE"), ProviderErrorKind::kConfig);
  EXPECT_EQ(kind_of_operation("INTERNAL_ERROR"), ProviderErrorKind::kCapacity)
      << "the same id would only give the same answer";
}

TEST(GceAnswers, OfAnotherFormAreErrors) {
  for (const char* text :
       {"", "[]", "{}", "{\"name\": 7, \"status\": \"DONE\"}",
        "{\"name\": \"a/b\", \"status\": \"DONE\"}", "{\"name\": \"a\", \"status\": \"LATER\"}"}) {
    EXPECT_FALSE(parse_gce_operation(text).ok()) << text;
    EXPECT_FALSE(parse_gce_instance(text, 0).ok()) << text;
  }
  EXPECT_FALSE(parse_gce_page(R"({"items": [1]})", 0).ok());
  EXPECT_FALSE(parse_gce_page(R"({"items": {"zones/a": {"instances": [{}]}}})", 0).ok());
  EXPECT_TRUE(parse_gce_page("{}", 0).ok());
  EXPECT_FALSE(parse_gce_page(std::string(100'000, '['), 0).ok());
}

TEST(GceAnswers, AListWithoutAZoneThatMattersIsNone) {
  for (const char* text :
       {R"({"items": {"zones/a": {"warning": {"code": "UNREACHABLE"}}, "zones/b": {}}})",
        R"({"unreachables": [7, "projects/p/zones/a"]})"}) {
    EXPECT_FALSE(parse_gce_page(text, 0, {"", "a", "c"}).ok()) << text;
    EXPECT_TRUE(parse_gce_page(text, 0, {"", "b"}).ok()) << text;
  }
  EXPECT_TRUE(
      parse_gce_page(R"({"items": {"zones/a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}})", 0,
                     {"a"})
          .ok());
}

TEST(GceInstances, AStoppedOneIsPaidForUntilItIsDeleted) {
  for (const auto& [status, failed] : std::map<std::string, bool>{
           {"STOPPING", false}, {"TERMINATED", true}, {"STOPPED", true}, {"SUSPENDED", false}}) {
    const auto page = parse_gce_page(R"({"items": {"zones/a": {"instances": [{"name": "m-1",
        "zone": "projects/p/zones/a", "status": ")" +
                                         status + "\"}]}}}",
                                     0);
    ASSERT_TRUE(page.ok()) << page.error().detail;
    EXPECT_EQ(page.value().servers.front().state, ServerState::kStopping) << status;
    EXPECT_EQ(page.value().servers.front().failed, failed) << status;
  }
}

using Quotas = std::vector<GceQuota>;

TEST(GceQuotas, AreReadFromTheDescriptionOfARegion) {
  const auto read = parse_gce_quotas(
      R"({"name": "us-central1", "quotas": [{"metric": "CPUS", "limit": 24, "usage": 4.0},)"
      R"( {"metric": "NEW", "limit": "many"}, 7, {"limit": 1, "usage": 0}]})");
  EXPECT_EQ(read.value(), (Quotas{{"CPUS", 24, 4}}));
  EXPECT_TRUE(parse_gce_quotas("{}").value().empty());
  for (const char* text : {"", "[]", "{", "7"}) {
    EXPECT_FALSE(parse_gce_quotas(text).ok()) << text;
  }
}

TEST(GceQuotas, OfSpotServersAreTheirOwnOrTheUsualOnes) {
  const Quotas quotas = {{"CPUS", 24, 24}, {"PREEMPTIBLE_CPUS", 64, 8}};
  const std::vector<Finding> spot =
      judge_gce_quotas("us-central1", quotas, {{"n1-standard-8", "us-central1-a", Market::kSpot}});
  ASSERT_EQ(spot.size(), 1U);
  EXPECT_TRUE(spot[0].ok);
  EXPECT_EQ(spot[0].text,
            "quota of us-central1: PREEMPTIBLE_CPUS 8 of 64 in use, CPUS 24 of 24 in use");
  const std::vector<Finding> on_demand = judge_gce_quotas(
      "us-central1", quotas, {{"n1-standard-8", "us-central1-a", Market::kOnDemand}});
  ASSERT_EQ(on_demand.size(), 1U);
  EXPECT_FALSE(on_demand[0].ok);
  EXPECT_NE(on_demand[0].text.find("no quota left"), std::string::npos);
}

TEST(GceQuotas, OfAcceleratorsAreJudgedWhereTheRegionHasThem) {
  const Quotas quotas = {
      {"CPUS", 24, 0}, {"NVIDIA_T4_GPUS", 1, 1}, {"PREEMPTIBLE_NVIDIA_T4_GPUS", 0, 0}};
  const std::vector<Offer> offers = {{"n1-standard-8+nvidia-tesla-t4:1", "a", Market::kSpot},
                                     {"n1-standard-8+nvidia-unheard-of:1", "a", Market::kSpot}};
  const std::vector<Finding> findings = judge_gce_quotas("r", quotas, offers);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_TRUE(findings[0].ok);
  EXPECT_FALSE(findings[1].ok);
  EXPECT_NE(findings[1].text.find("NVIDIA_T4_GPUS 1 of 1"), std::string::npos);
  EXPECT_TRUE(judge_gce_quotas("r", {}, offers).empty());
}

TEST(GceQuotas, OfGpusThatComeWithTheMachineAreJudged) {
  const Quotas quotas = {{"NVIDIA_A100_GPUS", 1, 1}, {"NVIDIA_L4_GPUS", 1, 0}};
  const std::vector<Finding> findings = judge_gce_quotas(
      "r", quotas,
      {{"a2-highgpu-1g", "a", Market::kOnDemand}, {"g2-standard-4", "a", Market::kOnDemand}});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_FALSE(findings[0].ok) << findings[0].text;
  EXPECT_TRUE(findings[1].ok) << findings[1].text;
}

/// Grants a token, begins an operation, and never answers a question about it.
class SlowOperation final : public HttpSender {
 public:
  explicit SlowOperation(std::vector<Duration>& pauses) : pauses_(pauses) {}

  Result<HttpResponse> send(const HttpRequest& request, const HttpLimits&) override {
    if (request.url.text().find("/wait") != std::string::npos) {
      return Error{Errc::kDeadline, "scripted"};
    }
    return HttpResponse{
        200,
        {},
        R"({"access_token": "t", "expires_in": 3600, "name": "o-1", "status": "RUNNING"})"};
  }
  bool pause(Duration length) override {
    pauses_.push_back(length);
    return false;
  }
  void abort() override {}

 private:
  std::vector<Duration>& pauses_;
};

/// Grants a token, gives an empty list, and notes the last address.
class EmptyList final : public HttpSender {
 public:
  explicit EmptyList(std::string& asked) : asked_(asked) {}

  Result<HttpResponse> send(const HttpRequest& request, const HttpLimits&) override {
    asked_ = percent_decode(request.url.text());
    return HttpResponse{200, {}, R"({"access_token": "t", "expires_in": 3600})"};
  }
  bool pause(Duration) override { return false; }
  void abort() override {}

 private:
  std::string& asked_;
};

TEST(GceList, AsksForWhatItReadsAndNotForStartUpScripts) {
  std::string asked;
  const auto provider =
      make_gce_provider(options(), {}, std::make_unique<EmptyList>(asked), [] { return 0; });
  ASSERT_TRUE(provider.ok());
  ASSERT_TRUE(provider.value()->list().ok());
  EXPECT_NE(asked.find("filter=labels.mayfly-job=\"job\"&"), std::string::npos)
      << "a job may be named 7 or true: " << asked;
  const std::size_t fields = asked.find("&fields=");
  ASSERT_NE(fields, std::string::npos) << asked;
  for (const char* name :
       {"nextPageToken", "unreachables", "items/*/warning/code",
        "items/*/instances(name,zone,status", "machineType", "guestAccelerators",
        "provisioningModel", "labels", "lastStartTimestamp", "creationTimestamp"}) {
    EXPECT_NE(asked.find(name, fields), std::string::npos) << name;
  }
  EXPECT_EQ(asked.find("metadata", fields), std::string::npos) << "it has the script";
}

/// GCE may hold each of these questions for up to two minutes, so one that fails is not retried.
TEST(GceOperation, IsAskedAboutOnceAtATime) {
  std::vector<Duration> pauses;
  const auto provider =
      make_gce_provider(options(), {}, std::make_unique<SlowOperation>(pauses), [] { return 0; });
  ASSERT_TRUE(provider.ok());
  ServerRequest wanted = request("n1-standard-8");
  wanted.count = 1;
  EXPECT_EQ(provider.value()->request(wanted).servers.size(), 1U);
  EXPECT_EQ(pauses, std::vector<Duration>{milliseconds(500)}) << "none before a retry";
}

}  // namespace
}  // namespace mayfly::cloud_hooks
