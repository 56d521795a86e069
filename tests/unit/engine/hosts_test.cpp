#include "engine/cloud/hosts.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(WorkerArgsOnHosts, AreTheJobsSettingsThatConcernWorkers) {
  JobConfig config;
  config.data = "procedural:64";
  EXPECT_EQ(worker_args_on_hosts(config), "");
  config.threads = 3;
  config.data = "/data/a set";
  config.store = "2GiB";
  config.store_peers = true;
  EXPECT_EQ(worker_args_on_hosts(config),
            " --threads 3 --store 2GiB --store-peers --data '/data/a set'");
}

TEST(WorkerArgsOnHosts, AreNotAddedWhereTheyAreGiven) {
  JobConfig config;
  config.threads = 3;
  config.data = "/data";
  config.cloud_worker_args = "--threads=2 --data-seed 4 --store-peers";
  config.store = "2GiB";
  config.store_peers = true;
  EXPECT_EQ(worker_args_on_hosts(config), config.cloud_worker_args + " --store 2GiB --data '/data'")
      << "--store is another flag than --store-peers";
}

TEST(PreparedHosts, AreNotNeededForAJobThatHasBegun) {
  const test_support::TemporaryFolder folder;
  const std::string cache = folder / "a-file";
  std::ofstream(cache) << "where the folder for the packed program would be";
  JobConfig config;
  config.cloud_provider = "ssh";
  config.hosts = "a,b";
  config.workers = kEverySlot;
  config.data = "procedural:64";
  config.ssh = "sh -c 'cat >/dev/null; exit 1'";  // no host answers
  std::vector<std::string> told;
  const auto tell = [&told](const std::string& line) { told.push_back(line); };
  const Result<JobConfig> fresh = prepare_hosts(config, cache, false, tell);
  ASSERT_FALSE(fresh.ok());
  EXPECT_TRUE(told.empty());
  const Result<JobConfig> begun = prepare_hosts(config, cache, true, tell);
  ASSERT_TRUE(begun.ok()) << begun.error().detail;
  EXPECT_EQ(begun.value().workers, 2u);
  ASSERT_EQ(told.size(), 3u) << "the program, and each host";
  EXPECT_TRUE(told[0].starts_with("the program cannot be packed")) << told[0];
  EXPECT_EQ(told[1], "a: exit code 1");
  config.workers = 1;
  const Result<JobConfig> one = prepare_hosts(config, cache, true, tell);
  ASSERT_TRUE(one.ok()) << one.error().detail;
  EXPECT_EQ(one.value().workers, 1u) << "the other slot is for replacements";
  EXPECT_EQ(one.value().cloud_max_workers, 2u);
}

}  // namespace
}  // namespace mayfly::engine
