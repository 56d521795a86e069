// A parameter server ends while other threads still call it. The tests are mainly for TSan.

#include "engine/parameter_server/ps_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "engine/network/prepare_job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/state/starting_state.hpp"
#include "tests/unit/engine/silent_client.hpp"

namespace mayfly::engine {
namespace {

JobConfig two_shards_with_followers() {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 4;
  config.sync = "bsp";
  config.ps = 2;
  config.ps_replicas = 1;
  config.shards = 2;
  return config;
}

elastic::member_effect::Leave evicted() {
  elastic::member_effect::Leave leave;
  leave.reason = elastic::DismissReason::kEvicted;
  return leave;
}

TEST(PsServer, MayBeHeldByAnyThreadWhileItEndsAndAfterwards) {
  const Result<std::unique_ptr<Job>> job = prepare_job(two_shards_with_followers());
  ASSERT_TRUE(job.ok()) << job.error().detail;
  const ReductionLayout layout = layout_of(job.value()->model);
  const Result<StartingState> start = starting_state(*job.value(), layout);
  ASSERT_TRUE(start.ok());
  for (int round = 0; round < 5; ++round) {
    Result<std::unique_ptr<PsServer>> made =
        PsServer::start(*job.value(), layout, start.value().state, {0, false});
    ASSERT_TRUE(made.ok()) << made.error().detail;
    PsServer& server = *made.value();
    test_support::SilentClient client;
    PsLink::Hooks hooks;
    hooks.on_view = [&](const elastic::View& view) { server.meet(view); };
    hooks.on_hold = [&] { server.hold(); };
    hooks.on_leave = [] {};
    PsLink link(client, Step{0}, Step{4}, hooks);
    server.join(client, link);

    std::latch begun(1);
    std::atomic<bool> is_over = false;
    std::thread other([&] {
      begun.count_down();
      while (!is_over) {
        server.hold();
        std::this_thread::yield();
      }
      server.hold();
    });
    begun.wait();
    server.finish(evicted());
    is_over = true;
    other.join();
    EXPECT_EQ(client.reports.load(), 2) << "an account of each shard that it leads";
  }
}

// The number of its first view does not matter: ids begin anew with each coordinator.
TEST(PsServer, LeavesAJobThatHasItsServers) {
  JobConfig config = two_shards_with_followers();
  config.ps_replicas = 0;
  const Result<std::unique_ptr<Job>> job = prepare_job(config);
  ASSERT_TRUE(job.ok()) << job.error().detail;
  const ReductionLayout layout = layout_of(job.value()->model);
  const Result<StartingState> start = starting_state(*job.value(), layout);
  ASSERT_TRUE(start.ok());
  Result<std::unique_ptr<PsServer>> made =
      PsServer::start(*job.value(), layout, start.value().state, {0, false});
  ASSERT_TRUE(made.ok()) << made.error().detail;
  PsServer& server = *made.value();
  test_support::SilentClient client;
  client.is_late = true;
  PsLink::Hooks hooks;
  hooks.on_view = [&](const elastic::View& view) { server.meet(view); };
  hooks.on_leave = [] {};
  PsLink link(client, Step{0}, Step{4}, hooks);
  server.join(client, link);
  elastic::View view;
  view.id = ViewId{1};
  view.members.push_back({MemberId{1}, server.address(), {}, 0, 0, {}});
  link.run_view(view);
  EXPECT_TRUE(server.is_late());
  EXPECT_EQ(client.requests_to_leave, 1);
  server.finish({});
  EXPECT_EQ(client.reports.load(), 0) << "its shards are none of the job's";
}

elastic::View view_number(std::uint64_t id) {
  elastic::View view;
  view.id = ViewId{id};
  return view;
}

TEST(PsLink, AnswersAPlannedOrderAlsoIfEverybodyIsAtRestAtOnce) {
  test_support::SilentClient client;
  PsLink* first_shard = nullptr;
  PsLink::Hooks hooks;
  hooks.on_view = [](const elastic::View& /*view*/) {};
  hooks.on_hold = [&] { first_shard->quiet(ViewId{7}); };
  hooks.on_leave = [] {};
  PsLink link(client, Step{0}, Step{4}, hooks);
  first_shard = &link;
  link.wait_for_quiet();
  link.run_view(view_number(7));
  link.ask_for_boundary({ViewId{7}, true});
  EXPECT_EQ(client.stops, 1);
}

TEST(PsLink, TakesNoRestInAnEarlierViewForAnAnswer) {
  test_support::SilentClient client;
  PsLink::Hooks hooks;
  hooks.on_view = [](const elastic::View& /*view*/) {};
  hooks.on_leave = [] {};
  PsLink link(client, Step{0}, Step{4}, hooks);
  link.wait_for_quiet();
  link.run_view(view_number(7));
  link.ask_for_boundary({ViewId{7}, true});
  link.run_view(view_number(8));
  link.ask_for_boundary({ViewId{8}, true});
  link.quiet(ViewId{7});
  EXPECT_EQ(client.stops, 0);
  link.quiet(ViewId{8});
  EXPECT_EQ(client.stops, 1);
}

TEST(PsLink, IsThereUntilTheControlThreadHasToldOfTheEnd) {
  test_support::SilentClient client;
  std::latch is_telling(1);
  std::latch goes_on(1);
  std::atomic<bool> has_told = false;
  PsLink::Hooks hooks;
  hooks.on_view = [](const elastic::View& /*view*/) {};
  hooks.on_leave = [&] {
    is_telling.count_down();
    goes_on.wait();
    has_told = true;
  };
  auto link = std::make_unique<PsLink>(client, Step{0}, Step{4}, hooks);
  std::thread control([told = link.get()] { told->leave(evicted()); });
  is_telling.wait();
  ASSERT_TRUE(link->leave_order().has_value()) << "whoever waits for it may act at once";
  std::thread trainer([&] {
    link.reset();
    EXPECT_TRUE(has_told.load());
  });
  goes_on.count_down();
  trainer.join();
  control.join();
}

}  // namespace
}  // namespace mayfly::engine
