// A trainer's link is destroyed while the control thread is still in its last call of it. The test
// is mainly for TSan.

#include "engine/training/worker_link.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "collectives/tcp/tcp_transport.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/reduction/model_layout.hpp"
#include "tests/unit/engine/silent_client.hpp"

namespace mayfly::engine {
namespace {

JobConfig four_step_job() {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 4;
  return config;
}

TEST(WorkerLink, MayBeDestroyedByWhoHasTheOrderToLeave) {
  const std::unique_ptr<Job> job = prepare_job(four_step_job()).value();
  const ReductionLayout layout = layout_of(job->model);
  const std::unique_ptr<datasets::Loader> loader =
      datasets::make_loader(job->data, datasets::LoaderOptions{});
  const std::unique_ptr<ComputePool> pool =
      ComputePool::start(*job, layout, *loader, nullptr, 1).value();
  const std::unique_ptr<collectives::Transport> transport =
      collectives::make_tcp_transport({}).value();
  test_support::SilentClient client;
  auto link = std::make_unique<WorkerLink>(*transport, *pool, client);
  std::thread control([told = link.get()] {
    elastic::member_effect::Leave leave;
    leave.reason = elastic::DismissReason::kJobDone;
    told->leave(leave);
  });
  const WorkerLink::Order order = link->next_order();
  link.reset();
  EXPECT_TRUE(std::holds_alternative<elastic::member_effect::Leave>(order));
  control.join();
}

}  // namespace
}  // namespace mayfly::engine
