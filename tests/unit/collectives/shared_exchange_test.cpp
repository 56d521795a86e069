// Live shards and workers whose gradients and answers go through shared memory, or do not.

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

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kSharedElements =
    100'003;  // 25 pages of 4 KiB and a bit, many turns of a socket
constexpr std::uint64_t kPayload = kSharedElements * sizeof(float);
constexpr std::uint64_t kKey = 77;
constexpr Duration kTurn = milliseconds(200);

bool is_uniform(std::span<const float> values) {
  return std::ranges::all_of(values, [&](float value) { return value == values.front(); });
}

/// Adds all up. Every gradient of these tests has one value in all its elements.
class SumState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> slices, const Update& /*update*/) override {
    for (const SliceGradient& slice : slices) {
      ASSERT_EQ(slice.sum.size(), kSharedElements);
      EXPECT_TRUE(is_uniform(slice.sum)) << "a gradient of two pushes";
      for (std::size_t i = 0; i < kSharedElements; ++i) {
        values_[i] += slice.sum[i];
      }
    }
  }
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return momentum_; }

 private:
  std::vector<float> values_ = std::vector<float>(kSharedElements);
  std::vector<float> momentum_ = std::vector<float>(kSharedElements);
};

/// Computes slices: the gradient of slice s is s + 1 in every element.
class Worker {
 public:
  Worker(std::uint64_t id, const ShardClientsOptions& options) : options_(options) {
    options_.self = MemberId{id};
    options_.wake = &wake_;
    options_.elements = {kSharedElements};
  }

  void run(ViewId view) {
    const auto clients =
        ShardClients::make(options_, flow_, [this](std::uint32_t, bool) -> PayloadTarget {
          const auto bytes = std::as_writable_bytes(std::span(parameters_));
          return {bytes.first(bytes.size() / 2 + 1), bytes.subspan(bytes.size() / 2 + 1)};
        }).value();
    clients->set_view(view, kKey);
    while (act(*clients)) {
    }
  }

 private:
  /// False when the job is over.
  bool act(ShardClients& clients) {
    const FlowAction action = flow_.next();
    if (std::holds_alternative<flow::Wait>(action)) {
      clients.wait(monotonic_now() + kTurn);
    } else if (const auto* pull = std::get_if<flow::Pull>(&action)) {
      clients.pull(*pull);
    } else if (std::holds_alternative<flow::Adopt>(action)) {
      EXPECT_TRUE(is_uniform(parameters_)) << "parameters of two versions";
    } else if (const auto* push = std::get_if<flow::Compute>(&action)) {
      while (!clients.all_sent()) {
        clients.wait(monotonic_now() + kTurn);
      }
      std::ranges::fill(gradient_, static_cast<float>(push->slice + 1));
      clients.push(*push, {.microbatches = 1, .samples = 1}, {gradient_});
    } else if (std::holds_alternative<flow::Snapshot>(action)) {
      flow_.recorded();
    } else if (std::holds_alternative<flow::Rest>(action)) {
      clients.rest();
    }
    return !std::holds_alternative<flow::Over>(action);
  }

  const WakeUp wake_;
  ShardClientsOptions options_;
  WorkerFlow flow_{1};
  std::vector<float> gradient_ = std::vector<float>(kSharedElements);
  std::vector<float> parameters_ = std::vector<float>(kSharedElements);
};

struct JobShape {
  const char* phases = "bsp";
  std::uint64_t slices_per_step = 2;
  std::uint64_t steps = 6;
};

SyncPlan plan_of(const JobShape& shape) {
  JobLength length;
  length.last_step = shape.steps;
  length.slices_per_step = static_cast<std::uint32_t>(shape.slices_per_step);
  length.samples_per_step = shape.slices_per_step;
  return parse_phases(shape.phases, length).value();
}

/// One shard that lives.
class Job {
 public:
  explicit Job(const JobShape& shape, bool payload_hashes = false) : plan_(plan_of(shape)) {
    ShardOptions options;
    options.payload_hashes = payload_hashes;
    shard_ = Shard::start(options, plan_, state_, listener_).value();
  }

