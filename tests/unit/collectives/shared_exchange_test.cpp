// Running shards and workers that exchange gradients and answers with or without shared memory.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shard_clients.hpp"
#include "collectives/parameter_server/shared_slots.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "tests/unit/collectives/live_job.hpp"

namespace mayfly::parameter_server {
namespace {

/// A job with one running shard.
class Job {
 public:
  explicit Job(const JobShape& shape, bool payload_hashes = false) : plan_(plan_of(shape)) {
    ShardOptions options;
    options.payload_hashes = payload_hashes;
    shard_ = Shard::start(options, plan_, state_, listener_).value();
  }

  /// Runs the whole job with workers 1 to `workers`.
  void run(std::uint64_t workers, bool share_memory, bool payload_hashes = false) {
    std::set<MemberId> members;
    for (std::uint64_t id = 1; id <= workers; ++id) {
      members.insert(MemberId{id});
    }
    shard_->set_view({ViewId{1}, kLiveKey, members});
    ShardClientsOptions options;
    options.addresses = {shard_->address()};
    options.share_memory = share_memory;
    options.payload_hashes = payload_hashes;
    std::vector<std::thread> threads;
    for (std::uint64_t id = 1; id <= workers; ++id) {
      threads.emplace_back([id, options] {
        LiveWorker worker(id, options);
        worker.set_view(ViewId{1});
        worker.run();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  [[nodiscard]] Shard& shard() { return *shard_; }
  /// Stops the shard. Returns the final value of the parameters, whose elements are all equal.
  float sum() {
    shard_->stop();
    EXPECT_TRUE(is_uniform(state_.values()));
    return state_.values().front();
  }

 private:
  const SyncPlan plan_;
  SumState state_;
  ShardListener listener_;
  std::unique_ptr<Shard> shard_;
};

TEST(SharedExchange, EndsWithTheSumsOfSocketsInEveryPolicy) {
  for (const char* phases : {"bsp", "asp", "ssp:1", "bsp:50%,asp"}) {
    for (const bool share_memory : {true, false}) {
      for (const bool hashes : {true, false}) {
        Job job({phases, 3, 8}, hashes);
        job.run(3, share_memory, hashes);
        EXPECT_EQ(job.sum(), sum_of(24)) << phases << share_memory << hashes;
        const ShardFacts facts = job.shard().facts();
        EXPECT_GE(facts.bytes_in + facts.bytes_out, 2 * 24 * kLivePayload);
        EXPECT_EQ(facts.bytes_shared > 0, share_memory);
        EXPECT_GE(facts.bytes_shared, share_memory ? 24 * kLivePayload : 0)
            << "no gradient was shared";
      }
    }
  }
}

TEST(SharedExchange, SendsTheSlicesOfARoundThatFindNoSlot) {
  constexpr std::uint64_t kSlices = 12;
  constexpr std::uint64_t kSteps = 3;
  Job job({"bsp", kSlices, kSteps});
  job.run(1, true);
  EXPECT_EQ(job.sum(), sum_of(kSlices * kSteps));
  const ShardFacts facts = job.shard().facts();
  EXPECT_GE(facts.bytes_shared, kSteps * SharedSlots::kGradients * kLivePayload);
  EXPECT_LT(facts.bytes_shared, facts.bytes_in);
}

/// Greets the shard as worker 1 and pushes slice 0 with this gradient. Then writes another slot and
/// waits, before it sends that push, until the process is killed.
[[noreturn]] void push_and_stand_still(int addresses, float gradient) {
  ::alarm(120);
  char text[512] = {};
  const bool is_told = ::read(addresses, text, sizeof text - 1) > 0;
  const auto address = collectives::parse_tcp_address(text);
  if (!is_told || !address.ok()) {
    ::_exit(1);
  }
  MessageStream stream(start_connect_unix(address.value().unix_name).value(), 2 * kLivePayload);
  const auto slots = SharedSlots::create(kLivePayload).value();
  Header hello;
  hello.type = MessageType::kHello;
  hello.view = 1;
  hello.key = kLiveKey;
  hello.worker = 1;
  stream.hand_over(slots->fd());
  stream.send(hello);
  for (bool is_welcome = false; !is_welcome;) {
    pollfd polled{stream.fd(), POLLIN, 0};
    const bool is_open =
        stream.flush().ok() && ::poll(&polled, 1, 60'000) == 1 &&
        stream
            .receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                     [&](const Header& header) {
                       is_welcome = is_welcome || (header.flags & flags::kShares) != 0;
                       return Result<void>();
                     })
            .ok();
    if (!is_open) {
      ::_exit(2);
    }
  }
  const std::vector<float> values(kLiveElements, gradient);
  Header push;
  push.type = MessageType::kPush;
  push.worker = 1;
  push.count = 1;
  push.slot = slots->write_gradient(std::as_bytes(std::span(values)));
  stream.send(push, std::as_bytes(std::span(values)));
  (void)stream.flush();
  (void)slots->write_gradient(std::as_bytes(std::span(values)));
  while (true) {
    ::pause();
  }
}

TEST(SharedExchange, KeepsTheGradientOfAWorkerThatIsKilled) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const pid_t worker = ::fork();  // before there are threads
  ASSERT_GE(worker, 0);
  if (worker == 0) {
    push_and_stand_still(from.get(), 100);
  }
  Job job({"bsp", 2, 3});
  const auto address = collectives::parse_tcp_address(job.shard().address());
  if (address.value().unix_name.empty()) {
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
    GTEST_SKIP() << "no Unix-domain sockets here";
  }
  job.shard().set_view({ViewId{1}, kLiveKey, {MemberId{1}, MemberId{2}}});
  const std::string text = job.shard().address();
  ASSERT_EQ(::write(to.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const Instant deadline = monotonic_now() + seconds(60);
  while (job.shard().facts().bytes_shared < kLivePayload && monotonic_now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(job.shard().facts().bytes_shared, kLivePayload);
  ::kill(worker, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(worker, &status, 0), worker);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << WEXITSTATUS(status);
  job.shard().set_view({ViewId{2}, kLiveKey, {MemberId{2}}});
  ShardClientsOptions options;
  options.addresses = {text};
  LiveWorker other(2, options);
  other.set_view(ViewId{2});
  other.run();
  EXPECT_EQ(job.sum(), sum_of(6) - 1 + 100) << "slice 0 counts once, as it was pushed first";
}

/// The worker must close its connection to a shard that names a slot that is not the answers' slot.
TEST(SharedExchange, WithAShardThatNamesAWrongSlotIsOver) {
  const std::string name = "@mayfly-shared-exchange-" + std::to_string(::getpid());
  Result<UniqueFd> listener = listen_unix(name);
  if (!listener.ok()) {
    GTEST_SKIP() << "no Unix-domain sockets here";
  }
  const collectives::TcpAddress address{"127.0.0.1", 1, name, collectives::this_host_id()};
  const WakeUp wake;
  ShardClientsOptions options;
  options.self = MemberId{1};
  options.addresses = {collectives::to_string(address)};
  options.elements = {kLiveElements};
  options.wake = &wake;
  WorkerFlow flow(1);
  std::vector<float> parameters(kLiveElements);
  const auto clients = ShardClients::make(options, flow, [&](std::uint32_t, bool) -> PayloadTarget {
                         return {std::as_writable_bytes(std::span(parameters)), {}};
                       }).value();
  clients->set_view(ViewId{1}, kLiveKey);
  for (const std::uint64_t slot :
       {std::uint64_t{1}, SharedSlots::kAnswer + 1, std::uint64_t{1} << 60}) {
    std::unique_ptr<MessageStream> shard;
    bool is_over = false;
    const Instant deadline = monotonic_now() + seconds(60);
    while (!is_over && monotonic_now() < deadline) {
      clients->wait(monotonic_now() + milliseconds(1));
      UniqueFd fd = accept_one(listener.value().get());
      if (fd.valid() && shard == nullptr) {
        shard = std::make_unique<MessageStream>(std::move(fd), kLivePayload);
        Header header;
        header.type = MessageType::kWelcome;
        header.flags = flags::kShares;
        shard->send(header);
        header.type = MessageType::kParameters;
        header.slot = slot;
        shard->send(header, std::as_bytes(std::span(parameters)));
        (void)shard->flush();
      }
      is_over = shard != nullptr &&
                !shard
                     ->receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                               [](const Header&) { return Result<void>(); })
                     .ok();
    }
    EXPECT_TRUE(is_over) << "slot " << slot;
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
