#include "engine/cloud/hosts.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mayfly::engine