  /// Workers 1 to `workers` compute all of it.
  void run(std::uint64_t workers, bool share_memory, bool payload_hashes = false) {
    std::set<MemberId> members;
    for (std::uint64_t id = 1; id <= workers; ++id) {
      members.insert(MemberId{id});
    }
    shard_->set_view({ViewId{1}, kKey, members});
    ShardClientsOptions options;
    options.addresses = {shard_->address()};
    options.share_memory = share_memory;
    options.payload_hashes = payload_hashes;
    std::vector<std::thread> threads;
    for (std::uint64_t id = 1; id <= workers; ++id) {
      threads.emplace_back([id, options] { Worker(id, options).run(ViewId{1}); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  [[nodiscard]] Shard& shard() { return *shard_; }
  /// Ends the shard; what all elements of the parameters are in the end.
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

/// Of slices 0 to `slices` - 1, each once.
float sum_of(std::uint64_t slices) {
  return static_cast<float>(slices * (slices + 1) / 2);
}

TEST(SharedExchange, EndsWithTheSumsOfSocketsInEveryPolicy) {
  for (const char* phases : {"bsp", "asp", "ssp:1", "bsp:50%,asp"}) {
    for (const bool share_memory : {true, false}) {
      for (const bool hashes : {true, false}) {
        Job job({phases, 3, 8}, hashes);
        job.run(3, share_memory, hashes);
        EXPECT_EQ(job.sum(), sum_of(24)) << phases << share_memory << hashes;
        const ShardFacts facts = job.shard().facts();
        EXPECT_GE(facts.bytes_in + facts.bytes_out, 2 * 24 * kPayload);
        EXPECT_EQ(facts.bytes_shared > 0, share_memory);
        EXPECT_GE(facts.bytes_shared, share_memory ? 24 * kPayload : 0) << "no gradient was shared";
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
  EXPECT_GE(facts.bytes_shared, kSteps * SharedSlots::kGradients * kPayload);
  EXPECT_LT(facts.bytes_shared, facts.bytes_in);
}

/// Says hello as worker 1 and pushes slice 0 with this value; then writes into another slot and
/// stands still in the middle, until it is killed.
[[noreturn]] void push_and_stand_still(int addresses, float gradient) {
  ::alarm(120);
  char text[512] = {};
  const bool is_told = ::read(addresses, text, sizeof text - 1) > 0;
  const auto address = collectives::parse_tcp_address(text);
  if (!is_told || !address.ok()) {
    ::_exit(1);
  }
  MessageStream stream(start_connect_unix(address.value().unix_name).value(), 2 * kPayload);
  const auto slots = SharedSlots::create(kPayload).value();
  Header hello;
  hello.type = MessageType::kHello;
  hello.view = 1;
  hello.key = kKey;
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
  const std::vector<float> values(kSharedElements, gradient);
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
  job.shard().set_view({ViewId{1}, kKey, {MemberId{1}, MemberId{2}}});
  const std::string text = job.shard().address();
  ASSERT_EQ(::write(to.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const Instant deadline = monotonic_now() + seconds(60);
  while (job.shard().facts().bytes_shared < kPayload && monotonic_now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(job.shard().facts().bytes_shared, kPayload);
  ::kill(worker, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(worker, &status, 0), worker);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << WEXITSTATUS(status);
  job.shard().set_view({ViewId{2}, kKey, {MemberId{2}}});
  ShardClientsOptions options;
  options.addresses = {text};
  Worker(2, options).run(ViewId{2});
  EXPECT_EQ(job.sum(), sum_of(6) - 1 + 100) << "slice 0 counts once, as it was pushed first";
}

/// A shard that hands out slots that there are not; the worker must end that connection.
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
  options.elements = {kSharedElements};
  options.wake = &wake;
  WorkerFlow flow(1);
  std::vector<float> parameters(kSharedElements);
  const auto clients = ShardClients::make(options, flow, [&](std::uint32_t, bool) -> PayloadTarget {
                         return {std::as_writable_bytes(std::span(parameters)), {}};
                       }).value();
  clients->set_view(ViewId{1}, kKey);
  for (const std::uint64_t slot :
       {std::uint64_t{1}, SharedSlots::kAnswer + 1, std::uint64_t{1} << 60}) {
    std::unique_ptr<MessageStream> shard;
    bool is_over = false;
    const Instant deadline = monotonic_now() + seconds(60);
    while (!is_over && monotonic_now() < deadline) {
      clients->wait(monotonic_now() + milliseconds(1));
      UniqueFd fd = accept_one(listener.value().get());
      if (fd.valid() && shard == nullptr) {
        shard = std::make_unique<MessageStream>(std::move(fd), kPayload);
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
