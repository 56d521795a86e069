#include <gmock/gmock.h>

#include <fstream>

#include "base/net/sockets.hpp"
#include "cli/page.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;

std::string run_in(const test_support::TemporaryFolder& folder) {
  std::ofstream(folder / "events.jsonl")
      << "{\"time\": 1700000000, \"t\": 0, \"kind\": \"started\", \"metrics_bytes\": 0}\n";
  return folder / "";
}

TEST_F(CliTest, DashboardRefusesWhatIsNoRunDirectory) {
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(run({"dashboard"}), kExitUsage);
  EXPECT_THAT(err(), HasSubstr("expects run directories"));
  EXPECT_EQ(run({"dashboard", folder / "missing"}), kExitUsage);
  EXPECT_THAT(err(), HasSubstr("there is no run directory"));
  EXPECT_EQ(run({"dashboard", folder / ""}), kExitUsage);
  EXPECT_THAT(err(), HasSubstr("has no events.jsonl"));
}

TEST_F(CliTest, DashboardWritesAReport) {
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(run({"dashboard", run_in(folder), "--report", folder / "report.html"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("report.html"));
  std::ifstream report(folder / "report.html");
  std::string first;
  std::getline(report, first);
  EXPECT_EQ(first, "<!DOCTYPE html>");
  EXPECT_NE(run({"dashboard", run_in(folder), "--report", folder / "no/such/folder.html"}), 0);
}

TEST_F(CliTest, DashboardRefusesAPortInUse) {
  const test_support::TemporaryFolder folder;
  const Result<UniqueFd> taken = listen_tcp({kLoopbackHost, 0});
  ASSERT_TRUE(taken.ok());
  const std::string port = std::to_string(bound_endpoint(taken.value().get()).port);
  EXPECT_EQ(run({"dashboard", run_in(folder), "--port", port}), kExitUsage);
  EXPECT_THAT(err(), HasSubstr(port));
  EXPECT_EQ(run({"dashboard", run_in(folder), "--port", "many"}), kExitUsage);
}

TEST(Page, SaysWhoCanReachIt) {
  const auto warning = [](const std::string& host) {
    const Result<Page> page = open_page({.listen = {host, 0}, .host_name = "", .key = "k"}, {});
    return page.ok() ? page.value().warning : page.error().detail;
  };
  EXPECT_EQ(warning("127.0.0.1"), "");
  EXPECT_EQ(warning("localhost"), "");
  EXPECT_THAT(warning("0.0.0.0"), HasSubstr("can be reached from other hosts"));
  EXPECT_THAT(warning("127.1"), HasSubstr("127.1 is 127.0.0.1 on this host, so only this host"))
      << "as the host's own name in many an /etc/hosts";
}

}  // namespace
}  // namespace mayfly::cli
