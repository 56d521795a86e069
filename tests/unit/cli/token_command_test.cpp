#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "elastic/net/job_token.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(CliTest, TokenPrintsAnotherOneEachTime) {
  EXPECT_EQ(run({"token"}), 0);
  const std::string first = out();
  EXPECT_THAT(first, MatchesRegex("[0-9a-f]+\n"));
  EXPECT_EQ(first.size(), 65U);
  EXPECT_EQ(run({"token"}), 0);
  EXPECT_NE(out(), first + first);
}

TEST_F(CliTest, TokenWritesAFileThatAWorkerTakes) {
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(run({"token", folder / "token"}), 0) << err();
  struct stat info {};
  ASSERT_EQ(::stat((folder / "token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_TRUE(elastic::read_token_file(folder / "token").ok());
}

TEST_F(CliTest, TokenSaysWhetherConnectionsAreEncrypted) {
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(run({"token", "--tls", folder / "token"}), 0) << err();
  const Result<Bytes> token = elastic::read_token_file(folder / "token");
  ASSERT_TRUE(token.ok()) << token.error().detail;
  EXPECT_TRUE(elastic::is_encrypted(token.value()));
  EXPECT_EQ(run({"token", folder / "plain"}), 0) << err();
  EXPECT_FALSE(elastic::is_encrypted(elastic::read_token_file(folder / "plain").value()));
}

TEST_F(CliTest, TokenReplacesNothing) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "token") << "something\n";
  EXPECT_EQ(run({"token", folder / "token"}), 2);
  EXPECT_THAT(err(), HasSubstr("already exists"));
  EXPECT_FALSE(elastic::read_token_file(folder / "token").ok());
  EXPECT_EQ(run({"token", "a", "b"}), 2);
  EXPECT_EQ(run({"token", folder / "no/such/folder"}), 1);
}

}  // namespace
}  // namespace mayfly::cli
