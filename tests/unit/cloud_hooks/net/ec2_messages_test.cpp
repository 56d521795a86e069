#include "cloud_hooks/ec2/ec2_messages.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/process/program.hpp"
#include "cloud_hooks/ec2/ec2_provider.hpp"

namespace mayfly::cloud_hooks {
namespace {

HttpResponse error(int status, const std::string& code, const std::string& message = "m") {
  return {status,
          {},
          "<Response><Errors><Error><Code>" + code + "</Code><Message>" + message +
              "</Message></Error></Errors></Response>"};
}

TEST(Ec2Error, CodesHaveTheirKinds) {
  for (const auto& [status, code, kind] :
       {std::tuple{500, "InsufficientInstanceCapacity", ProviderErrorKind::kCapacity},
        {400, "SpotMaxPriceTooLow", ProviderErrorKind::kCapacity},
        {400, "MaxSpotInstanceCountExceeded", ProviderErrorKind::kQuota},
        {400, "VcpuLimitExceeded", ProviderErrorKind::kQuota},
        {400, "InstanceLimitExceeded", ProviderErrorKind::kQuota},
        {503, "RequestLimitExceeded", ProviderErrorKind::kRate},
        {500, "InternalError", ProviderErrorKind::kRate},
        {401, "AuthFailure", ProviderErrorKind::kAuth},
        {403, "UnauthorizedOperation", ProviderErrorKind::kAuth},
        {400, "RequestExpired", ProviderErrorKind::kAuth},
        {400, "InvalidAMIID.NotFound", ProviderErrorKind::kConfig},
        {400, "IdempotentParameterMismatch", ProviderErrorKind::kConfig},
        {502, "", ProviderErrorKind::kRate},
        {418, "SomethingNew", ProviderErrorKind::kConfig}}) {
    EXPECT_EQ(parse_ec2_error(error(status, code), "asking").error.kind, kind) << code;
  }
}

TEST(Ec2Error, AStockOutNamesZones) {
  const std::string message =
      "We currently do not have sufficient p3.2xlarge capacity in the Availability Zone you "
      "requested (eu-west-1a). Our system will be working on provisioning additional capacity. You "
      "can currently get p3.2xlarge capacity by not specifying an Availability Zone in your "
      "request "
      "or choosing eu-west-1b, eu-west-1c.";
  EXPECT_EQ(parse_ec2_error(error(500, "InsufficientInstanceCapacity", message), "")
                .error.zones_available,
            (std::vector<std::string>{"eu-west-1b", "eu-west-1c"}));
}

TEST(Ec2Error, TextsAreOneReadableLine) {
  const std::string detail =
      parse_ec2_error(error(403, "SignatureDoesNotMatch", "first line\nx-amz-security-token:abc"),
                      "asking")
          .error.detail;
  EXPECT_NE(detail.find("first line"), std::string::npos);
  EXPECT_EQ(detail.find("abc"), std::string::npos) << "AWS repeats headers there";
}

TEST(Ec2Instances, OfAnotherFormAreErrors) {
  for (const char* xml :
       {"", "{}", "<a/>", "<RunInstancesResponse/>", "<DescribeInstancesResponse><reservationSet>",
        "<RunInstancesResponse><instancesSet><item/></instancesSet></RunInstancesResponse>"}) {
    EXPECT_FALSE(parse_ec2_instances(xml, 0).ok()) << xml;
  }
  EXPECT_TRUE(parse_ec2_instances("<DescribeInstancesResponse><reservationSet/>"
                                  "</DescribeInstancesResponse>",
                                  0)
                  .ok());
  std::string deep = "<DescribeInstancesResponse><reservationSet>";
  for (int i = 0; i < 100'000; ++i) {
    deep += "<a>";
  }
  EXPECT_FALSE(parse_ec2_instances(deep, 0).ok()) << "and nothing overflows";
}

TEST(Ec2Instances, EntitiesOfTheSenderAreNotExpanded) {
  const auto page = parse_ec2_instances(
      "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/hostname\">]><RunInstancesResponse>"
      "<instancesSet><item><instanceId>i-1</instanceId><reason>&a;</reason></item></instancesSet>"
      "</RunInstancesResponse>",
      0);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page.value().servers.front().detail, "&a;");
}

TEST(Ec2Instances, OneThatShutItselfDownHasFailedAndOneThatWasTakenHasNot) {
  for (const auto& [code, failed] :
       std::map<std::string, bool>{{"Client.InstanceInitiatedShutdown", true},
                                   {"Server.SpotInstanceTermination", false},
                                   {"Client.UserInitiatedShutdown", false}}) {
    const auto page = parse_ec2_instances(
        "<RunInstancesResponse><instancesSet><item><instanceId>i-1</instanceId><instanceState>"
        "<name>terminated</name></instanceState><reason/><stateReason><code>" +
            code + "</code><message>" + code +
            ": text</message></stateReason></item></instancesSet></RunInstancesResponse>",
        0);
    ASSERT_TRUE(page.ok());
    const ServerStatus& server = page.value().servers.front();
    EXPECT_EQ(server.state, ServerState::kGone);
    EXPECT_EQ(server.failed, failed) << code;
    EXPECT_EQ(server.detail, code);
  }
}

TEST(Ec2Run, PutsASubnetOrAZoneWhereItBelongs) {
  Ec2Options options;
  options.image = "ami-1";
  ServerRequest request;
  request.request_id = "id";
  const auto value_of = [&](const std::string& name) {
    const Ec2Form form = ec2_run_form(options, request).value();
    for (const auto& [key, value] : form) {
      if (key == name) {
        return value;
      }
    }
    return std::string("-");
  };
  request.offer = {"p3", "eu-west-1b", Market::kOnDemand};
  EXPECT_EQ(value_of("Placement.AvailabilityZone"), "eu-west-1b");
  EXPECT_EQ(value_of("SubnetId"), "-");
  EXPECT_EQ(value_of("InstanceMarketOptions.MarketType"), "-");
  request.offer = {"p3", "subnet-1", Market::kSpot};
  EXPECT_EQ(value_of("Placement.AvailabilityZone"), "-");
  EXPECT_EQ(value_of("SubnetId"), "subnet-1");
  EXPECT_EQ(value_of("InstanceMarketOptions.MarketType"), "spot");
  request.startup_text = std::string(20'000, 'x');
  EXPECT_FALSE(ec2_run_form(options, request).ok()) << "user data has a limit";
}

TEST(Ec2List, APageOfVerboseServersIsWithinTheLimitOfAnswers) {
  constexpr std::size_t kServerBytesMax = 16'384;
  std::size_t servers = 0;
  for (const auto& [name, value] : ec2_list_form({}, "")) {
    servers = name == "MaxResults" ? std::stoul(value) : servers;
  }
  EXPECT_GE(servers, 100U) << "a list should need few calls";
  EXPECT_LE(servers * kServerBytesMax, HttpLimits{}.body_bytes_max);
}

TEST(Ec2UserData, EndsTheServerAndRunsTheScript) {
  const std::string data = ec2_user_data("#!/bin/sh\necho hi\n", seconds(61));
  EXPECT_NE(data.find("shutdown -P +2\n"), std::string::npos) << data;
  EXPECT_NE(data.find("IyEvYmluL3NoCmVjaG8gaGkK\n"), std::string::npos) << data;
  EXPECT_EQ(data.find("/run"), std::string::npos) << "it is mounted noexec: " << data;
  EXPECT_EQ(ec2_user_data("", {}), "#!/bin/sh\n");
}

/// The output of the user data, which writes the script to `file`.
std::string output_of_user_data(const std::string& startup_text, const std::string& file) {
  const std::string command = "shutdown() { echo shutdown; }\nmktemp() { echo '" + file + "'; }\n" +
                              ec2_user_data(startup_text, Duration(0));
  ProgramCall call;
  call.argv = {"/bin/sh", "-c", command};
  const Result<ProgramResult> ran = run_program(call);
  std::filesystem::remove(file);
  return ran.ok() ? ran.value().output : ran.error().detail;
}

TEST(Ec2UserData, EndsAServerOnWhichTheScriptCannotBeStarted) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("mayfly_user_data_" + std::to_string(::getpid()));
  EXPECT_EQ(output_of_user_data("#!/bin/sh\necho hi\nexit 1\n", file), "hi\n");
  EXPECT_EQ(output_of_user_data("#!/nowhere/sh\n", file), "shutdown\n");
  EXPECT_EQ(output_of_user_data("#!/bin/sh\necho hi\n", "/nowhere/file"), "shutdown\n");
}

constexpr Instant kBegin{1'000'000'000'000};

ServerStatus server(const std::string& id) {
  ServerStatus status;
  status.id = id;
  status.state = ServerState::kStarting;
  return status;
}

TEST(Ec2Promises, HoldUntilTheServerIsSeenOrLongOverdue) {
  Ec2Promises promises;
  promises.add(kBegin, server("i-1"));
  promises.add(kBegin, server("i-2"));
  EXPECT_TRUE(promises.find(kBegin + seconds(119), "i-1").has_value());
  EXPECT_FALSE(promises.find(kBegin + seconds(120), "i-1").has_value());
  promises.known("i-1");
  EXPECT_FALSE(promises.find(kBegin, "i-1").has_value());
  ASSERT_EQ(promises.all(kBegin).size(), 1U);
  EXPECT_EQ(promises.all(kBegin).front().id, "i-2");
  EXPECT_TRUE(promises.all(kBegin + seconds(120)).empty());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
