// Checkpoints that a coordinator takes long to read: it shows the worker that it is alive, and the
// worker waits.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/unique_fd.hpp"
#include "elastic/net/frame.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/transfers/checkpoint_receiver.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

/// The ends of a connection.
std::array<UniqueFd, 2> connected_ends() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// A coordinator.
class LargeCheckpoint : public ::testing::Test {
 protected:
  LargeCheckpoint() {
    std::filesystem::create_directory(folder / "run");
    JobConfig config;
    config.data = "procedural:64";
    config.steps = 40;
    config.run_dir = folder / "run";
    job = prepare_job(config).value();
    hooks.step_without_holder = hooks.step_of_holders = [] { return std::optional<Step>(); };
  }
  void open() { receiver.emplace(*job, StartingPoint{}, std::nullopt, "", hooks); }
  UniqueFd connect() {
    auto [worker, coordinator] = connected_ends();
    receiver->take(std::move(coordinator), "host-b");
    EXPECT_TRUE(elastic::receive_message(worker.get(), monotonic_now() + seconds(60)).ok());
    return std::move(worker);
  }

  const test_support::TemporaryFolder folder;
  std::unique_ptr<Job> job;
  CheckpointReceiver::Hooks hooks;
  std::optional<CheckpointReceiver> receiver;
};

TEST_F(LargeCheckpoint, AWorkerThatAsksForItSeesThatItIsBeingRead) {
  std::atomic<bool> is_reading = true;
  hooks.step_without_holder = [&is_reading] {
    is_reading.wait(true);
    return std::optional<Step>();
  };
  open();
  const UniqueFd worker = connect();
  TransferRequest request;
  request.kind = TransferRequest::Kind::kQuestion;
  EXPECT_TRUE(send_frame(worker.get(), encode(request)).ok());
  const Result<Bytes> first = receive_frame(worker.get(), kFrameBytesMax, seconds(60));
  is_reading = false;
  is_reading.notify_all();
  ASSERT_TRUE(first.ok()) << first.error().detail;
  EXPECT_TRUE(first.value().empty());
  Bytes frame;
  while (frame.empty()) {
    frame = receive_frame(worker.get()).value();
  }
  EXPECT_EQ(decode_transfer_answer(frame).value().verdict, TransferAnswer::Verdict::kNothing);
}

TEST_F(LargeCheckpoint, AWorkerWaitsForItAsLongAsTheCoordinatorIsAlive) {
  const auto [worker, coordinator] = connected_ends();
  TransferAnswer answer;
  answer.text = "after a while";
  ASSERT_TRUE(send_frame(coordinator.get(), {}).ok());
  ASSERT_TRUE(send_frame(coordinator.get(), encode(answer)).ok());
  EXPECT_EQ(request_transfer(worker.get(), TransferRequest{}).value().text, answer.text);
}

}  // namespace
}  // namespace mayfly::engine
