#include "engine/server_roles/server_places.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

JobConfig three_workers_two_servers() {
  JobConfig config;
  config.sync = "bsp";
  config.ps = 2;
  config.workers = 3;
  return config;
}

TEST(ServerPlaces, MachinesAreServersInTheOrderInWhichTheyAsk) {
  ServerPlaces places(places_of_servers(three_workers_two_servers()));
  EXPECT_EQ(places.take("b"), 0u);
  EXPECT_EQ(places.take("a"), 1u);
  EXPECT_EQ(places.take("c"), std::nullopt) << "a worker";
  EXPECT_EQ(places.take("b"), 0u) << "its program was started again";
  EXPECT_TRUE(places.has("a"));
  EXPECT_FALSE(places.has("c"));
}

TEST(ServerPlaces, AMachineThatCameToNothingIsReplaced) {
  ServerPlaces places(places_of_servers(three_workers_two_servers()));
  EXPECT_EQ(places.take("a"), 0u);
  EXPECT_EQ(places.take("b"), 1u);
  places.gone("a");
  places.gone("never seen");
  EXPECT_EQ(places.take("c"), 0u);
  EXPECT_EQ(places.take("a"), std::nullopt);
}

TEST(ServerPlaces, WhoHasNoNameIsAWorker) {
  ServerPlaces places(places_of_servers(three_workers_two_servers()));
  EXPECT_EQ(places.take(""), std::nullopt);
  EXPECT_FALSE(places.has(""));
  places.gone("");
  EXPECT_EQ(places.take("a"), 0u);
}

TEST(ServerPlaces, WhatAMachineIsTold) {
  JobConfig config = three_workers_two_servers();
  EXPECT_EQ(settings_of_place(config, 1), "ps_server = true\nps_index = 1\n");
  EXPECT_EQ(settings_of_place(config, std::nullopt), "");
  config.ps = 0;  // colocated
  EXPECT_EQ(ServerPlaces(places_of_servers(config)).take("a"), 0u);
  EXPECT_EQ(settings_of_place(config, 2), "worker_number = 2\n");
  EXPECT_EQ(settings_of_place(config, std::nullopt), "worker_number = 3\n") << "carries none";
  config.sync.clear();
  EXPECT_EQ(ServerPlaces(places_of_servers(config)).take("a"), std::nullopt)
      << "all-reduce has no servers";
  EXPECT_EQ(settings_of_place(config, std::nullopt), "");
}

}  // namespace
}  // namespace mayfly::engine
